"""The imports of the packages, read from their source, and the distributions that these come from."""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
OWN = ("connector", "spark_sink", "emulator", "tests", "benchmarks")


class Import(NamedTuple):
    """An import: the module that has it, the module that it names, and whether it runs when the first is imported."""

    importer: str
    imported: str
    at_once: bool


@cache
def imports_of(package: str) -> tuple[Import, ...]:
    """Returns every import of a package's modules, those inside functions and for the type checker included."""
    return tuple(found for path in sorted((ROOT / package).rglob("*.py")) for found in _of_file(path))


def third_party(package: str) -> set[Import]:
    """Returns the imports of a package that are neither Python's nor the project's."""
    return {one for one in imports_of(package) if _is_third_party(one.imported)}


def loaded_by(module: str) -> set[Import]:
    """Returns the third-party imports that run when a module is imported, and with it those of the project."""
    edges: dict[str, set[Import]] = {}
    for package in ("connector", "spark_sink", "emulator"):
        for one in imports_of(package):
            if one.at_once:
                edges.setdefault(one.importer, set()).add(one)
    todo, seen, found = [module], set[str](), set[Import]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        todo += [name.rpartition(".")[0]] if "." in name else []
        for one in edges.get(name, ()):
            if one.imported.split(".")[0] in OWN:
                todo.append(one.imported)
            else:
                found.add(one)
    return {one for one in found if _is_third_party(one.imported)}


@cache
def distribution(module: str) -> str:
    """Returns the name of the distribution that has a module; namespace packages such as ``google`` are of many.

    Without an installed one it is the module's own name, as for most distributions.
    """
    top = module.partition(".")[0]
    names = {normalized(name) for name in _of_top_level().get(top, [top])}
    if len(names) > 1:
        spec = util.find_spec(module)
        names = {_of_files().get(spec.origin if spec else None, normalized(module))}
    return names.pop()


def normalized(name: str) -> str:
    """Returns a distribution's name as package indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def _is_third_party(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in sys.stdlib_module_names and top not in OWN


@cache
def _of_top_level() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _of_files() -> dict[str | None, str]:
    shared = {name for names in _of_top_level().values() if len(set(names)) > 1 for name in names}
    return {
        str(one.locate_file(path)): normalized(one.metadata["Name"])
        for one in metadata.distributions()
        if one.metadata["Name"] in shared
        for path in one.files or ()
        if path.suffix == ".py"
    }


def _of_file(path: Path) -> Iterator[Import]:
    names = path.relative_to(ROOT).with_suffix("").parts
    importer = ".".join(names[:-1] if names[-1] == "__init__" else names)
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text(), str(path)), True)]
    while todo:
        node, at_once = todo.pop()
        if isinstance(node, ast.Import):
            yield from (Import(importer, alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports are not used"
            yield from (Import(importer, _module(node.module or "", alias.name), at_once) for alias in node.names)
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        todo += [(child, at_once and not lazy) for child in ast.iter_child_nodes(node)]


@cache
def _module(module: str, name: str) -> str:
    """The module that ``from module import name`` imports: ``module.name`` where that is a module."""
    if module.partition(".")[0] in OWN:
        path = ROOT.joinpath(*module.split("."), name)
        return f"{module}.{name}" if path.with_suffix(".py").exists() or path.is_dir() else module
    if len(set(_of_top_level().get(module.partition(".")[0], ()))) < 2:
        return module
    try:
        found = util.find_spec(f"{module}.{name}")
    except ModuleNotFoundError:
        found = None
    return f"{module}.{name}" if found else module
