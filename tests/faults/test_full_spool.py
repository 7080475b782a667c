"""A full spool: the reader waits in bounded memory, and continues once its consumers do."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from connector.core.timestamps import format_rfc3339
from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.summaries import held_bytes
from tests.faults.big_rows import MB, BigRows
from tests.integration.commands import configuration, manifests, reading, until, watermark
from tests.integration.delivered import returned, rows
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

CONSUMER = "stopped"


@contextmanager
def in_background(work: BigRows, size: int) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work.commit_bytes, args=(size,), name="load")
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


@pytest.mark.parametrize(
    ("limit", "load"),
    [
        (5 * MB, 30 * MB),
        pytest.param(50 * MB, 300 * MB, marks=pytest.mark.slow),
    ],
    ids=["5MB", "50MB"],
)
def test_the_reader_waits_for_a_stopped_consumer_in_bounded_memory_and_then_loses_nothing(
    limit: int, load: int, database: MakeDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = database()
    big = BigRows(sample)
    path = tmp_path / "spool"
    spool = Spool.at(path)
    consumers.register(spool, CONSUMER, now=time.time_ns())
    config = configuration(
        tmp_path, sample, source={"start": format_rfc3339(time.time_ns())}, spool={"max_bytes": limit}
    )
    with reading(config) as daemon:
        with in_background(big, load):
            daemon.await_log("the spool is full")
            stopped_at = spool.latest()
        assert CONSUMER in daemon.said
        held = held_bytes(spool.summaries(1, spool.latest()))
        assert limit <= held < limit + 80 * MB
        assert spool.latest() == stopped_at
        assert watermark(path) < big.last_commit_ns

        seen: list[int] = []
        done = 0

        def consume() -> bool:
            nonlocal done
            while done < spool.latest():
                manifest = spool.manifest(done + 1)
                assert manifest.epoch == done + 1
                seen.extend(int(orjson.loads(row["payload"])["Id"]) for row in rows(path, manifest))
                done += 1
                consumers.record(spool, CONSUMER, done, now=time.time_ns())
                assert sum(file.stat().st_size for file in (path / "segments").glob("*.arrow")) < limit + 160 * MB
            return done == spool.latest() and watermark(path) >= big.last_commit_ns

        until(consume, "all rows", more=lambda: daemon.said)
        memory = daemon.peak_memory
        assert daemon.stop().code == 0
    left = returned(sample, big.committed, (big.committed[number].commit_timestamp_ns for number in seen))
    assert seen == [int(str(mod.keys["Id"])) for mod in left]
    with capsys.disabled():
        os.write(
            1, f"\npeak memory {memory // MB} MB with a limit of {limit // MB} MB, {load // MB} MB read\n".encode()
        )
    assert memory < 400 * MB


def test_a_spool_whose_newest_epoch_exceeds_its_limit_continues_once_it_is_consumed(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    big = BigRows(sample)
    spool = Spool.at(tmp_path / "spool")
    consumers.register(spool, CONSUMER, now=time.time_ns())
    source = {"start": format_rfc3339(time.time_ns())}
    with reading(configuration(tmp_path, sample, source=source, spool={"max_bytes": "10KB"})) as daemon:
        big.commit()
        daemon.until(lambda: bool(manifests(tmp_path / "spool")), "an epoch larger than the spool may be")
        big.commit()
        daemon.await_log("the spool is full")
        consumers.record(spool, CONSUMER, spool.latest(), now=time.time_ns())

        def consumed() -> bool:
            consumers.record(spool, CONSUMER, spool.latest(), now=time.time_ns())
            return watermark(tmp_path / "spool") >= big.last_commit_ns

        daemon.until(consumed, "the reader continues")
        assert daemon.stop().code == 0
