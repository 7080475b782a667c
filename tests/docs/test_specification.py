"""The page about the specification has an answer in each row, and names tests that exist."""

import ast
import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "proof" / "specification.md"
ANSWERS = ("yes", "partly", "no", "more", "does not apply", "Conduit adds them")


def rows() -> list[list[str]]:
    """The cells of the rows of all tables, without their headings."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if row[0] != "the page says"]


def test_each_row_has_an_answer_and_one_that_is_kept_names_a_test() -> None:
    assert [row for row in rows() if len(row) != 3 or not row[1].startswith(ANSWERS)] == []
    kept = [row for row in rows() if row[1].startswith(("yes", "partly", "more"))]
    assert [row[0] for row in kept if "::test_" not in row[2]] == []
    assert len(kept) > 60


def test_what_is_not_kept_has_a_reason() -> None:
    assert [row[0] for row in rows() if re.fullmatch(r"(no|partly)\W*", row[1])] == []


def test_each_test_that_is_named_exists() -> None:
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", PAGE.read_text())
    missing = []
    for path, name in named:
        source = ROOT / "tests" / path
        tree = ast.parse(source.read_text()) if source.exists() else ast.Module([], [])
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if name not in functions:
            missing.append(f"{path}::{name}")
    assert missing == []
    assert len(named) == PAGE.read_text().count("::"), "all have the form that is looked for"
