"""Records, refusals and reports of backfills by the commands, before Spark is started."""

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import orjson
import pytest

from connector.cli.spool_reports import spool_report, spool_text
from connector.config import Config, SourceConfig, validated
from connector.config.backfill_rules import BackfillRules
from connector.config.sections import Tables
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.backfill import _lost
from connector.daemon.backfill_recorder import BackfillRecorder
from connector.daemon.backfill_requests import Requests
from connector.daemon.due_backfills import due_at_start, due_by_command, header_for_backfill
from connector.daemon.read import _Start, _with_backfill
from connector.errors import ConfigurationError, SpoolError, SpoolInUseError, VersionRetentionError
from connector.log import Log
from connector.reader.change_stream import OpenStream, opened
from connector.spanner.relations import Relations
from connector.spanner.versions import RowVersions
from connector.spool import consumers
from connector.spool.backfill.documents import Backfill, BackfillAnnouncement, BackfillProgress, TableProgress
from connector.spool.backfill.records import (
    backfills,
    mark_lost,
    record,
    spool_of,
    unfinished_tables,
    write_progress,
)
from connector.spool.backfill.requests import write_request
from connector.spool.gaps import GapRecord, _Gaps
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool, SpoolHeader, to_json
from connector.spool.writing import checkpoint, initialize
from emulator import Workload
from emulator.scenario.contents_at import contents_at
from tests.connector.spanner.snapshot.scripted import middle, serving, source_of
from tests.connector.spool.backfill.builders import T, recorded, spool_with_start
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit
from tests.spark_sink.reading.backfill.jobs import job_of, killed_before, payloads, read_all
from tests.spark_sink.reading.backfill.jobs import recorded as scripted_backfill


def test_a_start_beside_backfill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "source: {project: p, instance: in, database: d, change_stream: E, backfill: true, start: '-5m'}"
    )
    done = run("read", tmp_path / "c.yaml")
    assert done.code == 2
    assert "with backfill the start is the backfill's timestamp" in done.complaint


@pytest.mark.long
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
    assert f"is not finished: run `spanner-cdc backfill {config}` without --table" in other.complaint


@pytest.mark.emulator
def test_another_start_after_a_backfill_is_refused_because_changes_would_be_missing(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    spool = Spool.at(tmp_path / "spool")
    source = SourceName(
        project=sample.project,
        instance=sample.instance,
        database=sample.database_id,
        change_stream=sample.change_stream,
    )
    header = initialize(spool, source, T + 1, "now", (), default_schema="d")
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    recorded(spool, header, "A")
    for command in ("read", "backfill"):
        done = run(command, config)
        assert done.code == 2
        assert "has a backfill, which the changes from 2026-03-01T10:00:30.000001001Z on must follow" in done.complaint
    assert spool.header() == header


@pytest.mark.emulator
def test_a_later_backfill_of_a_table_that_is_not_watched_is_refused(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    done = run("backfill", configuration(tmp_path, sample), "--table", "Nothing*")
    assert done.code == 2
    assert "--table: 'Nothing*' matches no table that change stream Everything watches" in done.complaint


@pytest.mark.long
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
    write_progress(one.spool, BackfillProgress(updated=time.time_ns(), tables=tables))
    text = spool_text(spool_report(spool))
    assert " days behind)" in text
    assert "read again by a backfill since, except for rows deleted within it: A" in text
    assert "1 of 2 tables done" in text
    assert "B: failed, 0 of ? partitions, 0 rows, 0 bytes: too old" in text


async def due(
    source: SourceConfig,
    spool: Spool,
    header: SpoolHeader,
    *,
    period: str = "1h",
    table_bytes: Mapping[str, int] = MappingProxyType({}),
) -> Backfill | None:
    async with opened(source, started=True) as stream:
        recorder = BackfillRecorder(spool, header, stream, RowVersions(period, table_bytes), requests_of(stream))
        return next(iter(due_at_start(recorder)), None)


def recorder_of(spool: Spool, stream: OpenStream) -> BackfillRecorder:
    return BackfillRecorder(spool, spool.header(), stream, RowVersions("1h", {}), requests_of(stream))


def requests_of(stream: OpenStream) -> Requests:
    no_relations = Relations((), {}, frozenset(), {}, frozenset())
    return Requests(lambda: stream.now, lambda _: stream.stream.tables, lambda: no_relations)


def test_a_backfill_whose_timestamp_is_lost_is_continued_with_the_tables_that_are_left(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool = Spool.at(tmp_path)
        header = spool.header()
        assert asyncio.run(due(source_of(server), spool, header)) == document
        names = [table.table for table in document.tables]
        report = tuple(TableProgress(table=name, state="read") for name in names[:-1])
        lost = BackfillProgress(updated=T, tables=(*report, TableProgress(table=names[-1], state="failed")), lost=True)
        done = tuple(table.model_copy(update={"state": "done"}) for table in report[:-1])
        write_progress(own, lost.model_copy(update={"tables": (*done, *lost.tables[-2:])}))
        again = asyncio.run(due(source_of(server), spool, header))
        assert again is not None
        assert (again.number, again.continues, again.why) == (2, 1, "start")
        assert again.timestamp > document.timestamp
        assert {table.table for table in again.tables} == set(names[-2:])


def test_a_backfill_that_is_not_done_is_continued_after_a_later_repair(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool, source = Spool.at(tmp_path), source_of(server)
        repair = record(spool, spool.header(), (), timestamp=lambda: T, why="repair", dialect=document.dialect, now=T)
        assert backfills(spool)[-1].progress.is_done
        assert asyncio.run(due(source, spool, spool.header())) == document
        states = tuple(TableProgress(table=table.table, state="failed") for table in document.tables)
        write_progress(own, BackfillProgress(updated=T, tables=states, lost=True))
        again = asyncio.run(due(source, spool, spool.header()))
        assert again is not None
        assert (again.number, again.continues) == (repair.number + 1, document.number)
        assert asyncio.run(due(source, spool, spool.header())) == again


def test_backfills_of_different_tables_are_unfinished_at_the_same_time(tmp_path: Path) -> None:
    with serving() as server:
        tables = [table.name for table in server.engine.scenario.tables]
        spool, source = Spool.at(tmp_path), source_of(server)
        initialize(spool, source.name, middle(server) // 1000 * 1000 + 1, "now", [], default_schema="d")

        def command(
            *patterns: str, left: tuple[int, ...] = (1, 2), is_first: bool = True, **sink: object
        ) -> Backfill | None:
            config = validated({"source": source.name.model_dump(), "spool": {"path": str(tmp_path)}, **sink})
            return asyncio.run(due_by(config.model_copy(update={"source": source}), spool, patterns, left, is_first))

        first, second = command(tables[0]), command(*tables[1:3])
        assert first is not None
        assert second is not None
        assert [one.document for one in backfills(spool)] == [first, second]
        assert second.timestamp >= first.timestamp
        assert command(tables[0]) == first, "it is continued"
        assert command() == first
        assert command(left=(2,), is_first=False) == second
        assert command(left=(), is_first=False) is None, "a command that has finished others records no new one"
        assert command(left=(7,), is_first=False) is None, "nor does it finish those that others have begun since"
        assert len(backfills(spool)) == 2
        with pytest.raises(ConfigurationError, match=f"backfill 2 of {', '.join(sorted(tables[1:3]))} is not finished"):
            command(*tables[2:])
        if len(tables) > 3:
            with pytest.raises(ConfigurationError, match="backfill 1 into another Spanner database is not finished"):
                command(tables[3], sink={"type": "spanner", "instance": "i", "database": "e"})

        async def at_start() -> list[Backfill]:
            async with opened(source, started=True) as stream:
                return due_at_start(recorder_of(spool, stream))

        assert asyncio.run(at_start()) == [first, second]
        write_request(spool, [tables[0]], "stop")
        assert asyncio.run(at_start()) == [second], "one of which all tables are stopped holds up no other"
        assert command() == second
        write_request(spool, tables[1:3], "stop")
        with pytest.raises(SpoolError, match="backfill 1 and 2 is not finished: its tables"):
            command()
        with pytest.raises(SpoolError, match="backfill 2 is not finished: its tables"):
            command(*tables[1:3])


def test_a_backfill_is_continued_by_one_other_at_most(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool, source = Spool.at(tmp_path), source_of(server)
        states = tuple(TableProgress(table=table.table, state="failed") for table in document.tables)
        write_progress(own, BackfillProgress(updated=T, tables=states, lost=True))
        (stale,) = backfills(spool)
        again = asyncio.run(due(source, spool, spool.header()))
        assert again is not None
        assert again.continues == 1

        async def continued() -> Backfill:
            async with opened(source, started=True) as stream:
                return recorder_of(spool, stream).continued(stale)

        with pytest.raises(SpoolError, match="is continued by backfill 2"):
            asyncio.run(continued())
        assert len(backfills(spool)) == 2


def test_a_recording_that_was_withdrawn_meanwhile_is_none(tmp_path: Path) -> None:
    """It was paused for so long that its lock in a bucket was taken over: sinks have remembered nothing since."""
    spool, header = spool_with_start(tmp_path)

    def fill(own: Spool, document: Backfill) -> None:
        own.storage.delete("announced.json")

    with pytest.raises(SpoolInUseError, match="took so long that it was withdrawn"):
        record(spool, header, [], timestamp=lambda: T, why="repair", dialect="googlesql", now=T, after=0, fill=fill)
    assert backfills(spool) == []


async def due_by(
    config: Config, spool: Spool, patterns: tuple[str, ...], left: tuple[int, ...], is_first: bool
) -> Backfill | None:
    async with opened(config.source, started=True) as stream:
        header = header_for_backfill(spool, config, stream)
        recorder = BackfillRecorder(spool, header, stream, RowVersions("1h", {}), requests_of(stream))
        return due_by_command(recorder, config, patterns, left, is_first=is_first)


def test_a_repair_that_was_killed_while_it_was_recorded_is_withdrawn_at_the_next_start(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        done = tuple(TableProgress(table=table.table, state="done") for table in document.tables)
        write_progress(own, BackfillProgress(updated=T, tables=done))
        spool, source = Spool.at(tmp_path), source_of(server).model_copy(update={"backfill": BackfillRules()})
        spool_of(spool, 2).storage.replace("announced.json", to_json(BackfillAnnouncement(tables=("A",))))
        assert unfinished_tables(spool) == {"A"}, "the sink spanner would wait for ever"
        config = validated({"source": source.name.model_dump()}).model_copy(update={"source": source})
        start, due = _Start(spool, spool.header(), checkpoint(spool, spool.header()), None), list[Backfill]()

        async def started() -> None:
            async with opened(source, started=True) as stream:
                await _with_backfill(start, stream, config, due.append)

        asyncio.run(started())
        assert (unfinished_tables(spool), due) == (frozenset(), [])


def test_a_table_that_is_no_longer_watched_is_omitted_from_the_rest_of_a_backfill(tmp_path: Path) -> None:
    with serving() as server:
        _, document = scripted_backfill(server, tmp_path)
        spool = Spool.at(tmp_path)
        name = document.tables[0].table
        source = source_of(server).model_copy(update={"tables": Tables(exclude=(name,))})
        again = asyncio.run(due(source, spool, spool.header()))
        assert again is not None
        assert (again.number, again.continues) == (2, 1)
        assert {table.table for table in again.tables} == {table.table for table in document.tables} - {name}
        assert unfinished_tables(spool) == {table.table for table in again.tables}


def test_tables_that_are_left_are_read_at_a_new_timestamp_with_conditions_that_have_changed(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool, names = Spool.at(tmp_path), [table.table for table in document.tables]
        states = (
            TableProgress(table=names[0], state="done"),
            *(TableProgress(table=name, state="failed") for name in names[1:]),
        )
        write_progress(own, BackfillProgress(updated=T, tables=states))

        def again(where: dict[str, str]) -> Backfill | None:
            source = source_of(server).model_copy(update={"backfill": BackfillRules(where=where)})
            return asyncio.run(due(source, spool, spool.header()))

        assert again({names[0]: "it is done"}) == document
        changed = again({names[1]: "TRUE"})
        assert changed is not None
        assert (changed.number, changed.continues, changed.conditions) == (2, 1, {names[1]: "TRUE"})
        assert {table.table for table in changed.tables} == set(names[1:])
        assert again({names[1]: "TRUE"}) == changed
        assert asyncio.run(due(source_of(server), spool, spool.header())) == changed, "no rules are no new ones"


def test_a_backfill_that_is_older_than_the_retention_is_continued_at_a_new_timestamp_at_once(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool, source = Spool.at(tmp_path), source_of(server)
        read = tuple(TableProgress(table=table.table, state="read") for table in document.tables)
        write_progress(own, BackfillProgress(updated=T, tables=read))
        waiting = asyncio.run(due(source, spool, spool.header(), period="1s"))
        assert waiting == document, "what is read has only to be delivered"
        write_progress(
            own, BackfillProgress(updated=T, tables=(*read[:-1], read[-1].model_copy(update={"state": "reading"})))
        )
        again = asyncio.run(due(source, spool, spool.header(), period="1s"))
        assert again is not None
        assert (again.number, again.continues) == (2, 1)


def test_tables_that_the_retention_has_cut_off_are_read_at_a_new_timestamp_and_the_others_stay_done(
    tmp_path: Path,
) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool, source = Spool.at(tmp_path), source_of(server)
        killed_before(server, own, document, 4)
        server.engine.clock.origin += server.engine.scenario.version_retention
        with job_of(server, own, document) as job:
            with pytest.raises(VersionRetentionError):
                job.run(threading.Event())
            consumers.record(own, "files", own.latest(), now=time.time_ns())  # the sink delivers what was read
            job.report(now=True)
        (first,) = backfills(spool)
        line = str(_lost(first))
        assert "Spanner no longer retains the rows as of" in line
        assert "Run it again: those tables are read at a new timestamp, without a gap" in line
        again = asyncio.run(due(source, spool, spool.header()))
        assert again is not None
        done = {table.table for table in first.progress.tables if table.state == "done"}
        left = {table.table for table in again.tables}
        assert done
        assert left == {table.table for table in document.tables} - done
        assert again.timestamp > document.timestamp >= spool.header().start - 1, "the stream has every change between"
        second = spool_of(spool, again.number)
        read_all(server, second, again)
        rows = contents_at(server.engine.scenario, again.timestamp)
        columns = {
            table.table: [column.name for column in second.schema(table.schema_key).columns] for table in again.tables
        }
        wanted = {
            table: sorted(
                orjson.dumps({name: row.get(name) for name in columns[table]}, option=orjson.OPT_SORT_KEYS).decode()
                for row in rows[table]
            )
            for table in left
        }
        found = payloads(second)
        assert {table: sorted(found.get(table, {})) for table in left} == wanted


def test_a_backfill_that_its_sink_has_given_up_is_continued_with_the_reason(tmp_path: Path) -> None:
    with serving() as server:
        own, document = scripted_backfill(server, tmp_path)
        spool, source = Spool.at(tmp_path), source_of(server)
        names = [table.table for table in document.tables]
        mark_lost(own, "its rows are too old for the sink", now=T)
        mark_lost(own, "another reason, later", now=T)
        states = (
            TableProgress(table=names[0], state="done"),
            *(TableProgress(table=n, state="read") for n in names[1:]),
        )
        write_progress(own, BackfillProgress(updated=T, tables=states))
        (one,) = backfills(spool)
        assert str(_lost(one)).startswith("backfill 1: its rows are too old for the sink; not done: ")
        assert "can only be read at a new timestamp" in spool_text(spool_report(spool))
        again = asyncio.run(due(source, spool, spool.header()))
        assert again is not None
        assert (again.number, again.continues, {table.table for table in again.tables}) == (2, 1, set(names[1:]))
        assert unfinished_tables(spool) == set(names[1:])


def test_a_backfill_that_may_outlast_the_retention_is_reported_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Log, "warning", lambda _, text, **fields: said.append(text))
    with serving() as server:
        _, document = scripted_backfill(server, tmp_path / "sized")
        sizes = {table.table: 10**12 for table in document.tables}
        for folder, table_bytes in (("unknown", {}), ("huge", sizes)):
            spool = Spool.at(tmp_path / folder)
            header = initialize(spool, source_of(server).name, document.timestamp + 1, "now", [], default_schema="d")
            asyncio.run(due(source_of(server), spool, header, table_bytes=table_bytes))
            assert ["set a longer version_retention_period first" in text for text in said] == [True] * bool(
                table_bytes
            )
