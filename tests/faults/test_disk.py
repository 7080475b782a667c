"""A full or read-only disk, corrupt files, and two daemons on one spool."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339, parse
from connector.errors import SpoolError
from connector.spool.reading import Spool
from emulator import Workload
from tests.faults.big_rows import BigRows
from tests.integration.commands import Section, configuration, manifests, reading, run, watermark
from tests.integration.delivered import assert_delivered, assert_sound, returned
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit

pytestmark = pytest.mark.emulator


def mount(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of two megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = mount("-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder))
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_ends_the_daemon_in_one_line_and_with_space_it_continues_without_loss(
    database: MakeDatabase, tmp_path: Path, small_disk: Path
) -> None:
    sample = database()
    big = BigRows(sample)
    source: Section = {"start": format_rfc3339(time.time_ns())}
    spool: Section = {"path": str(small_disk / "spool")}
    (small_disk / "spool").mkdir()  # a new spool is refused where it has no room
    with reading(configuration(tmp_path, sample, source=source, spool=spool)) as daemon:
        for _ in range(10):
            big.commit(10)
        done = daemon.wait()
    assert done.code == 1
    assert "No space left on device" in done.complaint
    assert "Free space" in done.complaint
    assert str(small_disk) in done.complaint
    status = run("status", small_disk / "spool")
    assert status.code == 1
    assert b"No space left on device" in status.out
    assert_sound(small_disk / "spool", manifests(small_disk / "spool"))
    check = run("check", configuration(tmp_path, sample, source=source, spool=spool))
    assert check.code == 2
    assert "MB are free" in check.complaint

    assert mount("-o", "remount,size=200m", str(small_disk)).returncode == 0
    end: Section = {**source, "end": format_rfc3339(big.last_commit_ns)}
    assert run("read", configuration(tmp_path, sample, source=end, spool=spool)).code == 0
    delivered = assert_sound(small_disk / "spool", manifests(small_disk / "spool"))
    left = returned(sample, big.committed, (parse(row["source_metadata"]["commit_timestamp"]) for row in delivered))
    assert len(delivered) == len(left)
    assert len({row["uuid"] for row in delivered}) == len(left)


@pytest.mark.long
def test_a_read_only_disk_is_reported_in_one_line_and_once_writable_the_daemon_continues(
    database: MakeDatabase, tmp_path: Path, small_disk: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=61)
    source: Section = {"start": format_rfc3339(time.time_ns())}
    spool: Section = {"path": str(small_disk / "spool")}
    (small_disk / "spool").mkdir()  # a new spool is refused where it has no room
    with reading(configuration(tmp_path, sample, source=source, spool=spool)) as daemon:
        workload.run(mods=10)
        daemon.until(lambda: bool(manifests(small_disk / "spool")), "an epoch")
        assert daemon.stop().code == 0
    # a disk cannot be remounted read-only while a file on it is open for writing
    assert mount("-o", "remount,ro", str(small_disk)).returncode == 0
    workload.run(mods=10)
    again = run("read", configuration(tmp_path, sample, source=source, spool=spool))
    assert again.code == 2
    assert again.complaint.endswith("cannot be written to: its file system is read-only")
    assert mount("-o", "remount,rw", str(small_disk)).returncode == 0
    end: Section = {**source, "end": last_commit(workload)}
    assert run("read", configuration(tmp_path, sample, source=end, spool=spool)).code == 0
    assert_delivered(small_disk / "spool", workload.committed, official=sample)


@pytest.fixture
def filled(database: MakeDatabase, tmp_path: Path) -> tuple[Path, Path]:
    """A configuration, and its spool of a few epochs that was read to its end."""
    sample = database()
    source: Section = {"start": format_rfc3339(time.time_ns())}
    workload = Workload(sample, seed=62)
    workload.run(seconds=1, rate=30)
    config = configuration(tmp_path, sample, source={**source, "end": last_commit(workload)})
    assert run("read", config).code == 0
    return config, tmp_path / "spool"


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x01
    path.write_bytes(data)


@pytest.mark.long
def test_a_corrupt_manifest_stops_the_reader_and_is_named(filled: tuple[Path, Path]) -> None:
    config, spool = filled
    broken = sorted((spool / "manifests").iterdir())[-1]
    damage(broken)
    for command, code in (("read", 1), ("check", 2)):
        done = run(command, config)
        assert done.code == code, done.err
        assert f"corrupt file {broken}" in done.complaint
    report = run("spool", spool)
    assert report.code == 1
    assert f"corrupt file {broken}" in report.complaint


def test_a_corrupt_segment_and_a_missing_schema_are_named_by_readers_and_by_check(
    filled: tuple[Path, Path],
) -> None:
    config, spool = filled
    segment = min((spool / "segments").iterdir())
    schema = min((spool / "schemas").iterdir())
    damage(segment)
    schema.unlink()
    opened = Spool.at(spool)
    manifest = next(m for m in manifests(spool) if m.files and segment.name in m.files[0].path)
    with pytest.raises(SpoolError, match=segment.name) as caught:
        list(opened.batches(manifest.files[0]))
    assert caught.value.exit_code == 1
    done = run("check", config)
    assert done.code == 2
    assert f"corrupt file {segment}" in done.complaint
    assert f"corrupt file {schema}" in done.complaint


def test_a_second_daemon_on_a_spool_is_rejected_and_the_first_continues(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    workload = Workload(sample, seed=63)
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    with reading(config) as first:
        second = run("read", config)
        assert second.code == 1
        assert "written by another daemon" in second.complaint
        assert f"process {first.process.pid}" in second.complaint
        workload.run(mods=20)
        last = workload.committed[-1].commit_timestamp_ns
        first.until(lambda: watermark(tmp_path / "spool") >= last, "everything sealed")
        assert first.stop().code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)
