"""The backfill that a command continues or refuses, without a server."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connector.daemon.due_backfills import due_by_command
from connector.errors import ConfigurationError
from connector.spool.backfill.records import backfills, record
from tests.connector.daemon.recorders import recorder, stream
from tests.connector.spool.backfill.builders import T, recorded, schema

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
