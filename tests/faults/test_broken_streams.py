"""Streams that break, fall silent or lose their session are resumed: nothing is lost or duplicated."""

import time
from pathlib import Path

import grpc
import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, Workload
from tests.faults.link import linked
from tests.faults.proxy import SILENCE, Call, CallFault, proxied
from tests.integration.commands import Background, Section, configuration, reading, run, watermark
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit, load

pytestmark = pytest.mark.emulator

Code = grpc.StatusCode


def partition(call: Call) -> bool:
    return call.reads_partition


def faults() -> list[CallFault]:
    """Returns every kind of fault of a stream, some at its first message, some after a few, on several partitions."""
    return [
        CallFault(Code.UNAVAILABLE, "initial query", times=2),
        CallFault(Code.CANCELLED, "not by us", times=1),
        CallFault(Code.UNAVAILABLE, "Socket closed", matches=partition, after=3, times=2),
        CallFault(
            Code.NOT_FOUND, "Session not found: projects/p/instances/i/databases/d/sessions/s", matches=partition
        ),
        CallFault(Code.NOT_FOUND, "Session not found: x", matches=partition, after=2, times=2),
        CallFault(Code.CANCELLED, "", matches=partition, after=1, times=2),
        CallFault(Code.INTERNAL, "Received RST_STREAM with error code 2", matches=partition, after=4),
        CallFault(Code.UNKNOWN, "Stream removed", matches=partition, after=2),
        CallFault(Code.ABORTED, "", matches=partition, after=1),
        CallFault(Code.RESOURCE_EXHAUSTED, "quota", matches=partition),
        CallFault(Code.DEADLINE_EXCEEDED, "", matches=partition, after=5),
        CallFault(Code.OK, "", matches=partition, after=3, times=2),
        CallFault(Code.UNAVAILABLE, "no session", matches=lambda call: call.method.endswith("CreateSession"), times=2),
    ]


def read_to(last: str, sample: SampleDatabase, folder: Path, source: Section) -> None:
    done = run("read", configuration(folder, sample, source={**source, "end": last}))
    assert done.code == 0, done.err
    assert "incomplete" not in done.err


def await_watermark(daemon: Background, folder: Path, workload: Workload) -> None:
    last = workload.committed[-1].commit_timestamp_ns
    daemon.until(lambda: watermark(folder / "spool") >= last, "everything sealed")


def await_progress(daemon: Background, folder: Path) -> None:
    """Waits for the watermark to pass the current time."""
    now = time.time_ns()
    daemon.until(lambda: watermark(folder / "spool") > now, "the watermark has passed the current time")


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_nothing_is_lost_or_duplicated_whatever_breaks_a_stream(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=51)
    script = faults()
    with proxied(sample.host, *script) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        with reading(configuration(tmp_path, sample, source=source), until_reading=False) as daemon:
            with load(workload, rate=40):
                daemon.until(lambda: all(fault.times == 0 for fault in script), "every fault")
            await_watermark(daemon, tmp_path, workload)
            assert daemon.stop().code == 0
        assert "is sent again" in daemon.said
    assert all(fault.injected for fault in script), [fault for fault in script if not fault.injected]
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


@pytest.mark.long
def test_nothing_is_lost_when_connections_are_cut_or_the_server_restarts(
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
    read_to(last_commit(workload), sample, tmp_path, {"start": source["start"]})
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


@pytest.mark.slow
def test_nothing_is_lost_in_an_outage_while_the_reader_waits_for_its_end(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=54)
    # the clock is queried once when the stream is opened, and again once the queries have ended at the end
    denied = CallFault(Code.UNAVAILABLE, "outage", matches=lambda call: "CURRENT_TIMESTAMP" in call.sql, times=0)
    with proxied(sample.host, denied) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        source["end"] = format_rfc3339(time.time_ns() + 6 * SECOND)
        with reading(configuration(tmp_path, sample, source=source)) as daemon:
            denied.times = 1000
            workload.run(mods=30)
            daemon.await_log("does not answer")  # the client has given up once
            denied.times = 0
            assert daemon.wait().code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


@pytest.mark.slow  # 30 s of silence; seeds of the campaign and cases of tests/peers have shorter ones
def test_a_stream_that_is_open_but_silent_is_cancelled_and_queried_again(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=53)
    silent = CallFault(SILENCE, matches=partition, after=2)
    with proxied(sample.host, silent) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        with reading(configuration(tmp_path, sample, source=source)) as daemon:
            workload.run(mods=40)
            daemon.await_log("no message for 30 s")
            await_watermark(daemon, tmp_path, workload)
            assert daemon.stop().code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)
