"""A server that sends late records: `read` and `tail` stop with one line, or `read` keeps them as dead letters."""

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import orjson
import pytest

from connector.core.health.alarms import alarms
from connector.core.records import DataChangeRecord, HeartbeatRecord, Mod, PartitionStartRecord
from connector.daemon.states.report import facts_of
from connector.errors import StreamError
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from connector.spool.late_store import late_report
from connector.spool.reading import Spool
from emulator.workload.tables import Dialect
from tests.connector.builders import record
from tests.emulator.scripted.scripted_stream import ORIGIN, at
from tests.integration.commands import manifests
from tests.peers.histories import split
from tests.peers.served import daemon_reads, served, singers_of_spool, tailed

LATE = record(commit_timestamp=at(8), server_transaction_id="too late")
DIALECTS: list[Dialect] = ["googlesql", "postgresql"]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a record of 8 s after the first record of `left` from 9 s on."""
    honest = PartitionQueries.read

    async def read(self: PartitionQueries, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        sent = False
        async for items in honest(self, query):
            yield items
            if query.token == "left" and not sent and any(_from(item) >= at(9) for item in items):
                sent = True
                yield [LATE]

    monkeypatch.setattr(PartitionQueries, "read", read)


def _from(item: Item) -> int:
    if isinstance(item, DataChangeRecord):
        return item.commit_timestamp
    return item.timestamp if isinstance(item, HeartbeatRecord) else 0


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.usefixtures("late")
def test_read_stops_with_one_line_and_a_restart_loses_nothing(
    dialect: Dialect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    with served(split(dialect)) as server:
        with pytest.raises(StreamError, match=r"transaction too late at .* is late: Spanner had proved") as raised:
            daemon_reads(server, spool)
        assert raised.value.exit_code == 1
        assert all(manifest.watermark_high < at(8) for manifest in manifests(spool))
        assert late_report(Spool.at(spool)).count == 0
        monkeypatch.undo()
        daemon_reads(server, spool)
    assert singers_of_spool(spool) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "records_were_late" in [alarm.name for alarm in alarms(facts_of(Spool.at(spool), 0, time.time_ns()))]


@pytest.mark.usefixtures("late")
def test_read_with_dead_letters_continues_and_keeps_late_records(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with served(split()) as server:
        daemon_reads(server, spool, late_records="dead-letter")
    assert singers_of_spool(spool) == [1, 2, 3, 4, 5, 6, 7, 8]
    report = late_report(Spool.at(spool))
    assert (report.count, report.first, report.last) == (1, at(8), at(8))
    (path,) = (spool / "late").iterdir()
    assert orjson.loads(path.read_bytes())["record"]["server_transaction_id"] == "too late"


@pytest.mark.usefixtures("late")
def test_tail_has_no_spool_and_always_stops() -> None:
    with served(split()) as server:
        done = tailed(server, late_records="dead-letter")
    assert isinstance(done.error, StreamError)
    assert done.singers in ([], [1])


class Announcer:
    """Queries whose partition `p` starts `n` at 3 s after everything up to 5 s is sealed; a second run gets neither."""

    def __init__(self, spool: Path) -> None:
        self._spool = Spool.at(spool)
        self.queries: list[PartitionQuery] = []

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        self.queries.append(query)
        match query.token:
            case "":
                yield [PartitionStartRecord(ORIGIN, ("p",))]
            case "p" if query.start == ORIGIN:
                yield [_data(1), _data(4), HeartbeatRecord(at(5))]
                while self._sealed() < at(4):  # noqa: ASYNC110 - waits for a file
                    await asyncio.sleep(0.01)
                yield [PartitionStartRecord(at(3), ("n",))]
            case "n":
                yield [_data(7)]

    def _sealed(self) -> int:
        latest = self._spool.latest()
        return self._spool.manifest(latest).watermark_high if latest else 0


def _data(second: int) -> DataChangeRecord:
    mod = Mod(f'{{"SingerId":"{second}"}}', "{}", "{}")
    return record(commit_timestamp=at(second), server_transaction_id=str(second), mods=(mod,))


@pytest.mark.parametrize("late_records", ["stop", "dead-letter"])
def test_a_partition_that_is_announced_after_its_start_was_sealed_is_read(
    late_records: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    queries = Announcer(spool)
    monkeypatch.setattr(PartitionQueries, "read", lambda _, query: queries.read(query))
    with served(split(mode="MUTABLE_KEY_RANGE")) as server:
        if late_records == "stop":
            with pytest.raises(StreamError, match=r"a partition start record at .* stored as a dead letter"):
                daemon_reads(server, spool)
            assert singers_of_spool(spool) == [1, 4]
        daemon_reads(server, spool, late_records=late_records)
    assert singers_of_spool(spool) == [1, 4, 7]
    first, _ = [query.start for query in queries.queries if query.token == "n"]  # its end is queried once more
    assert first == (at(5) - 1 if late_records == "stop" else at(3))
    report = late_report(Spool.at(spool))
    assert (report.count, report.first, report.last) == (1, at(3), at(5) - 1)
