"""A stop of the driver has an end, whatever hangs."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.config.loading import Config
from connector.core.timestamps import SECOND
from connector.daemon import backfills_of_run
from connector.daemon.read import read
from connector.errors import DataLostError, StreamError
from connector.reader.stopping import StopRequest
from connector.spool.backfill.documents import Backfill
from spark_sink.reading.windows import job, process, running
from spark_sink.reading.windows.reading import on_executors
from spark_sink.reading.windows.running import result_or_stop
from spark_sink.run import SinkEvent
from tests.integration.commands import until
from tests.spark_sink.reading.windows.windows import configured, manifests, served


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Releases threads that a test has left hanging."""
    event = threading.Event()
    yield event
    event.set()


def test_a_task_that_hangs_is_a_warning_and_does_not_keep_a_stop_from_ending(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop = StopRequest(drain_timeout=60 * SECOND)
    path = str(tmp_path)

    def writer_of(_: object) -> Any:
        def hang(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pathlib
            import time

            pathlib.Path(path, "hangs").touch()
            time.sleep(3600)
            yield from batches

        return hang

    def hangs() -> bool:
        return Path(path, "hangs").exists()

    async def stopped(config: Config) -> None:
        reading = asyncio.create_task(read(config, stop, range_reader=on_executors(spark)))
        await asyncio.to_thread(until, hangs, "a task hangs")
        stop.request()
        await reading

    monkeypatch.setattr(running, "SLOW", 0.0)
    monkeypatch.setattr(running, "PATIENCE", 600.0)
    monkeypatch.setattr(job, "writer_of", writer_of)
    with served(transactions=5) as (scenario, server):
        config = configured(tmp_path, scenario, server)
        asyncio.run(asyncio.wait_for(stopped(config), 500))
    assert "a window is still being read" in caplog.text
    assert manifests(config) == []


def test_a_stop_abandons_work_that_cannot_be_cancelled(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "PATIENCE", 0.1)
    cancelled = SimpleQueue[bool]()

    async def main() -> object:
        stopping = asyncio.Event()
        stopping.set()
        return await result_or_stop(released.wait, lambda: cancelled.put(True), stopping, slow=lambda _: None)

    assert asyncio.run(main()) is None
    assert cancelled.get()
    assert "it is abandoned" in caplog.text


def test_a_cancelled_wait_for_work_that_cannot_be_cancelled_ends(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "PATIENCE", 0.1)
    started = threading.Event()

    def work() -> bool:
        started.set()
        return released.wait()

    async def main() -> None:
        waiting = asyncio.create_task(result_or_stop(work, lambda: None, asyncio.Event(), slow=lambda _: None))
        await asyncio.to_thread(started.wait)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_work_that_takes_long_is_reported_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SLOW", 0.0)
    reported = list[float]()
    enough = threading.Event()

    def slow(seconds: float) -> None:
        reported.append(seconds)
        if len(reported) == 2:
            enough.set()

    async def main() -> object:
        return await result_or_stop(enough.wait, lambda: None, asyncio.Event(), slow=slow)

    assert asyncio.run(main()) is True
    assert reported == sorted(reported)


def test_what_the_work_raises_is_raised() -> None:
    def work() -> None:
        raise StreamError("broken")

    with pytest.raises(StreamError, match="broken"):
        asyncio.run(result_or_stop(work, lambda: None, asyncio.Event(), slow=lambda _: None))


@contextmanager
def beside(folder: Path, **source: object) -> Iterator[Config]:
    with served(transactions=1) as (scenario, server):
        yield configured(folder, scenario, server, reader="executors", **source)


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (StreamError("broken"), [SinkEvent.INPUT_ENDED, SinkEvent.SIGNAL]),
        (DataLostError("gone"), [SinkEvent.INPUT_ENDED]),
    ],
)
def test_after_an_error_of_reading_the_sink_has_as_long_as_a_drain_and_after_lost_data_as_long_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ends: list[SinkEvent]
) -> None:
    class AtOnce(threading.Timer):
        def start(self) -> None:
            assert self.interval == 30.0
            self.run()

        def run(self) -> None:
            self.function(*self.args, **self.kwargs)

    async def failed(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(process, "read", failed)
    monkeypatch.setattr(process, "on_executors", lambda _: None)
    monkeypatch.setattr(threading, "Timer", AtOnce)
    spark: Any = None
    seen = list[SinkEvent]()
    with (
        beside(tmp_path) as config,
        pytest.raises(type(error)),
        process.reading_beside(tmp_path)(config, spark, SimpleQueue()) as events,
    ):
        seen.append(events.get())
    while not events.empty():
        seen.append(events.get())
    assert seen == ends


def test_a_reading_thread_that_is_cancelled_ends_the_application_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(process, "read", cancelled)
    monkeypatch.setattr(process, "on_executors", lambda _: None)
    spark: Any = None
    with (
        beside(tmp_path) as config,
        pytest.raises(StreamError, match="cancelled without a signal"),
        process.reading_beside(tmp_path)(config, spark, SimpleQueue()) as events,
    ):
        assert events.get() is SinkEvent.INPUT_ENDED


def backfill_of(number: int) -> Backfill:
    return Backfill(number=number, timestamp=1, why="command", dialect="googlesql", tables=(), recorded_at=1)


def test_a_backfill_of_a_new_table_is_delivered_beside_executors_that_read_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, is_delivered = iter([backfill_of(2)]), threading.Event()
    order = list[str]()

    async def look(_: object) -> Backfill | None:
        return next(found, None)

    async def delivered(_: object, path: Path, __: object, one: Backfill, **___: object) -> None:
        order.append(f"backfill {one.number} of {path.name}")
        if one.number == 2:
            is_delivered.set()

    async def reading(*_: object, on_backfill: Callable[[Backfill], None], **__: object) -> None:
        on_backfill(backfill_of(1))
        assert await asyncio.to_thread(is_delivered.wait, 60)
        order.append("reading has ended")

    monkeypatch.setattr(process, "read", reading)
    monkeypatch.setattr(process, "on_executors", lambda _: None)
    monkeypatch.setattr(backfills_of_run, "backfill_of_new_tables", look)
    monkeypatch.setattr(backfills_of_run, "delivered", delivered)
    monkeypatch.setattr(backfills_of_run, "INTERVAL", 0.001)
    spark: Any = None
    with (
        beside(tmp_path, start="now", backfill={"new_tables": True}) as config,
        process.reading_beside(Path("c.yaml"))(config, spark, SimpleQueue()) as events,
    ):
        assert events.get(timeout=60) is SinkEvent.INPUT_ENDED
    assert order == ["backfill 1 of c.yaml", "backfill 2 of c.yaml", "reading has ended"]


def test_an_error_of_reading_on_executors_ends_the_backfills_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_started, is_cancelled = threading.Event(), threading.Event()

    async def delivered(*_: object, **__: object) -> None:
        is_started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    async def failed(*_: object, on_backfill: Callable[[Backfill], None], **__: object) -> None:
        on_backfill(backfill_of(1))
        assert await asyncio.to_thread(is_started.wait, 60)
        raise DataLostError("gone")

    monkeypatch.setattr(process, "read", failed)
    monkeypatch.setattr(process, "on_executors", lambda _: None)
    monkeypatch.setattr(backfills_of_run, "delivered", delivered)
    spark: Any = None
    with (
        beside(tmp_path, start="now", backfill=True) as config,
        pytest.raises(DataLostError, match="gone"),
        process.reading_beside(tmp_path)(config, spark, SimpleQueue()) as events,
    ):
        assert events.get(timeout=60) is SinkEvent.INPUT_ENDED
    assert is_cancelled.is_set()
