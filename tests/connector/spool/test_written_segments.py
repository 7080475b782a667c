"""Epochs whose segments were written by tasks."""

import pytest

from connector.core.changes import Changes
from connector.core.timestamps import SECOND
from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.manifest import PARTS_VERSION, SegmentFile
from connector.spool.reading import Spool
from connector.spool.segments import SegmentBuffer
from connector.spool.summaries import held_bytes
from connector.spool.writing import SpoolWriter, checkpoint, initialize
from tests.connector.builders import AT, record
from tests.connector.spool.sealing import CUT, ENVELOPE, LARGE, NAME, NOW, SINGERS, numbers, sealed, writer_of


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def written(spool: Spool, writer: SpoolWriter, part: str, after: int = 0) -> SegmentFile:
    """A segment of the next epoch, as a task writes it, with one record."""
    buffer = SegmentBuffer()
    at = AT + writer.epoch * SECOND + after
    changes = Changes.of([record(commit_timestamp=at)])
    buffer.append(ENVELOPE.build(changes, writer.registry, writer.epoch + 1))
    path = f"segments/{writer.epoch + 1:020d}-{writer.writer}-{part}.arrow"
    return buffer.store(spool.storage, path, first=at, last=at)


def seal(writer: SpoolWriter, *files: SegmentFile) -> None:
    low = AT - 1 + writer.epoch * SECOND
    writer.seal_written(files, {"Singers": len(files)}, low=low, high=low + SECOND, cut=CUT, now=NOW)


def segments(spool: Spool) -> list[str]:
    return [f"segments/{name}" for name in spool.storage.list("segments")]


def test_an_epoch_has_the_segments_in_the_order_in_which_they_were_given(spool: Spool) -> None:
    writer = writer_of(spool)
    files = [written(spool, writer, "b", 1), written(spool, writer, "a", 2)]
    seal(writer, *files)
    manifest = spool.manifest(1)
    assert manifest.version == PARTS_VERSION  # a program that does not know such names would delete them
    assert manifest.files == tuple(files)
    assert manifest.tables == {"Singers": 2}
    assert manifest.schema_keys == {"Singers": SINGERS.key}
    assert [len(list(spool.batches(file))) for file in manifest.files] == [1, 1]
    after = checkpoint(Spool(spool.storage), spool.header())
    assert (after.epoch, after.watermark, after.cut) == (1, AT - 1 + SECOND, CUT)
    assert writer.retention.bytes == held_bytes(spool.summaries(1, 1))


def test_segments_that_the_manifest_does_not_list_are_deleted_with_the_seal(spool: Spool) -> None:
    killed, writer = writer_of(spool), writer_of(spool)
    written(spool, killed, "a")
    written(spool, writer, "attempt1-0")
    kept = written(spool, writer, "attempt2-0")
    seal(writer, kept)
    assert segments(spool) == [kept.path]


def test_segments_that_a_task_writes_after_the_seal_are_deleted_with_the_next(spool: Spool) -> None:
    writer = writer_of(spool)
    first = written(spool, writer, "attempt1-0")
    seal(writer, first)
    spool.storage.replace(first.path.replace("attempt1", "speculative"), b"of a task that was slower")
    seal(writer, second := written(spool, writer, "a"))
    assert segments(spool) == [first.path, second.path]


def test_segments_that_a_task_writes_after_its_driver_was_killed_are_deleted_by_the_next_driver(spool: Spool) -> None:
    killed = writer_of(spool)
    first = written(spool, killed, "attempt1-0")
    seal(killed, first)
    spool.storage.replace(first.path.replace("attempt1", "speculative"), b"of a task that was slower")
    writer = writer_of(spool)
    seal(writer, second := written(spool, writer, "a"))
    assert segments(spool) == [first.path, second.path]


@pytest.mark.parametrize("method", ["list", "delete"])
def test_an_epoch_that_is_sealed_stays_so_where_other_files_cannot_be_deleted(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise SpoolError("the disk refuses")

    writer = writer_of(spool)
    written(spool, writer, "attempt1-0")
    monkeypatch.setattr(writer._spool.storage, method, refused)
    seal(writer, first := written(spool, writer, "attempt2-0"))
    seal(writer, second := written(spool, writer, "a"))
    assert [one.message for one in caplog.records] == ["the spool cannot be swept; each seal tries again"]
    monkeypatch.undo()
    seal(writer, third := written(spool, writer, "a"))
    assert segments(spool) == [first.path, second.path, third.path]
    assert numbers(spool) == [1, 2, 3]


def test_a_writer_that_starts_over_keeps_the_segments_of_sealed_epochs(spool: Spool) -> None:
    writer = writer_of(spool)
    seal(writer, first := written(spool, writer, "a", 1), second := written(spool, writer, "b", 2))
    sealed(writer)
    again = writer_of(spool)
    sealed(again)
    assert segments(spool)[:2] == [first.path, second.path]
    assert len(segments(spool)) == 4


def test_what_every_consumer_has_passed_is_pruned_with_all_its_segments(spool: Spool) -> None:
    writer = writer_of(spool)
    seal(writer, written(spool, writer, "a", 1), written(spool, writer, "b", 2))
    late = written(spool, writer, "a")
    spool.storage.replace(segments(spool)[0].replace("-a", "-late"), b"of a task that outlived its attempt")
    sealed(writer, 2)
    consumers.record(spool, "c", 2, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == 2
    assert numbers(spool) == [3]
    assert len(segments(spool)) == 1
    assert late.path not in segments(spool)


def test_epochs_without_segments_and_with_large_cuts_are_sealed_like_others(spool: Spool) -> None:
    writer = writer_of(spool)
    writer.seal_written([], {}, low=AT - 1, high=AT, cut=LARGE, now=NOW)
    assert checkpoint(Spool(spool.storage), spool.header()).cut == tuple(sorted(LARGE, key=lambda at: at.token))
    assert spool.manifest(1).files == ()


def test_of_two_writers_one_seals_an_epoch(spool: Spool) -> None:
    first, second = writer_of(spool), writer_of(spool)
    seal(first, written(spool, first, "a"))
    with pytest.raises(SpoolInUseError):
        seal(second, written(spool, second, "a"))
    assert checkpoint(Spool(spool.storage), spool.header()).epoch == 1
