"""The options of `verify` that are refused before anything is opened."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.cli.proof import _refusal
from tests.integration.commands import run


@pytest.mark.parametrize("tables", [[""], [","], [" , ", ""]], ids=str)
def test_patterns_that_name_no_table_do_not_stand_for_all_of_them(tmp_path: Path, tables: list[str]) -> None:
    given = [option for one in tables for option in ("--tables", one)]
    done = run("verify", tmp_path / "absent.yaml", "--repair", *given)
    assert done.code == 2
    assert "--tables: it names no table" in done.complaint


BOTH_WAYS = """
source: {project: p, instance: in, database: a, change_stream: S, skip_transaction_tags: [spanner-cdc]}
spool: {path: s}
sink: {type: spanner, project: p, instance: in, database: b}
"""


def test_no_repair_overwrites_what_the_users_of_a_destination_that_replicates_back_have_written(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(BOTH_WAYS)
    done = run("verify", path, "--repair")
    assert done.code == 2
    assert (
        "--repair: with source.skip_transaction_tags it could undo changes of the destination's own users"
        in done.complaint
    )
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("sink", "refused"), [("spanner", True), ("files", False)])
def test_a_repair_by_files_is_not_refused_for_tags_that_are_skipped(sink: str, *, refused: bool) -> None:
    source = SimpleNamespace(placements=None, skip_transaction_tags=["spanner-cdc"])
    config: Any = SimpleNamespace(source=source, sink=SimpleNamespace(type=sink))
    assert (_refusal(config) is not None) == refused
    source.skip_transaction_tags = []
    assert _refusal(config) is None
