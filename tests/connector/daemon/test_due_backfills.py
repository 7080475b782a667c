"""The backfill that a command continues or refuses, without a server."""

import asyncio
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.config.backfill_rules import BackfillRules
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.due_backfills import due_by_command
from connector.daemon.read import _with_backfill
from connector.daemon.repair import _warn_unless_done
from connector.errors import ConfigurationError
from connector.spool.backfill.documents import Backfill, BackfillProgress, TableProgress
from connector.spool.backfill.records import (
    RecordedBackfill,
    backfills,
    mark_lost,
    record,
    spool_of,
    unfinished_tables,
    write_progress,
)
from connector.spool.backfill.requests import stopped_tables, write_request
from connector.spool.writing import sole_writer
from tests.connector.daemon.recorders import recorder, recorder_of_related, stream
from tests.connector.spool.backfill.builders import T, recorded, schema, spool_with_start

ANY_CONFIG: Any = SimpleNamespace()
INTO_SPANNER: Any = SimpleNamespace(sink=SimpleNamespace(type="spanner"))


def test_a_command_that_names_tables_does_not_take_their_unfinished_repair_for_a_backfill(tmp_path: Path) -> None:
    due = recorder(tmp_path, stream())
    record(due.spool, due.header, [schema("A")], timestamp=lambda: T, why="repair", dialect="googlesql", now=T)
    with pytest.raises(ConfigurationError, match=r"--table: repair 1 of A is not finished: run"):
        due_by_command(due, ANY_CONFIG, ("A",), (), is_first=True)
    assert len(backfills(due.spool)) == 1
    finished = due_by_command(due, ANY_CONFIG, (), (1,), is_first=True)
    assert finished is not None
    assert finished.why == "repair"


def test_a_command_that_names_the_tables_of_an_unfinished_backfill_continues_it(tmp_path: Path) -> None:
    due = recorder(tmp_path, stream())
    recorded(due.spool, due.header, "A")
    continued = due_by_command(due, ANY_CONFIG, ("A",), (), is_first=True)
    assert continued is not None
    assert continued.number == 1


def names(document: Backfill) -> list[str]:
    return [table.table for table in document.tables]


def with_a_lost_backfill_of_b(due: BackfillRecorder) -> RecordedBackfill:
    """Backfill 1, which has done A and has lost the rest of B."""
    recorded(due.spool, due.header, "A", "B")
    states = (TableProgress(table="A", state="done"), TableProgress(table="B", state="reading"))
    write_progress(spool_of(due.spool, 1), BackfillProgress(updated=T, tables=states, lost=True))
    (one,) = backfills(due.spool)
    return one


@pytest.mark.parametrize("reads_parents", [True, False])
def test_where_changes_wait_a_later_backfill_reads_the_tables_that_its_rows_refer_to(
    tmp_path: Path, reads_parents: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A parent that was committed after the last change that is applied is in an epoch that waits."""
    caplog.set_level("INFO")
    due = recorder_of_related(tmp_path, stream(), reads_parents=reads_parents)
    found = due.first([schema("B")], after=0, why="command")
    assert names(found) == (["A", "B"] if reads_parents else ["B"])
    assert ("tables that others refer to are read, too" in caplog.text) == reads_parents
    assert names(due.record([schema("B")], after=1, why="repair", fill=lambda *_: None)) == ["B"]


@pytest.mark.parametrize("reads_parents", [True, False])
def test_where_changes_wait_a_backfill_at_a_new_timestamp_reads_the_tables_that_its_rows_refer_to(
    tmp_path: Path, reads_parents: bool
) -> None:
    due = recorder_of_related(tmp_path, stream(), reads_parents=reads_parents)
    one = with_a_lost_backfill_of_b(due)
    write_request(due.spool, ["A"], "stop")  # as of an earlier backfill
    assert names(due.continued(one)) == (["A", "B"] if reads_parents else ["B"])
    assert unfinished_tables(due.spool) == ({"A", "B"} if reads_parents else {"B"})
    assert stopped_tables(due.spool) == (frozenset() if reads_parents else {"A"})


def test_tables_that_backfills_exclude_are_not_read_because_others_refer_to_them(tmp_path: Path) -> None:
    due = recorder_of_related(tmp_path, stream(backfill=BackfillRules(exclude=("A",))), reads_parents=True)
    assert names(due.first([schema("B")], after=0, why="command")) == ["B"]


def test_a_table_that_another_backfill_has_left_is_not_in_two(tmp_path: Path) -> None:
    due = recorder_of_related(tmp_path, stream(), reads_parents=True)
    recorded(due.spool, due.header, "B")
    recorded(due.spool, due.header, "A")
    mark_lost(spool_of(due.spool, 1), "too old", now=T)
    assert names(due.continued(backfills(due.spool)[0])) == ["B"]


def test_a_command_is_repeated_with_the_tables_that_it_named_though_others_are_read_too(tmp_path: Path) -> None:
    due = recorder_of_related(tmp_path, stream(), reads_parents=True)
    first = due_by_command(due, INTO_SPANNER, ("B",), (), is_first=True)
    assert due_by_command(due, INTO_SPANNER, ("B",), (), is_first=True) == first
    states = (TableProgress(table="A", state="reading"), TableProgress(table="B", state="done"))
    write_progress(spool_of(due.spool, 1), BackfillProgress(updated=T, tables=states))
    with pytest.raises(ConfigurationError, match="backfill 1 into another Spanner database is not finished"):
        due_by_command(due, INTO_SPANNER, ("B",), (), is_first=True)


def test_beside_a_sink_that_does_not_wait_a_backfill_of_more_tables_is_not_the_one_that_is_named(
    tmp_path: Path,
) -> None:
    due = recorder_of_related(tmp_path, stream(), reads_parents=False)
    recorded(due.spool, due.header, "A", "B")
    with pytest.raises(ConfigurationError, match=r"--table: backfill 1 of A, B is not finished"):
        due_by_command(due, ANY_CONFIG, ("B",), (), is_first=True)


def test_a_start_continues_a_repair_that_was_interrupted_without_backfills_in_the_configuration(tmp_path: Path) -> None:
    """The sink into another Spanner database waits for it. One that its command delivers is left to that."""
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "B")
    repair = functools.partial(record, why="repair", dialect="googlesql", now=T, timestamp=lambda: T)
    repair(spool, header, [schema("A")])
    config: Any = SimpleNamespace(source=SimpleNamespace(backfill=None))
    start: Any = SimpleNamespace(spool=spool)

    def due() -> list[int]:
        found: list[Backfill] = []
        asyncio.run(_with_backfill(start, stream(), config, found.append))
        return [one.number for one in found]

    assert due() == [2], "a backfill is continued by its command"
    with sole_writer(spool_of(spool, 2)):
        assert due() == []
    mark_lost(spool_of(spool, 2), "changes were merged before", now=T)
    assert due() == [], "the next repair gives it up"


def test_a_repair_that_was_interrupted_says_what_continues_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool, header = spool_with_start(tmp_path)
    record(spool, header, [schema("A")], timestamp=lambda: T, why="repair", dialect="googlesql", now=T)
    _warn_unless_done(spool, 1)
    assert "the repair is not finished: the next `spanner-cdc verify CONFIG --repair`" in caplog.text
    caplog.clear()
    done = (TableProgress(table="A", state="done"),)
    write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=done))
    _warn_unless_done(spool, 1)
    assert caplog.text == ""
