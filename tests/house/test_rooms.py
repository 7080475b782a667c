"""Folders, files and classes stay small; docs/architecture.md has a row for each folder; no test imports a test."""

import ast
import re
from collections import Counter

from tests.house.project import PACKAGES, ROOT, files, modules

FILES_A_FOLDER = 16
LINES_A_FILE = 500
LINES_A_CLASS = 300
PUBLIC_METHODS = 20

EXEMPT = {"docs/decisions"}
"""A decision is a file of its own, however many there are."""


def test_a_folder_has_at_most_sixteen_files() -> None:
    counted = Counter(path.parent.as_posix() for path in files())
    assert {folder: n for folder, n in counted.items() if n > FILES_A_FOLDER and folder not in EXEMPT} == {}


def test_a_python_file_has_at_most_500_lines() -> None:
    lines = {path.as_posix(): len((ROOT / path).read_text().splitlines()) for path in modules()}
    assert {path: n for path, n in lines.items() if n > LINES_A_FILE} == {}


def test_a_class_has_at_most_300_lines_and_20_public_methods() -> None:
    large = {}
    for path in modules():
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            public = sum(not method.name.startswith("_") for method in methods)
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LINES_A_CLASS or public > PUBLIC_METHODS:
                large[f"{path}: {node.name}"] = (lines, public)
    assert large == {}


def test_no_test_imports_another_test() -> None:
    imported = re.compile(r"^\s*(?:from|import) (tests[\w.]*\.test_\w+|tests[\w.]* import .*\btest_\w+)", re.MULTILINE)
    found = {path.as_posix(): imported.findall((ROOT / path).read_text()) for path in modules()}
    assert {path: names for path, names in found.items() if names} == {}


def test_decisions_have_unique_numbers_and_their_headings_name_them() -> None:
    decisions = [path for path in files() if path.parent.as_posix() == "docs/decisions"]
    numbers = {path.as_posix(): int(path.name[:4]) for path in decisions}
    headings = {path.as_posix(): int((ROOT / path).read_text().split(".")[0].strip("# ")) for path in decisions}
    assert sorted(set(numbers.values())) == sorted(numbers.values())
    assert headings == numbers


def test_the_architecture_page_has_a_row_for_each_folder_of_the_packages() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = set(re.findall(r"^\| `([\w/]+)/` \|", page, re.MULTILINE))
    folders = {path.parent.as_posix() for path in modules() if path.parts[0] in PACKAGES}
    assert rows == folders
