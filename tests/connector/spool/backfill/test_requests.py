"""Requests about single tables of a backfill, and what reports say of them."""

import json
from pathlib import Path

import pytest
import yaml

from connector.daemon.stopped_tables import request_tables
from connector.errors import ConfigurationError
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import find, spool_of, unfinished_tables, write_progress
from connector.spool.backfill.requests import requests_of
from tests.connector.spool.backfill.builders import SOURCE, T, recorded, spool_with_start
from tests.integration.commands import run


def test_a_stop_holds_until_the_table_is_resumed_or_restarted_also_in_the_backfill_that_continues_it(
    spool_path: str,
) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B")
    done = (TableProgress(table="A", state="done"), TableProgress(table="B", state="reading", rows=4))
    write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=done))
    request_tables(spool, stop=["B"])
    one = find(spool, 1)
    assert one is not None
    assert [(table.table, table.state) for table in one.progress.tables] == [("A", "done"), ("B", "stopped")]
    assert one.is_stopped
    assert unfinished_tables(spool) == {"B"}, "its rows may still be delivered"

    recorded(spool, header, "B", continues=1)
    again = find(spool, 2)
    assert again is not None
    assert again.is_stopped
    request_tables(spool, restart=["B"])
    assert requests_of(spool) == {"B": "restart"}
    request_tables(spool, stop=["B"])
    request_tables(spool, resume=["B"])
    assert requests_of(spool) == {}


def test_only_tables_of_a_backfill_that_is_not_finished_are_stopped_and_only_stopped_ones_resumed(
    tmp_path: Path,
) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B")
    tables = (TableProgress(table="A", state="done"), TableProgress(table="B", state="planned"))
    write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=tables))
    with pytest.raises(ConfigurationError) as caught:
        request_tables(spool, stop=["A"], resume=["B"], restart=["C"])
    assert [error.partition(";")[0] for error in caught.value.errors] == [
        "--stop A: it is in no backfill that is not finished",
        "--restart C: it is in no backfill that is not finished",
        "--resume B: it is not stopped",
    ]
    assert requests_of(spool) == {}


def test_a_request_about_rows_that_are_read_already_says_what_follows(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B")
    states = {"A": "read", "B": "reading"}

    def report() -> None:
        tables = [TableProgress.model_validate({"table": table, "state": state}) for table, state in states.items()]
        write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=tuple(tables)))

    report()
    with pytest.raises(ConfigurationError, match="--stop A: all of its rows are read, and are being delivered"):
        request_tables(spool, stop=["A"])
    assert "a process that reads the backfill follows" in request_tables(spool, restart=["A"])[-1]
    assert requests_of(spool) == {"A": "restart"}
    states["B"] = "read"
    report()
    assert "all rows of the backfill are read already" in request_tables(spool, restart=["B"])[-1]


def test_the_command_stops_a_table_and_status_lists_each_table(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path / "spool")
    recorded(spool, header, "A")
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"source": SOURCE.model_dump(), "spool": {"path": spool.path}}))
    done = run("backfill", config, "--stop", "A")
    assert (done.code, done.out.decode().startswith("stopped: A; a process that reads")) == (0, True), done.err
    for more in (["--table", "B"], ["--data-boost"], ["--rpc-priority", "low"]):
        refused = run("backfill", config, "--stop", "B", *more)
        assert (refused.code, f"{more[0]}: --stop, --resume and --restart only" in refused.complaint) == (2, True)
    objects = json.loads(run("status", config, "--objects", "--json").out)["objects"]
    assert [(one["table"], one["backfill"]["state"]) for one in objects] == [("A", "stopped"), ("B", "not_started")]
    assert "  B: backfill not_started; changes not_started" in run("status", config, "--objects").out.decode()
