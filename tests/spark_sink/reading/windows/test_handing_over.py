"""Readers follow each other on one spool, or compete for it, and nothing is lost or repeated."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.config.loading import Config
from connector.core.timestamps import SECOND, format_rfc3339
from connector.core.windows import WindowPace
from connector.daemon.read import in_process, read
from connector.daemon.spool_sink import SpoolSink, WrittenEpoch
from connector.errors import DataLostError, SpoolInUseError
from connector.reader.stopping import StopRequest
from connector.spool import second_daemon
from emulator.scripted.fault_plan import Fault, FaultKind
from spark_sink.reading.windows import reading
from spark_sink.reading.windows.reading import on_executors
from tests.spark_sink.reading.windows.windows import configured, done, events, manifests, served


def _two_windows(config: Config, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads two windows on executors, and stops; a third that is being read then is sealed, too."""
    stop = StopRequest(drain_timeout=30 * SECOND)
    deliver, sealed = SpoolSink.deliver_written, list[int]()

    async def delivered(sink: SpoolSink, written: WrittenEpoch) -> None:
        await deliver(sink, written)
        sealed.append(written.high)
        if len(sealed) == 2:
            stop.request()

    with monkeypatch.context() as patch:
        patch.setattr(SpoolSink, "deliver_written", delivered)
        asyncio.run(read(config, stop, range_reader=on_executors(spark)))
    assert len(sealed) >= 2


@pytest.mark.long
def test_from_one_process_to_executors_and_back_four_times_nothing_is_lost_or_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "WindowPace", lambda: WindowPace(2 * SECOND))
    monkeypatch.setattr(WindowPace, "after", lambda pace, **_: pace)
    with served() as (scenario, server):
        for end in (3, 10):
            until = format_rfc3339(scenario.history.origin + end * SECOND)
            done(configured(tmp_path / "mixed", scenario, server, end=until), in_process)
            config = configured(tmp_path / "mixed", scenario, server)
            _two_windows(config, spark, monkeypatch)
        found = done(config, in_process)
        assert found == done(configured(tmp_path / "process", scenario, server), in_process)
    assert len(found) == len(scenario.committed)
    assert len({manifest.writer for manifest in manifests(config)}) == 5


@contextmanager
def _no_lock(_: object) -> Iterator[None]:
    """As where two machines share a disk whose locks do not reach from one to the other."""
    yield


@pytest.mark.long
def test_a_driver_that_wakes_up_after_another_has_read_on_stops_with_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_daemon, "sole_writer", _no_lock)
    deliver = SpoolSink.deliver_written
    with served() as (scenario, server):
        config = configured(tmp_path / "executors", scenario, server)

        async def asleep(sink: SpoolSink, written: WrittenEpoch) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(SpoolSink, "deliver_written", deliver)
                await read(config, StopRequest(drain_timeout=60 * SECOND), range_reader=on_executors(spark))
            await deliver(sink, written)

        with monkeypatch.context() as patch:
            patch.setattr(SpoolSink, "deliver_written", asleep)
            with pytest.raises(
                SpoolInUseError, match=r"another daemon has sealed epoch 1 .* Only one may write a spool"
            ):
                done(config, on_executors(spark))
        assert events(config) == done(configured(tmp_path / "process", scenario, server), in_process)
    named = {file.path.removeprefix("segments/") for manifest in manifests(config) for file in manifest.files}
    assert {path.name for path in Path(config.spool.path, "segments").iterdir()} == named


@pytest.mark.long
def test_of_two_drivers_at_once_one_reads_and_the_other_stops_with_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_daemon, "sole_writer", _no_lock)

    deliver, have_read, ended = SpoolSink.deliver_written, list[SpoolSink](), list[Config]()

    async def beside(sink: SpoolSink, written: WrittenEpoch) -> None:
        """Neither delivers before the other has read, or has ended."""
        if sink not in have_read:
            have_read.append(sink)
        while len(have_read) + len(ended) < 2:  # noqa: ASYNC110 - what the other one does
            await asyncio.sleep(0.01)
        await deliver(sink, written)

    monkeypatch.setattr(SpoolSink, "deliver_written", beside)

    async def driver(config: Config) -> None:
        try:
            await read(config, StopRequest(drain_timeout=60 * SECOND), range_reader=on_executors(spark))
        finally:
            ended.append(config)

    async def both(config: Config) -> list[BaseException | None]:
        return list(await asyncio.gather(driver(config), driver(config), return_exceptions=True))

    with served() as (scenario, server):
        config = configured(tmp_path / "executors", scenario, server)
        errors = [error for error in asyncio.run(both(config)) if error is not None]
        assert [type(error) for error in errors] == [SpoolInUseError], errors
        monkeypatch.undo()
        assert events(config) == done(configured(tmp_path / "process", scenario, server), in_process)


@pytest.mark.long
def test_retention_that_runs_out_while_executors_read_ends_them_with_the_lost_range(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = SpoolSink.deliver_written
    with served() as (scenario, server):
        config = configured(tmp_path, scenario, server)

        async def expires(sink: SpoolSink, written: WrittenEpoch) -> None:
            await deliver(sink, written)
            server.engine.faults.rule(Fault(FaultKind.EXPIRED_PARTITION), times=1000)

        monkeypatch.setattr(SpoolSink, "deliver_written", expires)
        with pytest.raises(DataLostError) as raised:
            done(config, on_executors(spark))
    (manifest,) = manifests(config)
    assert raised.value.exit_code == 3
    assert str(raised.value).startswith(f"what was committed after {format_rfc3339(manifest.watermark_high)} ")
    assert " is lost" in str(raised.value)
    assert f"spanner-cdc spool {config.spool.path} --restart-at TIMESTAMP" in str(raised.value)
