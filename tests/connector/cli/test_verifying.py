"""The options of `verify` that are refused before anything is opened."""

from pathlib import Path

import pytest

from tests.integration.commands import run


@pytest.mark.parametrize("tables", [[""], [","], [" , ", ""]], ids=str)
def test_patterns_that_name_no_table_do_not_stand_for_all_of_them(tmp_path: Path, tables: list[str]) -> None:
    given = [option for one in tables for option in ("--tables", one)]
    done = run("verify", tmp_path / "absent.yaml", "--repair", *given)
    assert done.code == 2
    assert "--tables: it names no table" in done.complaint
