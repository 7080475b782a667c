"""Reading a backfill from a scripted Spanner: each partition once, at one timestamp, within bounds."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from connector.errors import StreamError, VersionRetentionError
from connector.spanner.snapshot import result_rows, segments
from connector.spool import consumers
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import find, plans, progress_of
from connector.spool.backfill.requests import requests_of, withdraw_requests, write_request
from connector.spool.reading import Spool
from emulator import Fault, FaultKind, FaultPlan, ScriptedServer
from emulator.scenario.contents_at import contents_at
from tests.connector.spanner.snapshot.scripted import serving
from tests.spark_sink.reading.backfill.jobs import (
    InProcessJob,
    job_of,
    killed_before,
    payloads,
    read_all,
    recorded,
    uuids,
)


def expected(server: ScriptedServer, own: Spool, document: Backfill) -> dict[str, Counter[str]]:
    """The rows of the server as of the backfill's timestamp, by table."""
    rows = contents_at(server.engine.scenario, document.timestamp)
    found = {}
    for table in document.tables:
        names = [column.name for column in own.schema(table.schema_key).columns]
        texts = [{name: row.get(name) for name in names} for row in rows[table.table]]
        found[table.table] = Counter(orjson.dumps(text, option=orjson.OPT_SORT_KEYS).decode() for text in texts)
    return {table: texts for table, texts in found.items() if texts}


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_every_row_of_every_table_is_sealed_once(tmp_path: Path, dialect: str) -> None:
    with serving(dialect=dialect) as server:
        own, document = recorded(server, tmp_path)
        read_all(server, own, document)
        assert payloads(own) == expected(server, own, document)
    assert set(uuids(own).values()) == {1}
    manifests = list(own.manifests(1, own.latest()))
    assert {manifest.watermark_high for manifest in manifests} == {document.timestamp}
    report = progress_of(own, document)
    assert {table.state for table in report.tables} == {"read"}
    assert sum(table.rows for table in report.tables) == sum(uuids(own).values())


def test_a_job_that_is_killed_between_waves_reads_no_partition_twice(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        for wave in (1, 3, 2):
            killed_before(server, own, document, wave)
        read_all(server, own, document)
        assert payloads(own) == expected(server, own, document)
        sealed = [manifest.backfill for manifest in own.manifests(1, own.latest())]
    assert len({(part.table, part.plan, part.partition) for part in sealed if part}) == len(sealed)
    assert {plan.plan for plan in plans(own, document.tables).values()} == {1}


def test_a_table_that_is_stopped_is_read_further_once_it_is_resumed(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        spool, names = Spool.at(tmp_path), [table.table for table in document.tables]
        killed_before(server, own, document, 2)
        write_request(spool, names[-2:], "stop")
        read_all(server, own, document)
        one = find(spool, document.number)
        assert one is not None
        states = {table.table: table.state for table in one.progress.tables}
        assert states == {name: "stopped" if name in names[-2:] else "read" for name in names}
        assert not one.is_stopped, "what is read is still to be delivered"
        withdraw_requests(spool, names[-2:], only="stop")
        read_all(server, own, document)
        assert payloads(own) == expected(server, own, document)
    assert set(uuids(own).values()) == {1}


def test_a_table_that_is_restarted_is_read_again_at_the_same_timestamp_and_no_other(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        spool, name = Spool.at(tmp_path), document.tables[0].table
        read_all(server, own, document)
        write_request(spool, [name, "Unknown"], "restart")
        read_all(server, own, document)
        once, twice = expected(server, own, document), payloads(own)
        assert twice.pop(name) == once[name] + once.pop(name)
        assert twice == once
        assert requests_of(spool) == {"Unknown": "restart"}, "another backfill may have it"
        read_all(server, own, document)
        assert {plan.table for plan in plans(own, document.tables).values() if plan.plan > 1} == {name}


def test_an_error_of_a_table_is_its_own(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        with job_of(server, own, document) as job:
            make = job._plans._make
            failing = document.tables[1].table

            def make_but_one(snapshot: Any, index: int) -> None:
                if index == 1:
                    raise StreamError(f"cannot read table {failing}")
                make(snapshot, index)

            job._plans._make = make_but_one  # type: ignore[method-assign]
            with pytest.raises(StreamError):
                job.run(threading.Event())
        failed = {table.table: table.why for table in progress_of(own, document).tables if table.state == "failed"}
    assert failed == {failing: f"cannot read table {failing}"}


def test_a_lost_session_divides_unfinished_tables_again_at_the_same_timestamp(tmp_path: Path) -> None:
    faults = FaultPlan()
    with serving(faults=faults) as server:
        own, document = recorded(server, tmp_path)
        killed_before(server, own, document, 3)
        faults.rule(Fault(FaultKind.SESSION_EXPIRED))
        read_all(server, own, document)
        rows = expected(server, own, document)
    assert {table: set(texts) for table, texts in payloads(own).items()} == {
        table: set(texts) for table, texts in rows.items()
    }
    numbers = [plan.plan for plan in plans(own, document.tables).values()]
    assert set(numbers) == {1, 2}, "tables that were read completely keep their plan"
    assert len(uuids(own)) == sum(texts.total() for texts in rows.values()), "a row that comes twice has the same uuid"
    assert {manifest.watermark_high for manifest in own.manifests(1, own.latest())} == {document.timestamp}


def test_a_lost_session_divides_a_stopped_table_again_only_if_it_cannot_be_read_once_it_is_resumed(
    tmp_path: Path,
) -> None:
    faults = FaultPlan()
    with serving(faults=faults) as server:
        own, document = recorded(server, tmp_path)
        spool, stopped = Spool.at(tmp_path), document.tables[-1].table
        killed_before(server, own, document, 2)
        write_request(spool, [stopped], "stop")
        faults.rule(Fault(FaultKind.SESSION_EXPIRED))
        read_all(server, own, document)
        numbers = {plan.table: plan.plan for plan in plans(own, document.tables).values()}
        assert numbers[stopped] == 1
        assert 2 in numbers.values()
        withdraw_requests(spool, [stopped], only="stop")
        read_all(server, own, document)
        rows = expected(server, own, document)
    after = {plan.table: plan.plan for plan in plans(own, document.tables).values()}
    assert after == {**numbers, stopped: 2}
    assert payloads(own)[stopped] == rows[stopped], "each of its rows comes once"


def test_a_timestamp_that_is_no_longer_retained_is_reported_with_the_tables_that_are_left(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        killed_before(server, own, document, 4)
        server.engine.clock.origin += server.engine.scenario.version_retention
        with pytest.raises(VersionRetentionError, match="no longer keeps the rows"):
            read_all(server, own, document)
    report = progress_of(own, document)
    assert report.lost
    assert {table.state for table in report.tables} == {"read", "failed"}
    assert all("no longer keeps" in table.why for table in report.tables if table.state == "failed")


def test_no_wave_is_started_while_the_spool_is_full(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        consumers.register(own, "files", now=time.time_ns())
        with job_of(server, own, document, max_bytes=1) as job:
            reading = threading.Thread(target=job.run, args=(threading.Event(),))
            reading.start()
            most = 0
            while reading.is_alive():
                latest = own.latest()
                segments = own.storage.list("segments")
                most = max(most, len(segments))
                if segments:
                    consumers.record(own, "files", latest, now=time.time_ns())
                reading.join(0.05)
        assert most <= 3, "the newest epoch stays, and a wave has as many partitions as there are cores"
        partitions_in_all = sum(len(plan.partitions) for plan in plans(own, document.tables).values())
        assert own.latest() == partitions_in_all > 10
        assert len(own.storage.list("segments")) <= 3


def test_a_query_of_ones_own_that_keeps_the_spool_full_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_sink.reading.backfill.job._WARN_INTERVAL", 0.0)
    with serving() as server:
        own, document = recorded(server, tmp_path)
        consumers.register(own, "mine", now=time.time_ns())
        with job_of(server, own, document, max_bytes=1) as reading:
            thread = threading.Thread(target=reading.run, args=(threading.Event(),))
            thread.start()
            deadline, warnings = time.monotonic() + 300, ""
            while thread.is_alive():
                assert time.monotonic() < deadline
                consumers.record(own, "files", own.latest(), now=time.time_ns())
                warnings += capsys.readouterr().err
                if "consumer mine is at epoch 0" in warnings:
                    consumers.record(own, "mine", own.latest(), now=time.time_ns())
                thread.join(0.05)
        assert f"`spanner-cdc spool {own.path} --forget mine`" in warnings
        assert "consumer files" not in warnings, "a wait for the sink is no fault"


def test_a_large_partition_is_several_segments_of_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1)
    monkeypatch.setattr(segments, "BATCH_BYTES", 1)
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", 1)
    with serving(transactions=400) as server:
        own, document = recorded(server, tmp_path)
        read_all(server, own, document)
        assert payloads(own) == expected(server, own, document)
    assert max(len(manifest.files) for manifest in own.manifests(1, own.latest())) > 1


def test_segments_of_tasks_that_were_killed_are_deleted_once_the_backfill_is_done(tmp_path: Path) -> None:
    with serving() as server:
        own, document = recorded(server, tmp_path)
        with job_of(server, own, document) as job:
            job.run(threading.Event())
            left = "segments/00000000000000000003-of_a_killed_attempt-0.arrow"
            own.storage.create(left, b"rows")
            job.report(now=True)
            assert own.storage.exists(left), "a task may still write"
            consumers.register(own, "a-query-of-ones-own", now=time.time_ns())  # it has read nothing yet
            consumers.record(own, "files", own.latest(), now=time.time_ns())
            job.report(now=True)
            assert progress_of(own, document).is_done
            assert not own.storage.exists(left)


def test_a_wave_that_fails_in_the_jvm_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect, failures = InProcessJob._job, [Py4JError("SPARK_JOB_CANCELLED"), Py4JError("lost executor")]

    def fails_first(self: InProcessJob, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return collect(self, *arguments)

    monkeypatch.setattr(InProcessJob, "_job", fails_first)
    with serving() as server:
        own, document = recorded(server, tmp_path)
        read_all(server, own, document)
        assert payloads(own) == expected(server, own, document)


def test_a_wave_that_was_cancelled_for_a_signal_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()

    def cancelled(*_: Any) -> Any:
        stopping.set()
        raise Py4JError("SPARK_JOB_CANCELLED")

    monkeypatch.setattr(InProcessJob, "_job", cancelled)
    with serving() as server:
        own, document = recorded(server, tmp_path)
        with job_of(server, own, document) as job:
            job.run(stopping)
    assert own.latest() == 0
