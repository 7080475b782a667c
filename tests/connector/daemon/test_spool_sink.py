"""The daemon's sink prunes in the background: a failed prune drains the reader, unless reading is over."""

import asyncio
import threading
from pathlib import Path

import pytest

from connector.core.timestamps import SECOND
from connector.daemon import spool_sink
from connector.daemon.spool_sink import SpoolSink
from connector.errors import SpoolError
from connector.reader.stopping import StopRequest
from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.retention.pruning import SpoolRetention
from connector.spool.writing import initialize
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.health import raised
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_thread
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, sealed, writer_of


class Prunes:
    """Prunes of a writer that fail as soon as they may."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.may_fail = threading.Event()

    def prune(self, retention: SpoolRetention, **_: object) -> None:
        """Fails."""
        self.started.set()
        assert self.may_fail.wait(60)
        raise SpoolError("the disk is gone")


@pytest.fixture
def prunes(monkeypatch: pytest.MonkeyPatch) -> Prunes:
    prunes = Prunes()
    monkeypatch.setattr(spool_sink, "PRUNE_INTERVAL", 0.0)
    monkeypatch.setattr(SpoolRetention, "prune", lambda retention, **options: prunes.prune(retention, **options))
    return prunes


def sink_of(folder: Path) -> SpoolSink:
    spool = Spool.at(folder / "spool")
    initialize(spool, NAME, AT, "now", [SINGERS])
    return SpoolSink(writer_of(spool), spool, max_bytes=1, metrics=ReaderMetrics())


def test_a_failed_prune_drains_the_reader_and_is_raised(tmp_path: Path, prunes: Prunes) -> None:
    prunes.may_fail.set()

    async def main() -> None:
        stop = StopRequest(drain_timeout=60 * SECOND)
        async with asyncio.timeout(300), sink_of(tmp_path).pruned(stop):
            await stop.wait()

    with pytest.raises(SpoolError, match="the disk is gone"):
        asyncio.run(main())


def test_a_prune_that_fails_once_reading_is_over_asks_for_no_drain(tmp_path: Path, prunes: Prunes) -> None:
    async def main() -> bool:
        stop = StopRequest(drain_timeout=60 * SECOND)
        async with asyncio.timeout(300), sink_of(tmp_path).pruned(stop):
            await asyncio.to_thread(prunes.started.wait, 60)
            asyncio.get_running_loop().call_later(0.1, prunes.may_fail.set)
        return stop.requested

    assert asyncio.run(main()) is False


def test_a_thread_is_waited_for_however_often_its_waiter_is_cancelled() -> None:
    started, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert may_end.wait(60)
        ended.set()

    async def main() -> None:
        waiting = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(started.wait, 60)
        for _ in range(3):
            waiting.cancel()
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.1, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended.is_set()

    asyncio.run(main())


def test_what_is_only_kept_goes_before_the_reader_waits_for_a_full_spool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = Spool.at(tmp_path / "spool")
    initialize(spool, NAME, AT, "now", [SINGERS])
    writer, metrics = writer_of(spool), ReaderMetrics()
    sealed(writer, 6)
    consumers.record(spool, "c", 6, now=NOW)
    sink = SpoolSink(writer, spool, max_bytes=writer.retention.bytes, keep=3600 * SECOND, metrics=metrics)
    assert asyncio.run(sink.room(asyncio.Event()))
    assert spool.floor() == 3, "a fifth of the limit is free again"
    assert metrics.kept_less is not None
    (alarm,) = [one for one in raised(metrics, ConsumerStates(spool)) if one.name == "spool_keeps_less"]
    assert alarm.message.startswith("the spool keeps 4s of the 1h that spool.keep says, since 20")
    assert "the spool is full" not in capsys.readouterr().err


def test_a_full_spool_is_waited_for_while_a_consumer_is_done_with_epochs_of_a_newer_copy(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path / "spool")
    initialize(spool, NAME, AT, "now", [SINGERS])
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 1000, now=NOW)
    sink = SpoolSink(writer, spool, max_bytes=1, metrics=ReaderMetrics())
    stopping = asyncio.Event()
    stopping.set()
    assert not asyncio.run(sink.room(stopping))
    assert writer.retention.strays == ("c",)
