"""Spanner's retention expires while the daemon is down: it reports the lost range, skips nothing, and can restart."""

import json
import time
from pathlib import Path

import grpc
import pytest

from connector.core.timestamps import format_rfc3339, parse
from emulator import Workload
from tests.faults.proxy import Call, CallFault, proxied
from tests.integration.commands import Section, configuration, manifests, reading, run, watermark
from tests.integration.delivered import assert_delivered
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit

pytestmark = pytest.mark.emulator


def initial(call: Call) -> bool:
    return call.reads_changes and not call.token


def retained_from(earliest: str, **options: object) -> CallFault:
    """Returns the fault of a Spanner that retains nothing from before `earliest`."""
    message = (
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp within the earliest read"
        f" timestamp: {earliest}. Received start_timestamp: 2026-01-01T00:00:00Z."
    )
    return CallFault(grpc.StatusCode.OUT_OF_RANGE, message, times=1000, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["googlesql", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_a_range_lost_while_the_daemon_was_down_is_reported_and_a_gap_lets_it_continue(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=81)
    spool = tmp_path / "spool"
    with proxied(sample.host) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        config = configuration(tmp_path, sample, source=source)
        with reading(config) as daemon:
            workload.run(mods=30)
            last = workload.committed[-1].commit_timestamp_ns
            daemon.until(lambda: watermark(spool) >= last, "all sealed")
            running = run("spool", spool, "--restart-at", format_rfc3339(time.time_ns()))
            assert running.code == 1
            assert f"written by another daemon (process {daemon.process.pid})" in running.complaint
            assert daemon.stop().code == 0
        before = list(workload.committed)
        sealed, low = len(manifests(spool)), format_rfc3339(watermark(spool))
        workload.run(mods=30)

        earliest = format_rfc3339(time.time_ns())
        lost = retained_from(earliest, matches=lambda call: call.reads_changes)
        proxy.inject(lost)
        for command, code in (("read", 3), ("check", 2)):
            done = run(command, config)
            assert done.code == code, done.err
            assert f"committed after {low} and before {earliest} is lost" in done.complaint
            assert f"spanner-cdc spool {spool} --restart-at TIMESTAMP" in done.complaint
        assert lost.injected
        assert len(manifests(spool)) == sealed
        lost.times = 0

        # This timestamp is too old once the daemon queries it: the range is reported again, and another gap helps.
        too_early = format_rfc3339(time.time_ns())
        assert run("spool", spool, "--restart-at", too_early).code == 0
        workload.run(mods=10)
        later = format_rfc3339(time.time_ns())
        lost = retained_from(later, matches=initial)
        proxy.inject(lost)
        done = run("read", config)
        assert done.code == 3, done.err
        assert f"and before {later} is lost" in done.complaint
        lost.times = 0
        assert run("spool", spool, "--restart-at", later).code == 0

        workload.run(mods=30)
        end: Section = {**source, "end": last_commit(workload)}
        done = run("read", configuration(tmp_path, sample, source=end))
        assert done.code == 0, done.err
        assert " WARNING the spool continues after a gap" in done.err
    kept = assert_delivered(
        spool,
        [*before, *(mod for mod in workload.committed if mod.commit_timestamp_ns >= parse(later))],
        official=sample,
    )
    assert len(workload.committed) > sum(manifest.rows for manifest in kept), "nothing was lost"
    assert [manifest.epoch for manifest in kept if manifest.gap] == [sealed + 1, sealed + 2]
    report = json.loads(run("spool", spool, "--json").out)
    assert [gap["epoch"] for gap in report["gaps"]] == [sealed + 1, sealed + 2]
    assert report["gaps"][0]["watermark_low"] == low
    assert b"GAP, epoch" in run("spool", spool).out


def test_retention_that_expires_while_the_daemon_reads_ends_it_with_what_was_sealed(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=82)
    expired = CallFault(
        grpc.StatusCode.OUT_OF_RANGE,
        "This partition is no longer valid. All Change Stream records associated with this partition have expired",
        matches=lambda call: call.reads_partition,
        times=1000,
    )
    with proxied(sample.host) as proxy:
        source: Section = {"start": format_rfc3339(time.time_ns()), "emulator_host": proxy.host}
        with reading(configuration(tmp_path, sample, source=source)) as daemon:
            workload.run(mods=30)
            last = workload.committed[-1].commit_timestamp_ns
            daemon.until(lambda: watermark(tmp_path / "spool") >= last, "all sealed")
            proxy.inject(expired)
            done = daemon.wait()
    assert done.code == 3
    reached = format_rfc3339(watermark(tmp_path / "spool"))
    assert f"what was committed after {reached} is lost, up to when Spanner does not say" in done.complaint
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


def test_if_retention_expires_before_the_first_seal_another_start_is_proposed(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    start = format_rfc3339(time.time_ns())
    with proxied(sample.host) as proxy:
        source: Section = {"start": start, "emulator_host": proxy.host}
        config = configuration(tmp_path, sample, source=source, spool={"seal_interval": "10m"})
        lost = retained_from(format_rfc3339(time.time_ns()), matches=lambda call: call.reads_partition)
        proxy.inject(lost)
        done = run("read", config)
    assert done.code == 3
    assert "Choose a later source.start" in done.complaint
