"""The partitions still to be read follow from plans and manifests, whatever was killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.errors import SpoolInUseError
from connector.spool import consumers
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import plans, spool_of
from connector.spool.backfill.sealing import BackfillWriter, discard_continued, progress, remaining
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool
from connector.spool.storage import store
from connector.spool.storage.store import FileStore
from connector.spool.writing import sole_writer
from tests.connector.spool.backfill.builders import T, planned, recorded, segment, spool_with_start


@contextmanager
def backfill(*tables: str, at: str = "") -> Iterator[tuple[Spool, Spool, Backfill]]:
    with TemporaryDirectory() as folder:
        spool, header = spool_with_start(at or Path(folder))
        document = recorded(spool, header, *tables)
        yield spool, spool_of(spool, document.number), document


def opened(own: Spool, document: Backfill) -> BackfillWriter:
    return BackfillWriter(own, own.header(), document)


def seal(writer: BackfillWriter, own: Spool, part: BackfillPart, ids: list[int]) -> None:
    files = [segment(own, part.table, ids, epoch=writer.epoch + 1)] if ids else []
    writer.seal(part, files, now=T)


def with_all_sealed(spool: Spool, own: Spool, document: Backfill, partitions: int) -> BackfillWriter:
    """The writer of a backfill of table A, after each of its partitions, of a row each."""
    planned(spool, document, {"A": partitions})
    writer = opened(own, document)
    for partition in range(partitions):
        seal(writer, own, BackfillPart(table="A", plan=1, partition=partition), [partition])
    return writer


def test_tables_without_a_plan_are_to_be_planned() -> None:
    with backfill("A", "B") as (spool, own, document):
        planned(spool, document, {"B": 1})
        assert remaining(document, plans(own, document.tables), [])[0] == [0]


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_after_any_kill_exactly_the_partitions_that_are_not_sealed_are_left(seed: int) -> None:
    random = Random(seed)
    with backfill("A", "B") as (spool, own, document):
        counts = {"A": random.randint(1, 4), "B": random.randint(1, 4)}
        planned(spool, document, counts)
        expected = {(table, index) for table, count in counts.items() for index in range(count)}
        while expected:
            writer = opened(own, document)  # each is a process that was killed after some seals
            _, left = remaining(document, plans(own, document.tables), writer.sealed)
            assert {(one.part.table, one.part.partition) for one in left} == expected
            for one in left[: random.randint(0, 3)]:
                seal(writer, own, one.part, list(range(random.randint(0, 3))))
                expected.discard((one.part.table, one.part.partition))
            segment(own, "A", [1], epoch=writer.epoch + 1, name="left")
        writer = opened(own, document)
        assert remaining(document, plans(own, document.tables), writer.sealed) == ([], [])
        writer.sweep()  # as once the backfill is done
        manifests = list(own.manifests(1, own.latest()))
        listed = {file.path for manifest in manifests for file in manifest.files}
        assert {f"segments/{name}" for name in own.storage.list("segments")} == listed
        assert [manifest.watermark_high for manifest in manifests] == [T] * len(manifests)


def test_segments_of_a_writer_that_may_be_alive_stay_until_it_cannot_seal_them_any_more(spool_path: str) -> None:
    with backfill("A", at=spool_path) as (spool, own, document):
        planned(spool, document, {"A": 3})
        parts = [BackfillPart(table="A", plan=1, partition=partition) for partition in range(3)]
        former = opened(own, document)
        theirs = [segment(own, "A", [epoch], epoch=epoch, name="theirs") for epoch in (1, 2, 3)]
        later = opened(own, document)
        former.seal(parts[0], theirs[:1], now=T)
        assert list(own.batches(theirs[0])), "a manifest lists segments that are there"
        with pytest.raises(SpoolInUseError):
            seal(later, own, parts[0], [0])

        last = opened(own, document)
        seal(last, own, parts[1], [2])
        assert [own.storage.exists(one.path) for one in theirs] == [True, False, True]
        with pytest.raises(SpoolInUseError):
            former.seal(parts[1], theirs[1:2], now=T)
        seal(last, own, parts[2], [3])
        assert [own.storage.exists(one.path) for one in theirs] == [True, False, False]
        assert sorted(own.storage.list("segments")) == sorted(
            file.path.removeprefix("segments/") for one in own.manifests(1, 3) for file in one.files
        )


def test_a_new_plan_leaves_all_partitions_of_its_table_and_none_of_the_others() -> None:
    with backfill("A", "B") as (spool, own, document):
        planned(spool, document, {"A": 2, "B": 1})
        writer = opened(own, document)
        seal(writer, own, BackfillPart(table="A", plan=1, partition=0), [1])
        seal(writer, own, BackfillPart(table="B", plan=1, partition=0), [1])
        planned(spool, document, {"A": 3}, plan=2)
        _, left = remaining(document, plans(own, document.tables), writer.sealed)
        assert [(one.part.table, one.part.plan, one.part.partition) for one in left] == [
            ("A", 2, 0),
            ("A", 2, 1),
            ("A", 2, 2),
        ]


def test_a_table_is_read_once_all_is_sealed_and_done_once_all_is_delivered() -> None:
    with backfill("A", "B") as (spool, own, document):
        found = planned(spool, document, {"A": 2, "B": 1})
        writer = opened(own, document)

        def states(delivered: int) -> list[str]:
            state = progress(document, found, writer.sealed, delivered=delivered, now=T)
            return [table.state for table in state.tables]

        assert states(0) == ["planned", "planned"]
        seal(writer, own, BackfillPart(table="A", plan=1, partition=0), [1, 2])
        assert states(0) == ["reading", "planned"]
        seal(writer, own, BackfillPart(table="A", plan=1, partition=1), [3])
        assert states(1) == ["read", "planned"]
        assert states(2) == ["done", "planned"]
        seal(writer, own, BackfillPart(table="B", plan=1, partition=0), [])
        assert states(3) == ["done", "done"]
        report = progress(document, found, writer.sealed, delivered=3, now=T)
        assert report.is_done
        assert [(table.partitions, table.planned, table.rows) for table in report.tables] == [(2, 2, 3), (1, 1, 0)]


def test_a_failure_is_reported_for_the_tables_that_are_not_read() -> None:
    with backfill("A", "B") as (spool, own, document):
        found = planned(spool, document, {"A": 1, "B": 1})
        writer = opened(own, document)
        seal(writer, own, BackfillPart(table="A", plan=1, partition=0), [1])
        state = progress(document, found, writer.sealed, delivered=0, now=T, failure="too old", lost=True)
        assert [(table.state, table.why) for table in state.tables] == [("read", ""), ("failed", "too old")]
        assert state.lost


def test_segments_that_every_consumer_has_passed_are_deleted_and_their_manifests_stay(spool_path: str) -> None:
    with backfill("A", at=spool_path) as (spool, own, document):
        writer = with_all_sealed(spool, own, document, 3)
        assert writer.prune("files") == 0
        assert len(own.storage.list("segments")) == 3
        consumers.register(own, "files", now=T)
        consumers.record(own, "files", 2, now=T)
        assert writer.prune("files") == 2
        assert own.floor() == 3
        assert [name[:20] for name in own.storage.list("segments")] == [f"{3:020d}"]
        assert len(own.storage.list("manifests")) == 3
        assert own.latest() == 3

        after_restart = opened(own, document)
        assert [one.part.partition for one in after_restart.sealed] == [0, 1, 2]
        assert after_restart.prune("files") == 2
        assert after_restart.undelivered_bytes == writer.undelivered_bytes > 0
        consumers.record(own, "files", 3, now=T)
        assert after_restart.prune("files") == 3
        assert after_restart.undelivered_bytes == 0
        assert len(own.storage.list("segments")) == 1, "the newest epoch stays"


def test_a_consumer_that_registers_while_segments_are_deleted_finds_the_epoch_that_it_starts_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with backfill("A") as (spool, own, document):
        writer, write = with_all_sealed(spool, own, document, 3), store.update
        consumers.record(own, "files", 2, now=T)

        def registering(storage: FileStore, path: str, before: bytes | None, data: bytes) -> None:
            if consumers.find(own, "mine") is None:
                consumers.register(own, "mine", now=T)
            write(storage, path, before, data)

        monkeypatch.setattr(store, "update", registering)
        assert writer.prune("files") == 0
        assert own.floor() == 1
        (first,) = own.manifests(1, 1)
        assert [batch.num_rows for file in first.files for batch in own.batches(file)] == [1]
        consumers.record(own, "mine", 1, now=T)
        assert writer.prune("files") == 1
        assert own.floor() == 2
        assert len(own.storage.list("segments")) == 2


def test_no_segment_is_deleted_before_the_sink_has_registered_whatever_others_have_read() -> None:
    with backfill("A") as (spool, own, document):
        writer = with_all_sealed(spool, own, document, 3)
        consumers.record(own, "mine", 3, now=T)
        assert writer.prune("files") == 0
        assert writer.undelivered_bytes > 0
        assert own.floor() == 1
        assert len(own.storage.list("segments")) == 3
        assert consumers.register(own, "files", now=T).epoch == 0, "it delivers every epoch"
        consumers.record(own, "files", 1, now=T)
        assert writer.prune("files") == 1
        assert own.floor() == 2


def test_a_continued_backfill_keeps_no_segments_but_those_of_a_query_of_ones_own() -> None:
    with backfill("A") as (spool, own, document):
        with_all_sealed(spool, own, document, 2)
        consumers.register(own, "files", now=T)
        second = recorded(spool, spool.header(), "A", at=T + 10_000, continues=1)
        third = recorded(spool, spool.header(), "A", at=T + 20_000, continues=second.number)
        consumers.register(own, "mine", now=T)
        discard_continued(spool, third, ["files"])
        assert len(own.storage.list("segments")) == 2
        consumers.forget(own, "mine")
        with sole_writer(own):
            discard_continued(spool, third, ["files"])
        assert len(own.storage.list("segments")) == 2, "its process is alive"
        discard_continued(spool, third, ["files"])
        assert own.storage.list("segments") == []
        assert own.latest() == 2, "the record of what was read stays"
