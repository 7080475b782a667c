"""The progress of a backfill: a bar on a terminal, lines elsewhere."""

import asyncio
import io
import logging
import sys
from pathlib import Path

import pytest

from connector import log
from connector.config import validated
from connector.daemon import backfill, backfill_report
from connector.daemon.backfill import BackfillOptions, check_rejected
from connector.daemon.backfill_report import bar, reported
from connector.daemon.sink_process import SinkFailedPermanentlyError
from connector.daemon.states.report import status_of, status_text
from connector.log import Log, terminal
from connector.reader.stopping import StopRequest
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.records import backfills, spool_of, write_progress
from connector.spool.backfill.requests import stopped_tables, withdraw_requests, write_request
from connector.spool.sink_report import NOTHING, write_report
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.spool.backfill.builders import T, recorded, spool_with_start


def test_a_bar_has_partitions_rows_bytes_tables_and_the_time_that_is_left() -> None:
    line: backfill_report.Line = {
        "partitions": "12/40",
        "rows": 1234567,
        "mb": 56.7,
        "tables_done": "2/10",
        "seconds_left": 200,
    }
    assert bar(line) == "[######--------------] 12/40 partitions  1,234,567 rows  56.7 MB  2/10 tables  0:03:20 left"
    unknown = {**line, "partitions": "0/?", "seconds_left": "unknown"}
    assert bar(unknown).startswith("[--------------------] 0/? partitions")
    assert bar(unknown).endswith("time left unknown")
    assert bar({**line, "partitions": "40/40"}).startswith("[####################] 40/40")


def test_on_a_terminal_the_bar_is_drawn_until_the_end_and_then_one_line_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, object]] = []
    monkeypatch.setattr(Log, "info", lambda _, text, **fields: said.append(fields))
    monkeypatch.setattr(backfill_report, "REDRAW", 0.0)
    spool, header = spool_with_start(tmp_path)
    document = recorded(spool, header, "A")
    tables = (TableProgress(table="A", state="reading", partitions=1, planned=4, rows=1000, bytes=10**6),)
    write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=tables))
    drawn = asyncio.Event()

    class Screen(io.StringIO):
        def flush(self) -> None:
            drawn.set()

    screen = Screen()

    async def watched() -> None:
        async with reported(spool, document, screen):
            await drawn.wait()

    asyncio.run(watched())
    assert "[#####---------------] 1/4 partitions  1,000 rows  1.0 MB" in screen.getvalue()
    assert "\n" not in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K"), "the line is free for the next one"
    (last,) = said
    assert last["partitions"] == "1/4"


def test_no_bar_is_drawn_beside_lines_of_json_or_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(sys, "stderr", screen)
    log.configure(json=False, verbose=False)
    assert terminal() is screen
    log.configure(json=True, verbose=False)
    assert terminal() is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    log.configure(json=False, verbose=False)
    assert terminal() is None


def test_dead_letters_of_a_backfill_are_named_at_its_end_and_raise_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(Log, "error", lambda _, text, **fields: said.append((text, fields)))
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B")
    own = spool_of(spool, 1)
    tables = tuple(TableProgress(table=table, state="done", rows=3) for table in "AB")
    write_progress(own, BackfillProgress(updated=T, tables=tables))
    (one,) = backfills(spool)
    backfill_report.log_done(one)
    check_rejected(one)
    assert said == []
    write_report(own, "tables", NOTHING.after(1, 3, {"A": "column Name is another type there"}))
    backfill_report.log_done(one)
    ((text, fields),) = said
    assert "rows of the backfill became dead letters" in text
    assert (fields["number"], fields["dead_letters"], fields["stopped_tables"]) == (1, 3, "A")
    with pytest.raises(
        SinkFailedPermanentlyError, match="tables that it stopped are dead letters: A: column Name is another type"
    ):
        check_rejected(one)
    assert "WARNING dead_letters: 3 rows are dead letters" in status_text(status_of(spool, 0), with_errors=False)
    report = backfill_report.BackfillStates(spool).current()
    assert [described["dead_letters"] for described in report] == [3]
    assert "2 of 2 tables done, 3 rows became dead letters" in backfill_report.lines_of(report[0])[0]
    metrics = ReaderMetrics()
    metrics.reported({"tables": NOTHING.after(1, 2, {})}, of_backfills=3)
    assert metrics.dead_letters == 5


def test_a_backfill_whose_stopped_tables_are_replayed_has_succeeded(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    own = spool_of(spool, 1)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="A", state="done", rows=3),)))
    write_report(own, "tables", NOTHING.after(1, 3, {"A": "why"}).without("A"))
    (one,) = backfills(spool)
    check_rejected(one)


@pytest.mark.parametrize(("resumed", "runs"), [(True, 2), (False, 1)])
def test_a_table_that_is_resumed_while_the_others_are_delivered_is_read_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, resumed: bool, runs: int
) -> None:
    spool, header = spool_with_start(tmp_path)
    document = recorded(spool, header, "A", "B")
    write_request(spool, ["B"], "stop")
    found: list[int] = []

    class Process:
        """Reads and delivers the tables that are not stopped as it starts."""

        def __init__(self, *_: object, **__: object) -> None:
            self.left = {"A", "B"} - stopped_tables(spool)

        async def run(self) -> None:
            found.append(len(self.left))
            if resumed:
                withdraw_requests(spool, ["B"], only="stop")
            states = (TableProgress(table=name, state="done" if name in self.left else "planned") for name in "AB")
            write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=tuple(states)))

    monkeypatch.setattr(backfill, "SinkProcess", Process)
    source = {"project": "p", "instance": "in", "database": "d", "change_stream": "S"}
    config = validated({"source": source, "spool": {"path": str(tmp_path)}})
    stop, metrics = StopRequest(drain_timeout=1), ReaderMetrics()
    asyncio.run(backfill.delivered(config, tmp_path, stop, document, options=BackfillOptions(), metrics=metrics))
    assert found == [1, 2][:runs]
    (one,) = backfills(spool)
    assert one.progress.is_done is resumed
