"""``python -m tests.docs.reference``: writes the pages of docs/reference/ that are made from the code.

The options of a configuration come from the models, with the text that stands below each field; the commands come from
the command line's own help. A test fails when a page is not what the code makes of it.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import annotated_types
import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from connector.cli import cli
from connector.config.loading import Config
from connector.config.sinks import SinkConfig, sink_names, sink_type
from connector.config.values import parse_duration, parse_size, parse_timestamp
from tests.docs.messages.page import messages

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

_MADE = "<!-- Made from the code by `python -m tests.docs.reference`: change the texts there. -->\n"
_OF_CONFIGURATION = """\
What each option means, its type and its default; a whole file with comments, and the rules that go beyond one option,
are in [configuration](../configuration.md). An unknown option is refused.
"""
_OF_COMMANDS = """\
`spanner-cdc COMMAND --help` prints the same. Every error is one line on standard error. Exit codes: 0 done, 1 failed,
and a restart may succeed, 2 invalid usage or configuration, 3 Spanner no longer retains the data, 4 failed permanently:
every restart meets the same error until its cause is mended, 5 options need a restart or are refused (`reload`),
75 an error that another attempt may not meet, 130 interrupted.
"""
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_SIZES = [(f"{prefix}{suffix}", base**power) for power, prefix in ((4, "T"), (3, "G"), (2, "M"), (1, "K"))
          for suffix, base in (("iB", 1024), ("B", 1000))]  # fmt: skip


def configuration() -> str:
    """The page of the configuration."""
    parts = [
        "# Configuration reference\n",
        _MADE,
        _OF_CONFIGURATION,
    ]
    for name, info in Config.model_fields.items():
        model = info.annotation
        if isinstance(model, type) and issubclass(model, SinkConfig):
            for kind in sorted(sink_names(), key=lambda one: one != "files"):
                config = sink_type(kind).config_type
                parts += _section("sink", f"sink, type {kind}", config, config.__doc__ or "")
        elif isinstance(model, type) and issubclass(model, BaseModel):
            parts += _section(name, name, model, model.__doc__ or "")
    single = {name: info for name, info in Config.model_fields.items() if not _is_section(info)}
    parts += ["## Without a section\n", _table("", single, _texts(Config)), ""]
    return "\n".join(parts)


def commands() -> str:
    """The page of the commands."""
    parts = [
        "# Command reference\n",
        _MADE,
        _OF_COMMANDS,
    ]
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += _command(f"spanner-cdc {name}", command)
    return "\n".join(parts)


PAGES = {"configuration.md": configuration, "commands.md": commands, "messages.md": messages}


def main() -> None:
    """Writes them."""
    for name, made in PAGES.items():
        (FOLDER / name).write_text(made())


def _is_section(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)


def _section(path: str, title: str, model: type[BaseModel], text: str) -> list[str]:
    texts = {name: found for base in reversed(model.__mro__) for name, found in _texts(base).items()}
    summary = _code(text.strip().partition("\n\n")[0])
    return [f"## {title}\n", f"{summary}\n", _table(f"{path}.", model.model_fields, texts), ""]


def _table(path: str, fields: Mapping[str, FieldInfo], texts: Mapping[str, str]) -> str:
    rows = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for name, info in fields.items():
        if _is_section(info):
            assert isinstance(info.annotation, type)
            inner = info.annotation
            rows += _table(f"{path}{name}.", inner.model_fields, _texts(inner)).splitlines()[2:]
        else:
            rows.append(f"| `{path}{name}` | {_type(info)} | {_default(name, info)} | {_code(texts[name])} |")
    return "\n".join(rows)


def _texts(model: type) -> dict[str, str]:
    """The text below each field of a model."""
    if not issubclass(model, BaseModel) or model is BaseModel:
        return {}
    (tree,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            assert isinstance(text, ast.Expr)
            assert isinstance(text.value, ast.Constant)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _code(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _type(info: FieldInfo) -> str:
    kinds = {getattr(one, "func", None) for one in info.metadata}
    if parse_duration in kinds:
        return "duration"
    if parse_size in kinds:
        return "size"
    if parse_timestamp in kinds:
        return "time"
    kind = info.annotation
    choices = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{one}`" for one in choices)
    if get_origin(kind) is tuple:
        return "list of texts"
    if get_origin(kind) is dict:
        return "mapping"
    if type(None) in get_args(kind):
        kind = choices[0]
    if get_origin(kind) is tuple:
        return "list of texts"
    if get_origin(kind) is not None and any(getattr(one, "func", None) is parse_timestamp for one in get_args(kind)):
        return "time"
    kind = _bare(kind)
    if is_dataclass(kind):
        return "mapping"
    name = {str: "text", int: "number", bool: "true or false"}[kind]
    bounds = {type(one): one for one in info.metadata}
    least, most = bounds.get(annotated_types.Ge), bounds.get(annotated_types.Le)
    if isinstance(least, annotated_types.Ge) and isinstance(most, annotated_types.Le):
        return f"{name}, {least.ge} to {most.le}"
    return name


def _bare(kind: Any) -> Any:
    """A type without what a validator adds to it."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _default(name: str, info: FieldInfo) -> str:
    if info.default is PydanticUndefined:
        return "required"
    value, kind = info.default, _type(info)
    if name == "name":
        return "the type"
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if kind in ("duration", "size"):
        return f"`{_duration(value) if kind == 'duration' else _size(value)}`"
    return f"`{value}`" if value not in ((), {}) else "empty"


def _duration(nanoseconds: int) -> str:
    seconds = nanoseconds // 10**9
    found = (f"{seconds // each}{unit}" for unit, each in _UNITS if seconds % each == 0 and seconds >= each)
    return next(found, "0s")


def _size(size: int) -> str:
    return next((f"{size // each}{unit}" for unit, each in _SIZES if size % each == 0), str(size))


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"## {path}\n"
    yield f"{_code(inspect.cleandoc(command.help or ''))}\n"
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            for line in _command(f"{path} {name}", inner):
                yield re.sub("^## ", "### ", line)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```\n{path} {usage}\n```\n"
    yield "| option | meaning |\n|---|---|"
    for parameter in command.params:  # without --help
        names, text = parameter.get_help_record(context) or ("", "")
        if text:
            yield f"| `{_code(names)}` | {_code(text)} |"
    yield ""


if __name__ == "__main__":
    main()
