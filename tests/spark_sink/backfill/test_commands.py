"""What the commands record, refuse and report of backfills, before Spark is started."""

import json
import time
from pathlib import Path

import pytest

from connector.backfill.documents import Progress, TableProgress
from connector.backfill.records import backfills, write_progress
from connector.commands.reports import spool_report, spool_text
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.gaps import GapRecord, _Gaps
from connector.spool.reading import Spool, to_json
from emulator import Workload
from tests.connector.backfill.builders import T, recorded, spool_with_start
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit


def test_a_start_beside_backfill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "source: {project: p, instance: in, database: d, change_stream: E, backfill: true, start: '-5m'}"
    )
    done = run("read", tmp_path / "c.yaml")
    assert done.code == 2
    assert "with backfill the start is the backfill's timestamp" in done.complaint


@pytest.mark.emulator
def test_read_records_a_backfill_whose_timestamp_is_right_before_the_start(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    config = configuration(tmp_path, sample, source={"backfill": True, "end": "now"})
    Workload(sample, seed=155).run(mods=20)
    assert run("read", config).code == 0
    spool = Spool.at(tmp_path / "spool")
    (one,) = backfills(spool)
    assert one.document.timestamp == spool.header().start - 1
    assert one.document.timestamp % 1000 == 0
    assert {table.table for table in one.document.tables} == {table.name for table in sample.tables}
    assert run("read", config).code == 0
    assert len(backfills(spool)) == 1, "it is recorded once"

    report = json.loads(run("spool", tmp_path / "spool", "--json").out)["backfills"]
    assert [table["state"] for table in report[0]["tables"]] == ["planned"] * len(sample.tables)
    other = run("backfill", config, "--table", "Singers")
    assert other.code == 2
    assert "is not finished: run `spanner-cdc backfill CONFIG` without --table" in other.complaint


@pytest.mark.emulator
def test_a_later_backfill_of_a_table_that_is_not_watched_is_refused(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    done = run("backfill", configuration(tmp_path, sample), "--table", "Nothing*")
    assert done.code == 2
    assert "--table: 'Nothing*' matches no table that change stream Everything watches" in done.complaint


@pytest.mark.emulator
def test_a_backfill_beside_a_start_of_ones_own_needs_a_spool(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=156)
    workload.run(mods=20)
    start = format_rfc3339(workload.committed[0].commit_timestamp_ns)
    done = run("backfill", configuration(tmp_path, sample, source={"start": start}))
    assert done.code == 2
    assert "a backfill decides where a new spool starts" in done.complaint
    config = configuration(tmp_path, sample, source={"start": start, "end": last_commit(workload)})
    assert run("read", config).code == 0
    with_spool = run("backfill", config, "--table", "Nothing*")
    assert "--table" in with_spool.complaint


def test_a_gap_is_reported_with_the_tables_that_were_read_since(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    gap = GapRecord(epoch=7, watermark_low=T, watermark_high=T + SECOND, reason="restarted", recorded_at=T)
    spool.storage.replace("gaps.json", to_json(_Gaps(gaps=(gap,))))
    assert "`spanner-cdc backfill CONFIG` reads the tables again" in spool_text(spool_report(spool))
    recorded(spool, header, "A", "B", at=T + 2 * SECOND)
    (one,) = backfills(spool)
    tables = (TableProgress(table="A", state="done", rows=3), TableProgress(table="B", state="failed", why="too old"))
    write_progress(one.spool, Progress(updated=time.time_ns(), tables=tables))
    text = spool_text(spool_report(spool))
    assert "read again by a backfill since, except for rows deleted within it: A" in text
    assert "1 of 2 tables done" in text
    assert "B: failed, 0 of ? partitions, 0 rows, 0 bytes: too old" in text
