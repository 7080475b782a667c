"""Summaries of many epochs: derived from manifests, and never believed against them."""

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from benchmarks import restart
from connector.cli.spool_reports import spool_report
from connector.daemon import read, spool_sink
from connector.errors import SpoolError
from connector.progress import Progress
from connector.spool import consumers, summaries
from connector.spool import reading as spool_module
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool, manifest_path
from connector.spool.storage.local import LocalStore
from connector.spool.summaries import EpochSummary, block_path, to_block
from connector.spool.writing import initialize
from connector.telemetry.metrics import ReaderMetrics
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, KilledError, numbers, sealed, writer_of

BLOCK = 10


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "BLOCK", BLOCK)
    monkeypatch.setattr(spool_module, "_FEW", 0)


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


class Reads:
    """The reads from a spool's storage."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spool: Spool) -> None:
        self.paths: list[str] = []
        read = type(spool.storage).read

        def noted(storage: LocalStore, path: str) -> object:
            self.paths.append(path)
            return read(storage, path)

        monkeypatch.setattr(type(spool.storage), "read", noted)

    def manifests(self) -> list[int]:
        """The epochs whose manifests were read since this was asked."""
        read = sorted({int(path[-25:-5]) for path in self.paths if path.startswith("manifests/")})
        self.paths.clear()
        return read


def blocks(spool: Spool) -> list[int]:
    return [int(name[:-5]) for name in spool.storage.list("summaries")]


def truth(spool: Spool, first: int, last: int) -> list[EpochSummary]:
    sizes = [spool.storage.read(manifest_path(epoch)).size for epoch in range(first, last + 1)]
    manifests: Iterable[Manifest] = spool.manifests(first, last)
    return [EpochSummary.of(manifest, size) for manifest, size in zip(manifests, sizes, strict=True)]


def test_a_restart_reads_the_summaries_and_only_the_manifests_that_follow(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(spool)
    sealed(writer, 34)
    assert blocks(spool) == [10, 20, 30]
    reads = Reads(monkeypatch, spool)
    again = writer_of(spool)
    assert reads.manifests() == [10, 20, 30, 31, 32, 33, 34]
    assert (again.epoch, again.retention.bytes) == (34, writer.retention.bytes)
    sealed(again)
    assert reads.manifests() == []


def test_what_summaries_say_is_what_manifests_say(spool: Spool) -> None:
    writer = writer_of(spool)
    for _ in range(5):
        sealed(writer, 7)
        writer = writer_of(spool)
    for first, last in ((1, 35), (1, 10), (5, 14), (10, 11), (30, 31), (31, 35), (17, 17), (36, 35)):
        assert list(spool.summaries(first, last)) == truth(spool, first, last)


def test_the_newest_epoch_is_found_after_the_newest_summary(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(writer_of(spool), 23)
    listed: list[tuple[str, str]] = []
    names = type(spool.storage).list

    def noted(storage: LocalStore, folder: str, start: str = "", end: str = "") -> list[str]:
        listed.append((folder, start))
        return names(storage, folder, start, end)

    monkeypatch.setattr(type(spool.storage), "list", noted)
    assert Spool(spool.storage).latest() == 23
    assert listed == [("summaries", ""), ("manifests", f"{20:020d}")]


@pytest.mark.long(but=3)
@pytest.mark.parametrize("damage", ["missing", "cut", "flip", "empty", "newer", "another", "gap"])
def test_a_summary_that_is_not_valid_is_ignored_and_replaced(
    spool: Spool, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(writer_of(spool), 34)
    path = block_path(20)
    data = spool.storage.read(path).to_pybytes()
    other = [*truth(spool, 11, 19), *truth(spool, 21, 21)]
    match damage:
        case "missing":
            spool.storage.delete(path)
        case "cut":
            spool.storage.replace(path, data[:-7])
        case "flip":
            spool.storage.replace(path, data.replace(b'"Singers"', b'"Singerz"', 1))
        case "empty":
            spool.storage.replace(path, b"")
        case "newer":
            spool.storage.replace(path, data.replace(b'"version":1', b'"version":2'))
        case "another":
            spool.storage.replace(path, to_block(other))
        case _:
            spool.storage.replace(path, to_block([*truth(spool, 11, 14), *truth(spool, 16, 20)]))
    assert list(spool.summaries(1, 34)) == truth(spool, 1, 34)
    reads = Reads(monkeypatch, spool)
    again = writer_of(spool)
    assert set(reads.manifests()) >= set(range(11, 20))
    sealed(again)
    assert spool.storage.read(path).to_pybytes() == data


def test_a_spool_of_a_program_without_summaries_is_read_and_summarized_after_the_first_seal(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 34)
    consumers.record(spool, "c", 4, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    spool.storage.delete(*(block_path(end) for end in blocks(spool)))
    again = writer_of(spool)
    assert again.retention.bytes == writer.retention.bytes
    assert blocks(spool) == []
    sealed(again)
    assert blocks(spool) == [10, 20, 30]
    assert writer_of(spool).retention.bytes == again.retention.bytes
    assert list(spool.summaries(5, 35)) == truth(spool, 5, 35)


def test_summaries_are_pruned_with_their_last_epoch(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 34)
    for done, left in ((9, [10, 20, 30]), (10, [20, 30]), (33, [])):
        consumers.record(spool, "c", done, now=NOW)
        writer.retention.prune(now=NOW, grace=0)
        assert blocks(spool) == left
        assert list(spool.summaries(spool.floor(), 34)) == truth(spool, spool.floor(), 34)
        assert writer_of(spool).retention.bytes == writer.retention.bytes


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_a_summary_leaves_the_epoch_and_the_next_writer_summarizes(
    spool: Spool, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(spool)
    sealed(writer, 9)
    replace = type(spool.storage).replace

    def dying(storage: LocalStore, path: str, data: bytes) -> None:
        if not path.startswith("summaries/"):
            replace(storage, path, data)
            return
        if after:
            replace(storage, path, data)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(type(spool.storage), "replace", dying)
        with pytest.raises(KilledError):
            sealed(writer)
    assert numbers(spool) == list(range(1, 11))
    assert blocks(spool) == ([10] if after else [])
    again = writer_of(spool)
    sealed(again)
    assert blocks(spool) == [10]
    assert list(spool.summaries(1, 11)) == truth(spool, 1, 11)


def test_what_a_killed_writer_left_is_swept_before_its_range_is_summarized(spool: Spool) -> None:
    """Also where each writer was killed after its first seal, and before its sweep."""
    orphans = ("segments/00000000000000000004-ffff.arrow", "cuts/00000000000000000004-ffff.json")
    writer = writer_of(spool)
    sealed(writer, 8)
    for path in orphans:
        spool.storage.replace(path, b"of a writer that was killed")
    last = writer_of(spool)
    last.retention._is_sweep_due = False  # as one that was killed before its sweep leaves the spool
    sealed(last)
    assert len(spool.storage.list("segments")) == 10
    sealed(writer_of(spool))
    assert len(spool.storage.list("segments")) == 10
    assert spool.storage.list("cuts") == []
    assert blocks(spool) == [10]


def test_an_older_copy_with_summaries_of_epochs_that_it_has_not_is_read_by_its_manifests(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 24)
    spool.storage.delete(*(manifest_path(epoch) for epoch in range(16, 25)))
    copy = Spool(spool.storage)
    assert copy.latest() == 15
    again = writer_of(copy)
    assert again.epoch == 15
    assert list(copy.summaries(1, 15)) == truth(copy, 1, 15)
    sealed(again, 10, now=NOW + 1)
    assert list(Spool(spool.storage).summaries(1, 25)) == truth(spool, 1, 25)
    assert writer_of(copy).retention.bytes == again.retention.bytes


def test_the_report_of_a_spool_counts_all_that_its_epochs_hold(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 24)
    consumers.record(spool, "c", 20, now=NOW)
    report = spool_report(spool)
    assert report["bytes"] == writer.retention.bytes
    assert report["rows"] == 24
    known = report["consumers"]
    assert isinstance(known, list)
    assert [(consumer["behind_epochs"], consumer["behind_rows"]) for consumer in known] == [(4, 4)]


def test_a_pruned_epoch_is_an_error_for_summaries_too(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 24)
    consumers.record(spool, "c", 12, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    with pytest.raises(SpoolError, match="epoch 10 is not in the spool"):
        list(spool.summaries(10, 24))


def test_a_daemon_says_how_far_it_has_read_a_spool_that_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[dict[str, object]] = []
    clock = iter((0.0, 1.0, 2.0, 3.0, 4.5))
    monkeypatch.setattr(read, "Progress", partial(Progress, clock=lambda: next(clock)))
    monkeypatch.setattr(read._log, "info", lambda message, **fields: said.append(fields))
    reached = read._progress(100)
    for epoch in (10, 20, 30, 40):
        reached(epoch)
    assert said == [{"epoch": 20, "newest_epoch": 100}, {"epoch": 40, "newest_epoch": 100}]


def test_a_daemon_warns_once_a_minute_of_consumers_of_another_copy(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, object]] = []
    monkeypatch.setattr(spool_sink._log, "warning", lambda message, **fields: said.append(fields))
    writer = writer_of(spool)
    sealed(writer, 3)
    sink = spool_sink.SpoolSink(writer, spool, max_bytes=1, metrics=ReaderMetrics())
    consumers.record(spool, "c", 2, now=NOW, at="2026-01-01T00:00:00Z/of another")
    for _ in range(2):
        asyncio.run(sink._prune(grace=0))
    assert said == [{"consumers": "c", "newest_epoch": 3}]
    assert numbers(spool) == [1, 2, 3]


def test_a_restart_over_many_epochs_of_many_partitions_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m benchmarks.restart` measures 100,000 epochs: ready in little more than a second."""
    monkeypatch.undo()
    restart.sealed(str(tmp_path), 1000, 20)
    manifest = Spool.at(tmp_path).manifest(20)
    for epoch in range(21, 5001):
        (tmp_path / manifest_path(epoch)).write_bytes(restart.following(manifest, epoch).to_json())
    writer = restart.opened(str(tmp_path))
    writer.seal(restart.epoch_of(5001), restart.cut_of(1000, 0), now=AT)
    began = time.process_time()
    again = restart.opened(str(tmp_path))
    assert time.process_time() - began < 2.0
    assert (again.epoch, again.retention.bytes) == (5001, writer.retention.bytes)
