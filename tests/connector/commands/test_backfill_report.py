"""The progress of a backfill: a bar on a terminal, lines elsewhere."""

import asyncio
import io
import logging
import sys
from pathlib import Path

import pytest

from connector import log
from connector.backfill.documents import Progress, TableProgress
from connector.backfill.records import spool_of, write_progress
from connector.commands import backfill_report
from connector.commands.backfill_report import bar, reported
from connector.log import Log, terminal
from tests.connector.backfill.builders import T, recorded, spool_with_start


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
    monkeypatch.setattr(backfill_report, "_REDRAW", 0.0)
    spool, header = spool_with_start(tmp_path)
    document = recorded(spool, header, "A")
    tables = (TableProgress(table="A", state="reading", partitions=1, planned=4, rows=1000, bytes=10**6),)
    write_progress(spool_of(spool, 1), Progress(updated=T, tables=tables))
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
