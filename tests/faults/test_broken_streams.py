"""Streams that break, fall silent or lose their session are read on: nothing is lost, nothing comes twice."""

import time
from pathlib import Path

import grpc
import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, Workload
from tests.faults.link import linked
from tests.faults.proxy import SILENCE, Call, Trouble, proxied
from tests.integration.commands import Background, Section, configuration, reading, run, watermark
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.test_read import last_commit, load

pytestmark = pytest.mark.emulator

Code = grpc.StatusCode


def partition(call: Call) -> bool:
    return call.reads_partition


def troubles() -> list[Trouble]:
    """One of each that a stream may meet, some at its first message, some after a few, on several partitions."""
    return [
        Trouble(Code.UNAVAILABLE, "initial query", times=2),
        Trouble(Code.CANCELLED, "not by us", times=1),
        Trouble(Code.UNAVAILABLE, "Socket closed", meets=partition, after=3, times=2),
        Trouble(Code.NOT_FOUND, "Session not found: projects/p/instances/i/databases/d/sessions/s", meets=partition),
        Trouble(Code.NOT_FOUND, "Session not found: x", meets=partition, after=2, times=2),
        Trouble(Code.CANCELLED, "", meets=partition, after=1, times=2),
        Trouble(Code.INTERNAL, "Received RST_STREAM with error code 2", meets=partition, after=4),
        Trouble(Code.UNKNOWN, "Stream removed", meets=partition, after=2),
        Trouble(Code.ABORTED, "", meets=partition, after=1),
        Trouble(Code.RESOURCE_EXHAUSTED, "quota", meets=partition),
        Trouble(Code.DEADLINE_EXCEEDED, "", meets=partition, after=5),
        Trouble(Code.OK, "", meets=partition, after=3, times=2),
        Trouble(Code.UNAVAILABLE, "no session", meets=lambda call: call.method.endswith("CreateSession"), times=2),
    ]


def finished_at(last: str, sample: SampleDatabase, folder: Path, source: Section) -> None:
    done = run("read", configuration(folder, sample, source={**source, "end": last}))
    assert done.code == 0, done.err
    assert "incomplete" not in done.err


def await_watermark(daemon: Background, folder: Path, workload: Workload, *, timeout: float = 60) -> None:
    last = workload.committed[-1].commit_timestamp_ns
    daemon.until(lambda: watermark(folder / "spool") >= last, "everything sealed", timeout=timeout)


def await_progress(daemon: Background, folder: Path) -> None:
    """Waits for the watermark to pass what is committed by now."""
    now = time.time_ns()
    daemon.until(lambda: watermark(folder / "spool") > now, "the watermark has passed this moment")


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_every_way_in_which_a_stream_may_break_is_come_through(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=51)
    script = troubles()
    with proxied(sample.host, *script) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        with reading(configuration(tmp_path, sample, source=source), until_reading=False) as daemon:
            with load(workload, rate=40):
                daemon.until(lambda: all(trouble.times == 0 for trouble in script), "every trouble", timeout=90)
            await_watermark(daemon, tmp_path, workload)
            assert daemon.stop().code == 0
        assert "is sent again" in daemon.said
    assert all(trouble.struck for trouble in script), [trouble for trouble in script if not trouble.struck]
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


def test_connections_that_are_cut_and_a_server_that_goes_and_comes_cost_nothing(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=52)
    with proxied(sample.host) as proxy, linked(proxy.host) as link:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": link.host}
        with reading(configuration(tmp_path, sample, source=source)) as daemon, load(workload, rate=40):
            for _ in range(3):
                connections = link.connections
                assert link.cut()
                await_progress(daemon, tmp_path)
                assert link.connections > connections
            proxy.down()
            daemon.await_log("UNAVAILABLE")
            proxy.up()
            await_progress(daemon, tmp_path)
            link.fall_silent()
            committed = len(workload.committed)
            daemon.until(lambda: len(workload.committed) > committed + 40, "commits in the silence")
            link.speak()
            await_progress(daemon, tmp_path)
            assert daemon.stop().code == 0
    finished_at(last_commit(workload), sample, tmp_path, {"start": source["start"]})
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


@pytest.mark.slow
def test_an_outage_while_the_end_is_waited_for_is_come_through(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=54)
    # the clock is asked once when the stream is opened, and again once the queries have ended at the end
    denied = Trouble(Code.UNAVAILABLE, "outage", meets=lambda call: "CURRENT_TIMESTAMP" in call.sql, times=0)
    with proxied(sample.host, denied) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        source["end"] = format_rfc3339(time.time_ns() + 6 * SECOND)
        with reading(configuration(tmp_path, sample, source=source)) as daemon:
            denied.times = 1000
            workload.run(mods=30)
            daemon.await_log("does not answer", timeout=60)  # the client has given up once
            denied.times = 0
            assert daemon.wait().code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


@pytest.mark.slow  # 30 s of silence; the campaign's seeds, and the cases of tests/peers, are silent for less
def test_a_stream_that_looks_alive_and_says_nothing_is_given_up_and_asked_again(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=53)
    silent = Trouble(SILENCE, meets=partition, after=2)
    with proxied(sample.host, silent) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        with reading(configuration(tmp_path, sample, source=source)) as daemon:
            workload.run(mods=40)
            daemon.await_log("no message for 30 s", timeout=60)
            await_watermark(daemon, tmp_path, workload)
            assert daemon.stop().code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)
