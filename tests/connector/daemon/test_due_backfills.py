"""The backfill that a command continues or refuses, without a server."""

import asyncio
import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.daemon.due_backfills import due_by_command
from connector.daemon.read import _with_backfill
from connector.daemon.repair import _warn_unless_done
from connector.errors import ConfigurationError
from connector.spool.backfill.documents import Backfill, BackfillProgress, TableProgress
from connector.spool.backfill.records import backfills, mark_lost, record, spool_of, write_progress
from connector.spool.writing import sole_writer
from tests.connector.daemon.recorders import recorder, stream
from tests.connector.spool.backfill.builders import T, recorded, schema, spool_with_start

ANY_CONFIG: Any = SimpleNamespace()


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
