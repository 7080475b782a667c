"""The messages of the code: each error with its remedy, each alarm, each warning and error of the log.

They are read from the source, so that the page lacks none: the texts with which an error is created, or a line is
logged. What a running program puts in is shown as an ellipsis.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from connector.log import action_of

ROOT = Path(__file__).parents[3]
PACKAGES = ("connector", "spark_sink")
FILLED = "…"

Names = Mapping[str, list[ast.expr]]


class Message(NamedTuple):
    """A message: the kind of error, the alarm or the action that it has, its level, and its own remedy, if any."""

    kind: str
    level: str
    text: str
    remedy: str


@cache
def modules() -> tuple[ast.Module, ...]:
    """The syntax trees of the packages' files."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return tuple(ast.parse(path.read_text()) for path in paths)


@cache
def error_kinds() -> Mapping[str, str]:
    """The classes that derive from SpannerCdcError, and the first line of each one's docstring."""
    classes = [node for tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {one.name: {base.id for base in one.bases if isinstance(base, ast.Name)} for one in classes}
    known = {"SpannerCdcError"}
    while more := {name for name, of in bases.items() if of & known} - known:
        known |= more
    return {one.name: (ast.get_docstring(one) or "").partition("\n")[0] for one in classes if one.name in known}


def errors() -> Iterator[Message]:
    """Each text with which an error is created; what passes on the text of another error has none of its own."""
    for call, names in _calls():
        if isinstance(call.func, ast.Name) and call.func.id in error_kinds():
            options = _options(call)
            first = call.args[0] if call.args else options.get("message")
            for text in _texts(first, names):
                yield Message(call.func.id, "ERROR", text, _one(options.get("hint"), names))


def alarms() -> Iterator[Message]:
    """Each alarm."""
    for call, names in _calls():
        if isinstance(call.func, ast.Name) and call.func.id == "Alarm":
            given = [*call.args, *([None] * (4 - len(call.args)))]
            kind, level, text, remedy = (_one(one, names) for one in given[:4])
            yield Message(kind, level or "WARNING, ERROR", text or FILLED, remedy)


def logged() -> Iterator[Message]:
    """Each warning and each error of the log; its kind is its action."""
    for call, names in _calls():
        match call.func:
            case ast.Attribute(value=ast.Name(id="_log" | "log" | "LOG"), attr="warning" | "error" as level):
                action = _one(_options(call).get("action"), names)
                for text in _texts(call.args[0], names):
                    yield Message(action or action_of(text), level.upper(), text, "")


def _options(call: ast.Call) -> dict[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


@cache
def _calls() -> tuple[tuple[ast.Call, Names], ...]:
    """Each call that may make a message, with what is assigned to names in the function around it and in its module."""
    return tuple(_found_calls())


def _found_calls() -> Iterator[tuple[ast.Call, Names]]:
    for tree in modules():
        outer = _assigned(tree.body)
        inside: dict[int, Names] = {}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                names = {**outer, **_assigned(list(ast.walk(function)))}
                inside |= {id(node): names for node in ast.walk(function)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _may_make_a_message(node):
                known = inside.get(id(node), outer)
                yield node, {name: [one for one in of if one.lineno <= node.lineno] for name, of in known.items()}


def _may_make_a_message(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(id=name):
            return name == "Alarm" or name in error_kinds()
        case ast.Attribute(attr="warning" | "error"):
            return True
    return False


def _assigned(nodes: list[ast.stmt] | list[ast.AST]) -> dict[str, list[ast.expr]]:
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                found.setdefault(name, []).append(value)
            case ast.Assign(targets=[ast.Tuple(elts=[*targets])], value=ast.Tuple(elts=[*values])):
                for target, value in zip(targets, values, strict=True):
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, []).append(value)
    return found


def _texts(node: ast.expr | None, names: Names, depth: int = 3) -> list[str]:
    """The texts that an expression may make, those without a word of their own left out."""
    found: list[str] = []
    match node:
        case ast.List(elts=parts) | ast.BoolOp(values=parts):
            found = [text for part in parts for text in _texts(part, names, depth)]
        case ast.IfExp(body=body, orelse=other):
            found = _texts(body, names, depth) + _texts(other, names, depth)
        case ast.Name(id=name):
            values = names.get(name, ()) if depth else ()
            found = [text for value in values for text in _texts(value, names, depth - 1)]
        case ast.expr():
            found = [_one(node, names, depth)]
    return [text for text in found if re.search("[a-z]{3}", text)]


def _one(node: ast.expr | None, names: Names, depth: int = 3) -> str:
    """The text that an expression makes; if there are several, the one that was assigned last."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return re.sub(f"{FILLED}+", FILLED, "".join(_part(value, names, depth) for value in values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (_one(left, names, depth) or FILLED) + (_one(right, names, depth) or FILLED)
        case ast.Name() | ast.IfExp() | ast.BoolOp():
            return next(reversed(_texts(node, names, depth)), "")
    return ""


def _part(value: ast.expr, names: Names, depth: int) -> str:
    match value:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(value=ast.Name() as name) if depth:
            text = _one(name, names, depth - 1)
            return text if text.count(" ") > 1 or name.id.isupper() else FILLED
    return FILLED
