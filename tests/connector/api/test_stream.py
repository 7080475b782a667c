"""`read_epochs` gives every transaction once, in order and whole; it holds Spanner back, and ends what it started."""

import asyncio
import io
import json
import threading
import traceback
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import grpc
import pyarrow as pa
import pytest

import connector
from connector.api.checkpoint import Checkpoint
from connector.core.timestamps import SECOND, format_rfc3339
from connector.envelope.envelope import SCHEMA
from connector.errors import BeforeStreamError
from connector.reader.flow_control import FlowControl
from emulator import Fault, FaultKind, FaultPlan, Scenario, ScriptedServer
from emulator.scenario.history import Change
from emulator.scenario.scenario import steady
from tests.connector.api.streams import (
    ORIGIN,
    SECONDS,
    drawn,
    expected,
    rows_of,
    serving,
    settings,
    transactions,
)

T = TypeVar("T")
SCENARIO = drawn(seed=11)
WIDE = {"Owner": "x" * 30_000}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(SCENARIO) as running:
        yield running


def config(server: ScriptedServer, **more: object) -> connector.Config:
    return connector.load_config(settings(server, **more))  # type: ignore[arg-type]


def run(work: Coroutine[object, object, T]) -> T:
    """Runs it in a task of its own loop, for a minute at most."""

    async def bounded() -> T:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


async def collected(config: connector.Config, after: str | None = None) -> list[connector.Epoch]:
    async with connector.read_epochs(config, after=after) as epochs:
        return [epoch async for epoch in epochs]


def transactions_of(epochs: list[connector.Epoch]) -> list[connector.Transaction]:
    return [transaction for epoch in epochs for transaction in epoch.transactions()]


@pytest.mark.parametrize(
    ("dialect", "mode"),
    [
        ("googlesql", "IMMUTABLE_KEY_RANGE"),
        ("postgresql", "IMMUTABLE_KEY_RANGE"),
        ("googlesql", "MUTABLE_KEY_RANGE"),
        ("postgresql", "MUTABLE_KEY_RANGE"),
    ],
)
def test_every_transaction_comes_once_whole_and_in_commit_order(dialect: str, mode: str) -> None:
    scenario = drawn(dialect=dialect, mode=mode)
    with serving(scenario) as server:
        epochs = run(collected(config(server)))
    found = transactions_of(epochs)
    assert [rows_of(transaction) for transaction in found] == expected(scenario)
    committed = [of_one[0].commit_timestamp_ns for of_one in transactions(scenario)]
    assert [transaction.commit_timestamp for transaction in found] == committed


def test_epochs_follow_each_other_without_gaps_and_the_last_is_final(server: ScriptedServer) -> None:
    epochs = run(collected(config(server)))
    assert [epoch.number for epoch in epochs] == list(range(1, len(epochs) + 1))
    assert epochs[0].low == SCENARIO.history.origin - 1
    assert all(before.high == after.low for before, after in pairwise(epochs))
    assert [epoch.final for epoch in epochs] == [False] * (len(epochs) - 1) + [True]
    assert epochs[-1].high == SCENARIO.history.horizon
    assert len({epoch.identity for epoch in epochs}) == len(epochs)
    assert {epoch.gap for epoch in epochs} == {None}


def test_batches_and_table_have_the_columns_of_the_envelope(server: ScriptedServer) -> None:
    epochs = run(collected(config(server)))
    for epoch in epochs:
        assert epoch.table().schema == SCHEMA
        assert epoch.table().num_rows == epoch.rows == sum(batch.num_rows for batch in epoch.batches())
    assert pa.concat_tables(epoch.table() for epoch in epochs).num_rows == len(SCENARIO.committed)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_reading_resumes_right_after_any_checkpoint(share: float, server: ScriptedServer) -> None:
    at = SCENARIO.committed[int(len(SCENARIO.committed) * share)].commit_timestamp_ns
    first = run(collected(config(server, end=at)))
    after = first[-1].checkpoint
    rest = run(collected(config(server), after))
    assert rest[0].low == at
    assert rest[0].number == first[-1].number + 1
    found = transactions_of(first + rest)
    assert [rows_of(transaction) for transaction in found] == expected(SCENARIO)
    assert run(collected(config(server, end=at), after)) == []


def test_an_event_has_the_same_uuid_when_it_is_read_again(server: ScriptedServer) -> None:
    once, again = (transactions_of(run(collected(config(server)))) for _ in range(2))
    assert once == again
    uuids = [event.uuid for transaction in once for event in transaction.events]
    assert len(set(uuids)) == len(uuids) == len(SCENARIO.committed)


def test_old_values_are_given_where_they_are_captured() -> None:
    scenario = drawn(value_capture_type="NEW_ROW_AND_OLD_VALUES")
    with serving(scenario) as server:
        found = transactions_of(run(collected(config(server))))
    events = [event for transaction in found for event in transaction.events]
    assert {event.mod_type for event in events if event.before} == {"UPDATE", "DELETE"}
    assert all(event.before is None for event in events if event.mod_type == "INSERT")
    assert all(event.key.items() <= event.before.items() for event in events if event.before)


def test_broken_queries_are_sent_again_without_loss() -> None:
    faults = FaultPlan(seed=3, kinds=(FaultKind.UNAVAILABLE, FaultKind.CLEAN_END, FaultKind.SESSION_EXPIRED))
    with serving(SCENARIO, faults=faults) as server:
        epochs = run(collected(config(server)))
        assert faults.struck
    assert [rows_of(transaction) for transaction in transactions_of(epochs)] == expected(SCENARIO)


def test_leaving_the_block_early_ends_every_task_and_query(server: ScriptedServer) -> None:
    async def main() -> None:
        async with connector.read_epochs(config(server, ends=False)) as epochs:
            async for _ in epochs:
                break
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert len([epoch async for epoch in epochs]) <= 1  # one may have been ready

    run(main())


def test_an_exception_in_the_block_is_raised_as_it_is(server: ScriptedServer) -> None:
    async def fail() -> None:
        async with connector.read_epochs(config(server, ends=False)) as epochs:
            async for epoch in epochs:
                _ = epoch.rows // 0

    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_cancelling_the_consumer_ends_everything(server: ScriptedServer) -> None:
    async def consume(waiting: asyncio.Event) -> None:
        async with connector.read_epochs(config(server, ends=False)) as epochs:
            async for epoch in epochs:
                if epoch.high >= SCENARIO.history.horizon:
                    waiting.set()

    async def main() -> None:
        waiting = asyncio.Event()
        consumer = asyncio.create_task(consume(waiting))
        await waiting.wait()
        consumer.cancel()
        await asyncio.wait({consumer})
        assert consumer.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main())


def test_a_stop_gives_what_is_complete_and_ends_the_iteration(server: ScriptedServer) -> None:
    async def main() -> list[connector.Epoch]:
        stop, found = connector.Stop(), []
        async with connector.read_epochs(config(server, ends=False), stop=stop) as epochs:
            async for epoch in epochs:
                found.append(epoch)
                if epoch.high >= SCENARIO.committed[-1].commit_timestamp_ns:
                    threading.Thread(target=stop.request).start()
        return found

    found = transactions_of(run(main()))
    assert [rows_of(transaction) for transaction in found] == expected(SCENARIO)


def test_waiting_for_an_epoch_with_a_timeout_loses_nothing(server: ScriptedServer) -> None:
    async def main() -> list[connector.Epoch]:
        found: list[connector.Epoch] = []
        async with connector.read_epochs(config(server)) as epochs:
            while not (found and found[-1].final):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.002):
                        found.append(await anext(epochs))
        return found

    assert [rows_of(transaction) for transaction in transactions_of(run(main()))] == expected(SCENARIO)


def test_a_slow_consumer_holds_the_server_back_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowControl.__init__, "__defaults__", (256 * 1024,))  # bytes, in the place of 32 MB
    scenario = wide()

    async def main(server: ScriptedServer) -> tuple[int, int]:
        sent = rows = 0
        async with connector.read_epochs(config(server)) as epochs:
            async for epoch in epochs:
                rows += epoch.rows
                sent = sent or await settled(server)  # it works on the first one until no more is sent
        return sent, rows

    with serving(scenario) as server:
        sent, rows = run(main(server))
        assert rows == len(scenario.committed)
        assert sent < server.engine.messages / 2


def wide() -> Scenario:
    """A change stream of 60 MB, which is far more than the reader may hold and what connections buffer."""
    told = steady(5, origin=ORIGIN, seconds=SECONDS, partitions=4, records_per_second_per_partition=25)
    for partition in told.history.partitions.values():
        partition.events = [
            replace(event, mods=tuple(replace(mod, new_values=WIDE) for mod in event.mods))
            if isinstance(event, Change)
            else event
            for event in partition.events
        ]
    return told


async def settled(server: ScriptedServer) -> int:
    """The number of messages that the server has sent once it sends no more."""
    before = -1
    while (sent := server.engine.messages) != before:
        before = sent
        await asyncio.sleep(1)
    return sent


def test_the_readers_error_is_raised_after_the_epochs_that_were_complete() -> None:
    token = next(token for token, of in SCENARIO.history.partitions.items() if of.parents)
    faults = FaultPlan().rule(Fault(FaultKind.EXPIRED_PARTITION), token=token, times=1000)

    async def main(server: ScriptedServer) -> list[connector.Epoch]:
        found: list[connector.Epoch] = []

        async def fail() -> None:
            async with connector.read_epochs(config(server)) as epochs:
                async for epoch in epochs:
                    found.append(epoch)  # noqa: PERF401 - what came before the error counts

        with pytest.raises(connector.DataLostError, match="no longer retained"):
            await fail()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return found

    with serving(SCENARIO, faults=faults) as server:
        found = transactions_of(run(main(server)))
        whole = expected(SCENARIO)
        assert [rows_of(transaction) for transaction in found] == whole[: len(found)]
        assert len(found) < len(whole)


def test_a_checkpoint_that_is_no_longer_retained_is_data_loss_with_a_way_on(server: ScriptedServer) -> None:
    name = config(server).source.name
    old = Checkpoint(str(name), 3, "2020-01-01T00:00:00.000000Z/x").to_text()
    with pytest.raises(connector.DataLostError, match="cannot resume after epoch 3, up to 2020-01-01") as caught:
        run(collected(config(server), old))
    assert "start without a checkpoint" in str(caught.value)


def test_a_checkpoint_from_before_the_stream_was_created_again_is_data_loss_too(server: ScriptedServer) -> None:
    before = format_rfc3339(ORIGIN - 3600 * SECOND)  # within the retention period
    old = Checkpoint(str(config(server).source.name), 3, f"{before}/x").to_text()
    with pytest.raises(connector.DataLostError, match="cannot resume after epoch 3"):
        run(collected(config(server), old))


def test_an_offset_from_before_the_stream_starts_with_the_stream_as_in_the_commands(server: ScriptedServer) -> None:
    found = transactions_of(run(collected(config(server, source={"start": "-1h"}))))
    whole = expected(SCENARIO)
    assert len(found) >= len(whole) - 1  # the start is found to the microsecond, and this history starts within one
    assert [rows_of(transaction) for transaction in found] == whole[-len(found) :]


def test_a_start_from_before_the_stream_is_an_error_with_a_short_traceback_and_its_cause(
    server: ScriptedServer,
) -> None:
    before = format_rfc3339(ORIGIN - 3600 * SECOND)
    with pytest.raises(BeforeStreamError, match="the first start that it accepts is") as caught:
        run(collected(config(server, source={"start": before})))
    cause = caught.value.__cause__
    assert isinstance(cause, grpc.RpcError)
    assert len(traceback.format_exception(cause)) + len(str(cause).splitlines()) < 20
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED])
def test_a_call_that_spanner_refuses_at_the_start_is_an_error_with_a_short_traceback(
    server: ScriptedServer, code: grpc.StatusCode
) -> None:
    server.refuse(code, "Database not found: d")
    with pytest.raises(connector.SpannerCdcError) as caught:
        run(collected(config(server)))
    cause = caught.value.__cause__
    assert isinstance(cause, grpc.RpcError)
    assert len(traceback.format_exception(cause)) == 1, "there are no frames"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"late_records": "dead-letter"}, "late_records: dead-letter needs a spool"),
        ({"backfill": True, "start": "now"}, "source.backfill needs a spool"),
        ({"complete_rows": True}, "source.complete_rows is for the built-in sinks"),
        ({"reader": "executors"}, "source.reader: executors needs a spool"),
    ],
)
def test_an_option_that_needs_a_spool_is_refused_before_anything_is_read(
    server: ScriptedServer, option: dict[str, object], line: str
) -> None:
    with pytest.raises(connector.ConfigurationError, match=line):
        run(collected(config(server, source=option)))
    assert server.engine.statements == 0


def test_the_daemon_in_this_process_refuses_to_be_spark_executors(server: ScriptedServer) -> None:
    reading = connector.read(config(server, source={"reader": "executors"}))
    with pytest.raises(connector.ConfigurationError, match=r"source\.reader: executors is for `spanner-cdc read`"):
        run(reading)
    assert server.engine.statements == 0


def test_a_reader_that_something_else_cancels_is_an_error_and_not_the_end(server: ScriptedServer) -> None:
    async def main() -> None:
        async with connector.read_epochs(config(server)) as epochs:
            await anext(epochs)
            (reader,) = (task for task in asyncio.all_tasks() if task.get_name() == "reader")
            reader.cancel()
            async for _ in epochs:
                pass

    with pytest.raises(connector.StreamError, match="the reader's task was cancelled"):
        run(main())


def test_a_checkpoint_of_another_stream_is_refused_before_anything_is_read(server: ScriptedServer) -> None:
    other = Checkpoint("p/i/d/other", 3, "2020-01-01T00:00:00.000000Z/x").to_text()
    with pytest.raises(connector.ConfigurationError, match="it is of change stream p/i/d/other"):
        run(collected(config(server), other))
    assert server.engine.statements == 0


def test_only_the_chosen_tables_are_read(server: ScriptedServer) -> None:
    tables = {"tables": {"include": ["Singers"]}}
    found = transactions_of(run(collected(config(server, source=tables))))
    kept = [[row for row in of_one if row[0] == "Singers"] for of_one in expected(SCENARIO)]
    assert [rows_of(transaction) for transaction in found] == [of_one for of_one in kept if of_one]


def test_workers_read_the_same(server: ScriptedServer) -> None:
    found = transactions_of(run(collected(config(server, source={"workers": 2}))))
    assert [rows_of(transaction) for transaction in found] == expected(SCENARIO)


def test_tail_writes_the_events_of_the_same_transactions(server: ScriptedServer) -> None:
    out = io.BytesIO()
    run(connector.tail(config(server), out))
    events = [json.loads(line) for line in out.getvalue().splitlines()]
    found = [event for transaction in transactions_of(run(collected(config(server)))) for event in transaction.events]
    assert [(event["uuid"], event["payload"]) for event in events] == [(event.uuid, event.values) for event in found]
