"""Late records: the reader stops before it delivers past them, or stores them and continues."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import cast

import pytest

from connector.core.changes import Changes
from connector.core.epoch import IncompleteTransaction, SealedEpoch
from connector.core.late_records import LateRecord
from connector.core.partitions import CutPartition
from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from connector.core.timestamps import MINUTE, SECOND
from connector.errors import SpannerCdcError, SpoolError, StreamError
from connector.reader.flow_control import FlowControl
from connector.reader.late_policy import LatePolicy
from connector.reader.read_state import QueriedStream, Range, ReadState
from connector.reader.scheduler import TICK, Scheduler
from connector.spanner.clock import SpannerClock
from connector.spanner.decoding.decoder import Item
from connector.spanner.partition_query import PartitionQueries, PartitionQuery
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import record
from tests.property.virtual_time import run

START = 1_800_000_000 * SECOND
Script = dict[str, list[list[Item]]]


def at(seconds: float) -> int:
    return START + int(seconds * SECOND)


def data(seconds: float, transaction: str) -> DataChangeRecord:
    return record(commit_timestamp=at(seconds), server_transaction_id=transaction)


def heartbeat(seconds: float) -> list[Item]:
    return [HeartbeatRecord(at(seconds))]


class Queries:
    """Returns each partition's messages one after another, while the watermark moves in between, and then is silent."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.sent: list[PartitionQuery] = []
        self.given = asyncio.Event()

    async def read(self, query: PartitionQuery) -> AsyncGenerator[list[Item]]:
        self.sent.append(query)
        for items in self._script.pop(query.token):
            yield items
            for _ in range(30):  # turns of the loop, so that the reader moves and seals however slow the machine is
                await asyncio.sleep(TICK / 10)
        if not self._script:
            self.given.set()
        if not any(isinstance(item, ChildPartitionsRecord) for item in items):
            await asyncio.Event().wait()


class Sink:
    def __init__(self, *, continues: bool) -> None:
        self.continues = continues
        self.delivered: list[str] = []
        self.reached = START - 1
        self.late: list[LateRecord] = []
        self.incomplete: list[IncompleteTransaction] = []
        self.stored_when_delivered: list[int] = []

    async def room(self, stopping: asyncio.Event) -> bool:
        return True

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        self.delivered += [change.server_transaction_id for change in epoch.records]
        self.reached = epoch.high
        self.stored_when_delivered.append(len(self.late))

    async def keep(self, late: Sequence[LateRecord | IncompleteTransaction]) -> None:
        await asyncio.sleep(TICK)
        for one in late:
            if isinstance(one, LateRecord):
                self.late.append(one)
            else:
                assert one.server_transaction_id not in self.delivered, "it is stored before its epoch is"
                self.incomplete.append(one)


class Read:
    """A reader that has read a script, with or without a store, from partitions `p` and `q` that cover everything."""

    def __init__(
        self,
        script: Script,
        *,
        store: bool,
        continues: bool | None = None,
        window: int | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.sink = sink or Sink(continues=store if continues is None else continues)
        self.metrics = ReaderMetrics()
        self.error: SpannerCdcError | None = None
        run(self._run(script, store=store, window=window))

    async def _run(self, script: Script, *, store: bool, window: int | None) -> None:
        async def spanner_clock() -> int:
            return START

        tokens = [token for token in ("p", "q") if token in script]
        self.queries = Queries(script)
        scheduler = Scheduler(
            QueriedStream(
                "S",
                cast("PartitionQueries", self.queries),
                SpannerClock(cast("Callable[[], Awaitable[int]]", spanner_clock), START),
                window=window,
            ),
            Range(tuple(CutPartition(token, START) for token in tokens), START - 1, None),
            self.sink,
            seal_interval=0,
            flow=FlowControl(),
            metrics=self.metrics,
            late_records=self.sink if store else None,
        )
        running = asyncio.create_task(scheduler.run())
        given = asyncio.create_task(self.queries.given.wait())
        await asyncio.wait({running, given}, return_when=asyncio.FIRST_COMPLETED)
        given.cancel()
        scheduler.stop()
        try:
            await running
        except SpannerCdcError as error:
            self.error = error


ORDERS: dict[str, list[list[Item]]] = {
    "data after data": [[data(3, "b")], [data(2, "a")], heartbeat(5)],
    "data after a heartbeat": [[data(1, "b")], heartbeat(3), [data(2, "a")], heartbeat(5)],
    "in one message": [[data(3, "b"), data(2, "a")], heartbeat(5)],
    "in one block of columns": [[Changes.of([data(3, "b"), data(2, "a")])], heartbeat(5)],
    "a block after a heartbeat": [[data(1, "b")], heartbeat(3), [Changes.of([data(2, "a")])], heartbeat(5)],
}


@pytest.mark.parametrize("messages", ORDERS.values(), ids=ORDERS)
def test_a_data_change_record_behind_what_its_query_has_proved_stops_the_reader(messages: list[list[Item]]) -> None:
    read = Read({"p": messages}, store=False)
    assert read.error is not None
    assert read.error.exit_code == 1
    text = str(read.error)
    assert "\n" not in text
    for part in (
        "change stream S",
        "partition p",
        "transaction a",
        "2027-01-15T08:00:02.000000Z",
        "source.late_records",
    ):
        assert part in text
    assert read.metrics.late_records == 1
    assert "a" not in read.sink.delivered


@pytest.mark.parametrize("messages", ORDERS.values(), ids=ORDERS)
def test_with_a_store_it_is_stored_before_the_next_epoch_and_the_rest_is_delivered(messages: list[list[Item]]) -> None:
    read = Read({"p": messages}, store=True)
    assert read.error is None
    assert read.sink.delivered == ["b"]
    assert [(late.transaction, late.incomplete) for late in read.sink.late] == [("a", (at(2), at(2)))]
    assert read.sink.reached == at(5) - 1
    assert read.sink.stored_when_delivered[-1] == 1
    assert read.metrics.late_records == 1


@pytest.mark.parametrize("continues", [True, False])
def test_a_transaction_that_lacks_records_is_stored_before_its_epoch_is_delivered(*, continues: bool) -> None:
    made = record(commit_timestamp=at(1), server_transaction_id="a", number_of_records_in_transaction=2)
    read = Read({"p": [[made, data(2, "b")], heartbeat(5)]}, store=True, continues=continues)
    assert read.error is None
    assert read.sink.delivered == ["a", "b"]
    assert read.sink.incomplete == [IncompleteTransaction("a", at(1), expected=2, received=1)]
    assert read.metrics.incomplete_transactions == 1


def test_no_epoch_past_a_late_record_is_delivered_by_a_reader_that_stops() -> None:
    """The laggard holds the watermark below it, then progresses while the reader stops: a restart reads it again."""
    script: Script = {"p": [[data(4, "b"), data(3, "a")]], "q": [[data(1, "q1")], [data(2, "q2")], heartbeat(9)]}
    read = Read(script, store=False)
    assert read.error is not None
    assert "No epoch past it was delivered" in str(read.error)
    assert read.sink.reached < at(3)


def test_a_reader_that_stops_still_stores_what_delivered_epochs_miss() -> None:
    script: Script = {"p": [[data(1, "b")], heartbeat(3), [], [], [data(2, "a")]]}
    read = Read({token: [*messages] for token, messages in script.items()}, store=True, continues=False)
    assert "stored as a dead letter in late/ of the spool" in str(read.error)
    assert [late.transaction for late in read.sink.late] == ["a"]
    without = Read(script, store=False)
    assert "were delivered without it, and it is not read again" in str(without.error)


def test_a_reader_that_stops_does_not_store_what_is_read_again() -> None:
    read = Read({"p": [[data(3, "b"), data(2, "a")]]}, store=True, continues=False)
    assert read.error is not None
    assert read.sink.late == []


def test_a_store_that_is_full_stops_the_reader_and_one_that_fails_seals_nothing_past_the_record() -> None:
    class Full(Sink):
        async def keep(self, late: Sequence[LateRecord | IncompleteTransaction]) -> None:
            raise StreamError("too many")

    class Broken(Sink):
        async def keep(self, late: Sequence[LateRecord | IncompleteTransaction]) -> None:
            raise SpoolError("the disk is full")

    script: Script = {"p": [[data(3, "b"), data(2, "a"), *heartbeat(5)], heartbeat(6)]}
    full = Read({token: [*messages] for token, messages in script.items()}, store=True, sink=Full(continues=True))
    assert (str(full.error), full.sink.delivered) == ("too many", ["b"])
    broken = Read(script, store=True, sink=Broken(continues=True))
    assert (str(broken.error), broken.sink.delivered) == ("the disk is full", [])
    assert broken.sink.reached < at(2)


def test_the_log_names_the_late_record_and_no_values(caplog: pytest.LogCaptureFixture) -> None:
    Read({"p": ORDERS["data after data"]}, store=False)
    (line,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert vars(line)["fields"] == {
        "change_stream": "S",
        "partition": "partition p…p",
        "kind": "data change record",
        "server_transaction_id": "a",
        "timestamp": "2027-01-15T08:00:02.000000Z",
        "proved_up_to": "2027-01-15T08:00:02.999999999Z",
        "records": 1,
    }


def test_children_announced_behind_the_watermark_are_stored_with_their_range_and_read_from_their_start() -> None:
    child = ChildPartitionsRecord(at(2), "0", (ChildPartition("n", frozenset({"p"})),))
    script: Script = {"p": [heartbeat(4), heartbeat(4), [child]], "n": [[data(3, "a"), data(6, "b")], heartbeat(9)]}
    read = Read({token: [*messages] for token, messages in script.items()}, store=True)
    assert read.error is None
    assert [(one.kind, one.incomplete) for one in read.sink.late] == [
        ("child partitions record", (at(2), at(4) - 1)),
        ("data change record", (at(3), at(3))),
    ]
    assert [query.start for query in read.queries.sent if query.token == "n"] == [at(2)]
    assert read.sink.delivered == ["b"]
    stopped = Read(script, store=False)
    assert "a child partitions record at 2027-01-15T08:00:02.000000Z" in str(stopped.error)
    assert [query.token for query in stopped.queries.sent] == ["p"]


def test_a_partition_started_behind_its_announcer_is_stored_with_its_range_and_read() -> None:
    started = PartitionStartRecord(at(2), ("n",))
    script: Script = {"p": [heartbeat(4), heartbeat(4), [started], heartbeat(12)], "n": [[data(6, "b")], heartbeat(9)]}
    read = Read({token: [*messages] for token, messages in script.items()}, store=True, window=30 * MINUTE)
    assert read.error is None
    assert [(one.kind, one.incomplete) for one in read.sink.late] == [("partition start record", (at(2), at(4) - 1))]
    assert read.sink.delivered == ["b"]
    stopped = Read(script, store=False, window=30 * MINUTE)
    assert "a partition start record" in str(stopped.error)


@pytest.mark.parametrize("late", [PartitionEventRecord(at(2), 1), PartitionEndRecord(at(2))])
def test_an_event_and_an_end_behind_what_was_proved_are_late_too(late: Item) -> None:
    read = Read({"p": [heartbeat(4), [late]]}, store=False, window=30 * MINUTE)
    assert read.metrics.late_records == 1
    assert read.error is not None


def test_a_record_at_the_timestamp_of_a_heartbeat_or_of_other_data_is_in_time() -> None:
    messages: list[list[Item]] = [
        [data(1, "a")],
        [data(1, "b")],
        heartbeat(3),
        [data(3, "c")],
        heartbeat(3),
        [data(3, "d")],
        heartbeat(9),
    ]
    read = Read({"p": messages}, store=False)
    assert read.error is None
    assert read.sink.delivered == ["a", "b", "c", "d"]
    assert read.metrics.late_records == 0


def test_a_late_record_whose_storing_was_cancelled_is_stored_before_anything_is_sealed() -> None:
    sink = Sink(continues=True)

    async def no_clock() -> int:
        raise AssertionError

    async def cut_short() -> None:
        stream = QueriedStream("S", cast("PartitionQueries", Queries({})), SpannerClock(no_clock, START))
        span = Range((CutPartition("p", START),), START - 1, None)
        policy = LatePolicy(ReadState(stream, span, FlowControl(), ReaderMetrics()), sink)
        policy.behind_watermark("p", [data(2, "a")])
        reader = asyncio.create_task(policy.settled())
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait({reader})
        assert not sink.late
        await policy.stored()

    asyncio.run(cut_short())
    assert [one.transaction for one in sink.late] == ["a"]


@pytest.mark.parametrize("store", [False, True])
def test_a_late_record_in_a_catch_up_over_many_minutes_ends_the_reader(store: bool) -> None:
    minutes = [data(60 * minute, f"t{minute}") for minute in range(1, 8)]
    read = Read({"p": [[*minutes, *heartbeat(600)], [data(30, "late")]]}, store=store, continues=False)
    assert isinstance(read.error, StreamError)
