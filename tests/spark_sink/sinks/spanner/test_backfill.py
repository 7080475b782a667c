"""Every row first, then every change: a backfill into another Spanner database."""

import time
from pathlib import Path

import pytest
from google.cloud.spanner_v1.keyset import KeySet

from connector.config.address import DatabaseAddress
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.spool.backfill.documents import BackfillAnnouncement, BackfillProgress, TableProgress
from connector.spool.backfill.records import spool_of, write_progress
from connector.spool.reading import to_json
from emulator import SampleDatabase, Workload
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.spanner.awaited_backfills import AwaitedBackfills
from spark_sink.sinks.spanner.config import Applying, SpannerConfig
from spark_sink.sinks.spanner.source import SpannerPlace, SpannerSinkReader
from spark_sink.sources.changes.read_limits import ReadMaxBytes
from tests.connector.spool.backfill.builders import recorded, spool_with_start
from tests.integration.commands import Background, configuration, run
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.samples import SPARK, empty, rows_of
from tests.spark_sink.spools import START, SpoolMaker, record


def config_of(
    folder: Path,
    source: SampleDatabase,
    replica: SampleDatabase,
    end: str | None,
    reader: str = "process",
    **sink: object,
) -> Path:
    return configuration(
        folder,
        source,
        source={"start": "now", "backfill": True, "reader": reader, **({"end": end} if end else {})},
        spark={**SPARK, "checkpoint": str(folder / "checkpoint")},
        sink={"type": "spanner", "database": replica.database_id, "dead_letters": str(folder / "dead"), **sink},
    )


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("dialect", [pytest.param("googlesql", marks=pytest.mark.slow), "postgresql"])
def test_rows_from_before_and_changes_from_meanwhile_and_after_make_both_databases_equal(
    database: MakeDatabase, dialect: str, tmp_path: Path
) -> None:
    """All types of columns, interleaved tables, whose rows come after their parents; the end is reached with code 0.

    One dialect is read in a process, as CI shows it between servers of Omni, the other on executors.
    """
    reader = "process" if dialect == "googlesql" else "executors"
    mode, capture = ("rows", "NEW_ROW") if dialect == "googlesql" else ("transactions", "NEW_VALUES")
    source, replica = database(dialect=dialect, value_capture_type=capture), database(dialect=dialect)
    empty(replica)
    workload = Workload(source, seed=5, average_size=8)
    workload.run(mods=150)
    end = time.time_ns() + 60 * SECOND
    config = config_of(tmp_path, source, replica, format_rfc3339(end), reader, mode=mode, create_tables=True)
    with Background("run", config, log=tmp_path / "log") as service:
        service.await_log("backfill recorded")
        assert workload.run(mods=60, seconds=(end - time.time_ns()) / SECOND - 5), "nothing is written meanwhile"
        done = service.wait(timeout=400)
    assert done.code == 0, done.err
    assert "changes are applied once the backfill is done" in done.err
    assert not (tmp_path / "dead").exists()
    assert rows_of(replica) == rows_of(source)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("reader", ["process", "executors"])
def test_a_backfill_that_cannot_be_done_ends_the_service_with_its_reason(
    reader: str, database: MakeDatabase, tmp_path: Path
) -> None:
    """A row may refer to one that comes later, or that is not there yet when the sink is started."""
    source, replica = database(), database()
    empty(replica)
    source.run_ddl(
        "CREATE TABLE Staff (Id INT64, Chief INT64, FOREIGN KEY (Chief) REFERENCES Staff (Id)) PRIMARY KEY (Id)"
    )
    with source.database.batch() as batch:
        batch.insert("Staff", ("Id", "Chief"), [(1, 1)])
    config = config_of(tmp_path, source, replica, None, reader, create_tables=True)
    with Background("run", config, log=tmp_path / "log") as service:
        done = service.wait(timeout=300)
    assert done.code == 1, done.err
    assert "a foreign key of table Staff of the destination leads back to Staff" in done.err
    assert "Drop the foreign key there, and create it again after the backfill." in done.err
    checked = run("check", config)
    assert checked.code != 0
    assert "source.backfill: a foreign key of table Staff" in checked.err + checked.out.decode()


@pytest.mark.long
@pytest.mark.spark
def test_a_later_backfill_of_a_child_finds_the_parents_whose_changes_wait(
    database: MakeDatabase, tmp_path: Path
) -> None:
    tables = {"Parents": ("Id",), "Children": ("Id", "Number")}
    source, replica = database(), database()
    empty(replica)
    for one in (source, replica):
        one.run_ddl(
            "CREATE TABLE Parents (Id INT64) PRIMARY KEY (Id)",
            "CREATE TABLE Children (Id INT64, Number INT64) PRIMARY KEY (Id, Number), INTERLEAVE IN PARENT Parents",
        )
    config = configuration(
        tmp_path,
        source,
        source={"start": "now", "end": "now"},
        spark={**SPARK, "checkpoint": str(tmp_path / "checkpoint")},
        sink={"type": "spanner", "database": replica.database_id, "dead_letters": str(tmp_path / "dead")},
    )
    assert run("read", config).code == 0
    with source.database.batch() as batch:
        batch.insert("Parents", tables["Parents"], [(1,)])
        batch.insert("Children", tables["Children"], [(1, 1)])
    filled = run("backfill", config, "--table", "Children")
    assert filled.code == 0, filled.err
    done = run("run", config)
    assert done.code == 0, done.err
    assert not (tmp_path / "dead").exists(), filled.err
    for table, columns in tables.items():
        found = []
        for one in (source, replica):
            with one.database.snapshot() as snapshot:
                found.append([list(row) for row in snapshot.read(table, columns, KeySet(all_=True))])
        assert found[0] == found[1] != []


def test_changes_do_not_wait_for_a_repair_that_was_killed_while_it_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_sink.sinks.spanner.awaited_backfills._INTERVAL", 0)
    monkeypatch.setattr("connector.spool.backfill.killed_recordings.INTERVAL", 0)
    spool, _ = spool_with_start(tmp_path)
    awaited = AwaitedBackfills(spool, "spanner")
    spool_of(spool, 1).storage.replace("announced.json", to_json(BackfillAnnouncement(tables=("A",))))
    with spool.storage.locked("backfills/recording.lock", "it is being recorded"):
        assert [awaited.are_awaited() for _ in range(3)] == [True] * 3
    assert not awaited.are_awaited()


def test_no_change_is_applied_while_a_backfill_is_not_done(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_sink.sinks.spanner.awaited_backfills._INTERVAL", 0)
    maker = SpoolMaker(tmp_path / "spool")
    maker.fill(1)
    place = SpannerPlace(DatabaseAddress("p", "i", "d", None, None), "tag", str(tmp_path / "dead"))
    applying = Applying.of(SpannerConfig.model_validate({"database": "d"})).to_text()
    reader = SpannerSinkReader(Feed.at(maker.path), "spanner", place, applying)
    start = reader.initialOffset()
    recorded(maker.spool, maker.spool.header(), "A", at=START)
    for _ in range(2):
        assert reader.latestOffset(start, ReadMaxBytes(10**9)) == start
    assert reader.partitions(start, start) == [], "Spark runs an empty micro-batch first"
    assert capfd.readouterr().err.count("changes are applied once the backfill is done; not done yet: A") == 1
    write_progress(
        spool_of(maker.spool, 1), BackfillProgress(updated=START, tables=(TableProgress(table="A", state="done"),))
    )
    assert reader.latestOffset(start, ReadMaxBytes(10**9)) != start


def test_epochs_without_rows_wait_for_rows_or_the_end_of_their_minute_or_of_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch of what a stream back has skipped; writing its position would make the next one."""
    maker = SpoolMaker(tmp_path / "spool")
    place = SpannerPlace(DatabaseAddress("p", "i", "d", None, None), "tag", str(tmp_path / "dead"))
    applying = Applying.of(SpannerConfig.model_validate({"database": "d"})).to_text()
    reader = SpannerSinkReader(Feed.at(maker.path), "spanner", place, applying)
    now = minute = START + MINUTE - START % MINUTE
    monkeypatch.setattr(reader, "_clock", lambda: now)

    def end(start: dict[str, object]) -> object:
        return reader.latestOffset(start, ReadMaxBytes(10**9))["epoch"]

    start = reader.initialOffset()
    for high in (minute + SECOND, minute + 2 * SECOND):
        maker.seal(high=high)
    assert end(start) == 2, "it ends the minute before"
    start = reader.latestOffset(start, ReadMaxBytes(10**9))
    maker.seal(high=minute + 3 * SECOND)
    assert end(start) == 2
    maker.seal(record(minute + 4 * SECOND, [1]))
    assert end(start) == 4
    start = reader.latestOffset(start, ReadMaxBytes(10**9))
    maker.seal(high=minute + 5 * SECOND)
    assert end(start) == 4
    maker.seal(high=minute + MINUTE - 1)
    assert end(start) == 6
    start = reader.latestOffset(start, ReadMaxBytes(10**9))
    maker.seal(high=minute + MINUTE + 1)
    assert end(start) == 6
    now = minute + 2 * MINUTE + 1
    assert end(start) == 7, "a reader that was stopped seals none that ends the minute"
    start = reader.latestOffset(start, ReadMaxBytes(10**9))
    maker.seal(high=now + 1, final=True)
    assert end(start) == 8
