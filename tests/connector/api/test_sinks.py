"""`run_sink` gives a sink every epoch exactly once, whenever the sink fails or the program ends."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

import connector
from connector.spool.consumers import claimed, find, record
from connector.spool.reading import Spool as StoredSpool
from emulator import ScriptedServer
from tests.connector.api.spools import SCENARIO, copied, prune, written_by_the_daemon
from tests.connector.api.streams import Row, expected, rows_of, serving, settings

T = TypeVar("T")


def run(work: Coroutine[object, object, T]) -> T:
    """Runs it for a minute at most."""

    async def bounded() -> T:
        async with asyncio.timeout(300):
            return await work

    return asyncio.run(bounded())


class SinkFailedError(Exception):
    """The sink's destination failed."""


class TransactionalSink:
    """A destination that stores an epoch's transactions and its checkpoint together, and fails before or after that."""

    def __init__(self, *, failures: Random | None = None) -> None:
        self.transactions: list[list[Row]] = []
        self.numbers: list[int] = []
        self.gaps = 0
        self.stored: str | None = None
        self._failures = failures
        self.written = asyncio.Event()

    async def checkpoint(self) -> str | None:
        """The checkpoint that was stored last."""
        return self.stored

    async def write(self, epoch: connector.Epoch) -> None:
        """Stores an epoch, or fails."""
        self._fail()
        self.transactions += [rows_of(transaction) for transaction in epoch.transactions()]
        self.numbers.append(epoch.number)
        self.gaps += epoch.gap is not None
        self.stored = epoch.checkpoint
        self.written.set()
        self._fail()

    def _fail(self) -> None:
        if self._failures is not None and self._failures.random() < 0.2:
            raise SinkFailedError


def restarted_until_done(sink: TransactionalSink, source: connector.Config | connector.Spool) -> int:
    """Runs the sink again after each of its failures; returns how many there were."""
    for failures in range(200):
        try:
            if isinstance(source, connector.Spool):
                run(connector.run_sink(sink, source, consumer="c", follow=False))
            else:
                run(connector.run_sink(sink, source))
        except SinkFailedError:
            continue
        return failures
    raise AssertionError("the sink failed 200 times")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_by_the_daemon(tmp_path_factory.mktemp("original") / "spool")


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return copied(original, tmp_path / "spool")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with serving(SCENARIO) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_over_a_stream_each_transaction_is_stored_once_though_the_sink_fails(seed: int, server: ScriptedServer) -> None:
    sink = TransactionalSink(failures=Random(seed))
    assert restarted_until_done(sink, connector.load_config(settings(server))) > 0
    assert sink.transactions == expected(SCENARIO)
    assert sink.numbers == list(range(1, len(sink.numbers) + 1))


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_over_a_spool_each_transaction_is_stored_once_though_the_sink_fails(seed: int, path: Path) -> None:
    sink = TransactionalSink(failures=Random(seed))
    assert restarted_until_done(sink, connector.Spool(path)) > 0
    assert sink.transactions == expected(SCENARIO)
    assert sink.numbers == list(range(1, connector.Spool(path).latest + 1))


def test_the_consumers_progress_is_recorded_with_the_epochs_identity(path: Path) -> None:
    run(connector.run_sink(TransactionalSink(), connector.Spool(path), consumer="c", follow=False))
    *_, last = connector.Spool(path).epochs()
    found = find(StoredSpool.at(path), "c")
    assert found is not None
    assert (found.epoch, found.at) == (last.number, last.identity)


def test_a_sink_follows_the_daemon_from_before_the_spool_exists_until_it_is_stopped(
    server: ScriptedServer, spool_path: str
) -> None:
    config = connector.load_config(settings(server, spool=spool_path))

    async def main() -> TransactionalSink:
        sink, stop = TransactionalSink(), connector.Stop()
        following = asyncio.create_task(connector.run_sink(sink, connector.Spool(spool_path), consumer="c", stop=stop))
        await connector.read(config)
        while len(sink.transactions) < len(expected(SCENARIO)):
            sink.written.clear()
            await sink.written.wait()
        stop.request()
        await following
        return sink

    assert run(main()).transactions == expected(SCENARIO)


def test_a_stop_ends_a_sink_that_waits_for_the_spool(tmp_path: Path) -> None:
    async def main() -> None:
        stop = connector.Stop()
        following = asyncio.create_task(
            connector.run_sink(TransactionalSink(), connector.Spool(tmp_path / "none"), consumer="c", stop=stop)
        )
        asyncio.get_running_loop().call_soon(stop.request)
        await following

    run(main())


def test_a_sink_that_is_cancelled_while_it_looks_for_the_spool_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, may_end = threading.Event(), threading.Event()

    def header(spool: StoredSpool) -> None:
        looks.set()
        assert may_end.wait(60)
        raise FileNotFoundError

    async def cancelled() -> None:
        waiting = asyncio.create_task(
            connector.run_sink(TransactionalSink(), connector.Spool(tmp_path / "spool"), consumer="c")
        )
        assert await asyncio.to_thread(looks.wait, 60)
        waiting.cancel()
        may_end.set()
        done, _ = await asyncio.wait({waiting}, timeout=10)
        waiting.cancel()
        assert done, "it looks again"

    monkeypatch.setattr(StoredSpool, "header", header)
    run(cancelled())


def test_a_cancelled_sink_frees_the_consumers_name(path: Path) -> None:
    async def main() -> None:
        sink = TransactionalSink()
        following = asyncio.create_task(connector.run_sink(sink, connector.Spool(path), consumer="c"))
        await sink.written.wait()
        following.cancel()
        await asyncio.wait({following})
        assert following.cancelled()

    run(main())
    with claimed(StoredSpool.at(path), "c"):
        pass


class ThreadedSink(TransactionalSink):
    """A sink that writes in a thread, which cannot be cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.may_end = threading.Event()
        self.ended = False

    async def write(self, epoch: connector.Epoch) -> None:
        """Stores an epoch in a thread."""
        await asyncio.to_thread(self._in_thread)

    def _in_thread(self) -> None:
        self.started.set()
        assert self.may_end.wait(300)
        self.ended = True


@pytest.mark.parametrize("over", ["a stream", "a spool"])
def test_a_sink_that_is_cancelled_while_it_writes_is_waited_for(over: str, server: ScriptedServer, path: Path) -> None:
    sink = ThreadedSink()

    async def main() -> None:
        if over == "a stream":
            work = connector.run_sink(sink, connector.load_config(settings(server)))
        else:
            work = connector.run_sink(sink, connector.Spool(path), consumer="mine", follow=False)
        running = asyncio.create_task(work)
        await asyncio.to_thread(sink.started.wait, 300)
        for _ in range(2):  # a second cancellation does not leave the thread alone either
            running.cancel()
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, sink.may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sink.ended

    run(main())


def test_a_consumer_that_another_process_uses_is_refused(path: Path) -> None:
    with (
        claimed(StoredSpool.at(path), "c"),
        pytest.raises(connector.SpoolInUseError, match=r"consumer 'c' .* is in use"),
    ):
        run(connector.run_sink(TransactionalSink(), connector.Spool(path), consumer="c", follow=False))


@pytest.mark.parametrize("name", ["", "a/b", "files", "bigquery.x"])
def test_a_name_that_is_not_valid_or_reserved_is_refused(name: str, path: Path) -> None:
    with pytest.raises(connector.ConfigurationError, match="consumer"):
        run(connector.run_sink(TransactionalSink(), connector.Spool(path), consumer=name, follow=False))


def test_a_sink_behind_its_consumers_record_gets_the_epochs_again_and_they_are_kept(path: Path) -> None:
    sink = TransactionalSink()
    sink.stored = next(connector.Spool(path).epochs()).checkpoint
    record(StoredSpool.at(path), "c", 3, now=1)
    kept: list[int] = []

    class Watching(TransactionalSink):
        async def write(self, epoch: connector.Epoch) -> None:
            kept.append(connector.Spool(path).consumers()[0].epoch)
            await super().write(epoch)

    watching = Watching()
    watching.stored = sink.stored
    run(connector.run_sink(watching, connector.Spool(path), consumer="c", follow=False))
    assert watching.numbers == list(range(2, connector.Spool(path).latest + 1))
    assert kept == [number - 1 for number in watching.numbers]


def test_a_sink_whose_next_epoch_was_deleted_is_refused(path: Path) -> None:
    sink = TransactionalSink()
    sink.stored = next(connector.Spool(path).epochs()).checkpoint
    prune(path, 3)
    with pytest.raises(connector.SpoolError, match="epochs 2 to 2 were deleted"):
        run(connector.run_sink(sink, connector.Spool(path), consumer="c", follow=False))
    assert sink.numbers == []


def test_a_sink_that_has_lost_its_checkpoint_is_refused_if_old_epochs_are_deleted(path: Path) -> None:
    spool = connector.Spool(path)
    run(connector.run_sink(TransactionalSink(), spool, consumer="c", follow=False))
    again = TransactionalSink()
    run(connector.run_sink(again, spool, consumer="c", follow=False))
    assert again.transactions == expected(SCENARIO)
    prune(path, 3)
    with pytest.raises(connector.SpoolError, match="the sink of consumer 'c' has no checkpoint") as caught:
        run(connector.run_sink(TransactionalSink(), spool, consumer="c", follow=False))
    assert "--forget c" in str(caught.value)


def test_a_missing_spool_is_refused_unless_it_is_followed(tmp_path: Path) -> None:
    with pytest.raises(connector.SpoolError, match="there is no spool"):
        run(connector.run_sink(TransactionalSink(), connector.Spool(tmp_path), consumer="c", follow=False))
