"""Shares of windows, read from a scripted server over gRPC."""

import hmac
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from pathlib import Path
from threading import active_count

import grpc
import orjson
import pytest

from connector.core.changes import Changes
from connector.core.health import retries
from connector.core.masking.rules import ColumnRules, HashRule
from connector.core.partitions import CutPartition
from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import SECOND
from connector.core.windows import Share, Window
from connector.errors import DataLostError
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQuery
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.writing import initialize
from connector.telemetry import retrying
from connector.telemetry.retrying import retries_of_others
from emulator import Fault, FaultKind, FaultPlan, ScriptedServer
from emulator.scenario.history import PartitionMode
from emulator.scenario.scenario import Scenario, steady
from emulator.scripted.fault_plan import RECOVERABLE
from spark_sink.reading.windows import share_reader
from spark_sink.reading.windows.task import read_share
from tests.property.reading.whole_reader import of_change, of_record
from tests.spark_sink.reading.windows.shared_reading import read_whole, setup_of, windows

ORIGIN = 1_790_000_000 * SECOND + 123_456_789


@pytest.mark.long
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_shares_of_windows_are_together_what_was_committed_through_faults(dialect: str, mode: PartitionMode) -> None:
    scenario = Scenario.generate(
        11,
        origin=ORIGIN,
        seconds=20,
        dialect="postgresql" if dialect == "postgresql" else "googlesql",
        mode=mode,
        churn=20,
        value_capture_type=None,
    )
    history = scenario.history
    quick = [kind for kind in RECOVERABLE if kind not in (FaultKind.SILENCE, FaultKind.SLOWNESS, FaultKind.LATENESS)]
    faults = FaultPlan(11, share=0.1, kinds=quick)
    with ScriptedServer.started(scenario, begins=history.horizon + SECOND, faults=faults) as server:
        read = [
            of_record(record)
            for changes, _ in windows(setup_of(server), history.origin, history.horizon, length=5 * SECOND, most=3)
            for record in changes.records()
        ]
    assert read == [of_change(change) for change in history.in_commit_order()]
    assert sum(faults.struck.values()) > 0


def a_backlog(seconds: int = 10, partitions: int = 4, rate: float = 500.0) -> Scenario:
    return steady(
        3,
        origin=time.time_ns() - (seconds + 10) * SECOND,
        seconds=seconds,
        partitions=partitions,
        records_per_second_per_partition=rate,
        mods_per_record=20,
    )


@pytest.fixture(scope="module")
def backlog() -> Iterator[ScriptedServer]:
    """Serves a backlog of many times the budget of the tests."""
    with ScriptedServer.started(a_backlog(), begins=time.time_ns()) as server:
        yield server


def whole(server: ScriptedServer) -> tuple[Window, Share]:
    history = server.engine.scenario.history
    return (
        Window(1, history.origin - 1, history.horizon),
        Share(0, (CutPartition(INITIAL_TOKEN, history.origin),)),
    )


@pytest.mark.long
def test_a_report_says_what_was_read_of_each_partition(backlog: ScriptedServer) -> None:
    window, share = whole(backlog)
    changes, report = read_whole(setup_of(backlog), window, share)
    assert report.share == 0
    assert set(report.followed) == {at.token for at in report.cut} == set(report.bytes_of)
    assert report.finished == (INITIAL_TOKEN,)
    assert sum(report.bytes_of.values()) >= report.bytes == changes.size > 0
    assert report.queries >= 2 * len(report.cut) + 1
    assert report.seconds > 0


@pytest.mark.long
def test_what_is_read_ahead_of_a_caller_that_waits_is_bounded(
    backlog: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_reader, "BUDGET", 256 * 1024)
    received = 0
    weigh = share_reader.WeighedQueries.count

    def counted(self: share_reader.WeighedQueries, token: str, size: int) -> None:
        nonlocal received
        received += size
        weigh(self, token, size)

    monkeypatch.setattr(share_reader.WeighedQueries, "count", counted)
    window, share = whole(backlog)
    taken = most = 0
    for item in read_share(setup_of(backlog), window, share):
        if isinstance(item, Changes):
            time.sleep(0.01)
            taken += item.size
            most = max(most, received - taken)
    # As much as may be ahead, ready and handed on, and a message of each partition.
    assert most < 4 * 256 * 1024 + 4 * 1024 * 1024 < received / 3


def test_a_caller_that_stops_taking_ends_the_reader(backlog: ScriptedServer) -> None:
    window, share = whole(backlog)
    before = active_count()
    with closing(read_share(setup_of(backlog), window, share)) as items:
        next(items)
    assert active_count() == before


def test_a_share_that_cannot_be_read_is_reported_with_cause_and_partitions_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "_LOOK", 0.02)
    monkeypatch.setattr(retrying, "REPORTED_AFTER", 0)
    monkeypatch.setattr(retries, "_REPEATED", 0)
    spool = Spool.at(tmp_path / "spool")
    initialize(spool, SourceName(project="p", instance="ii", database="d", change_stream="s"), 1, "now", [])
    with ScriptedServer.started(a_backlog(1, 1, 1.0), begins=time.time_ns()) as server:
        setup, (window, share) = setup_of(server, spool.path), whole(server)
        server.refuse(grpc.StatusCode.UNAVAILABLE, "gone")
        with ThreadPoolExecutor(1) as threads:
            reading = threads.submit(lambda: list(read_share(setup, window, share)))
            while not (found := retries_of_others(spool, time.time_ns() + 40 * SECOND)):
                time.sleep(0.02)
            server.accept()
            reading.result()
    (retry,) = found
    assert (retry.what, retry.parts) == (retries.SPANNER, 1)
    assert (
        str(retry.cause) == f"Spanner does not answer at {server.host} (UNAVAILABLE: no session can be created: gone)"
    )
    assert retries_of_others(spool, time.time_ns() + 40 * SECOND) == []


def test_an_error_that_is_not_transient_is_raised_to_the_caller(backlog: ScriptedServer) -> None:
    faults = FaultPlan().rule(Fault(FaultKind.EXPIRED_START))
    with ScriptedServer.started(a_backlog(1, 1, 1.0), begins=time.time_ns(), faults=faults) as server:
        window, share = whole(server)
        with pytest.raises(DataLostError):
            list(read_share(setup_of(server), window, share))


def test_what_is_excluded_or_hashed_is_in_no_record_of_a_task_and_in_no_late_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = share_reader.WeighedQueries.read

    async def repeating(self: share_reader.WeighedQueries, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        """Returns the first records once more behind all others, where they are late."""
        first: list[Item] = []
        async with aclosing(read(self, query)) as messages:
            async for items in messages:
                first = first or [item for item in items if isinstance(item, Changes)]
                yield items
        if first:
            yield first

    spool = Spool.at(tmp_path / "spool")
    initialize(spool, SourceName(project="p", instance="ii", database="d", change_stream="s"), 1, "now", [])
    rules = ColumnRules(("Accounts.Owner",), (HashRule("Accounts.Balance", "0123456789-a-salt"),))
    with ScriptedServer.started(a_backlog(2, 2, 20.0), begins=time.time_ns()) as server:
        window, share = whole(server)
        plain, _ = read_whole(setup_of(server), window, share)
        monkeypatch.setattr(share_reader.WeighedQueries, "read", repeating)
        masked, _ = read_whole(setup_of(server, spool.path, rules=rules), window, share)

    def digest(text: str) -> str:
        return hmac.new(b"0123456789-a-salt", f"INT64\n{text}".encode(), "sha256").hexdigest()

    late = [path.read_text() for path in (tmp_path / "spool/late").iterdir()]
    before = [mod for record in plain.records() for mod in record.mods]
    kept = [mod for record in masked.records() for mod in record.mods]
    assert [mod.keys for mod in kept] == [mod.keys for mod in before]
    values = [orjson.loads(mod.new_values) for mod in before]
    assert [orjson.loads(mod.new_values) for mod in kept] == [
        {"Active": value["Active"], "Balance": digest(value["Balance"])} for value in values
    ]
    hidden = {text for value in values for text in (value["Owner"], f'"{value["Balance"]}')}
    assert late
    assert all("AccountId" in text for text in late)
    assert not [text for text in late for value in hidden if value in text or value.replace('"', '\\"') in text]
