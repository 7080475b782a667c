"""Cuts are published after all tables are committed, once an epoch, in order, also while nothing is committed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from connector.config import validated
from connector.config.backfill_rules import BackfillRules
from connector.config.sink_start import keep_start
from connector.core.epoch import IncompleteTransaction
from connector.core.late_records import LateRecord
from connector.core.records import ChildPartition, ChildPartitionsRecord
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolInUseError
from connector.spool import consumers
from connector.spool.backfill.documents import BackfillProgress, TableProgress
from connector.spool.backfill.equal_tables import keep_equal
from connector.spool.backfill.excluded_tables import keep_patterns
from connector.spool.backfill.records import spool_of, write_progress
from connector.spool.consumers import sink_lock
from connector.spool.destinations import Destination, keep_destination
from connector.spool.late_store import LateStore
from connector.spool.reading import Spool
from connector.spool.sink_report import NOTHING, record_restart, report_of, write_report
from spark_sink.publishing import Publication, publish_without_sink
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import FileDelivery
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.shared.published_cut import CutStore, PublishedCut
from spark_sink.sinks.shared.started_batches import StartedBatch, StartedBatches
from tests.connector.spool.backfill.builders import T, recorded, spool_with_start
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE
from tests.spark_sink.spools import START, SpoolMaker, record

SPARK = cast("SparkSession", None)
NOT_READ = "changes between 2026-03-01T10:00:03.000000Z and 2026-03-01T10:00:29.999999999Z were not read"


class Cuts(CutStore):
    """Published cuts in memory; the version of each table is how often it was asked for."""

    def __init__(self) -> None:
        self.published: list[PublishedCut] = []
        self.asked = 0

    def newest(self) -> PublishedCut | None:
        return self.published[-1] if self.published else None

    def cuts(self) -> Sequence[PublishedCut]:
        return self.published

    def versions(self, tables: Sequence[str]) -> Mapping[str, str]:
        self.asked += 1
        return dict.fromkeys(tables, str(self.asked))

    def publish(self, cut: PublishedCut) -> None:
        self.published.append(cut)


class Delivery(FileDelivery):
    """A delivery whose destination keeps cuts of tables."""

    begins_with_its_start = False

    def __init__(self, spool: Spool, folder: Path, store: CutStore) -> None:
        sink = {"type": "files", "path": str(folder / "out"), "dead_letters": str(folder / "dead-letters")}
        config = validated({"source": SOURCE, "spool": {"path": spool.path}, "sink": sink})
        assert isinstance(config.sink, FilesConfig)
        super().__init__(config, config.sink, Feed.of(config))
        self.store = store

    def cut_store(self, spark: SparkSession) -> CutStore:
        return self.store


@pytest.fixture
def store() -> Cuts:
    return Cuts()


@pytest.fixture
def delivery(spool: SpoolMaker, tmp_path: Path, store: Cuts) -> Delivery:
    """Two tables in two epochs."""
    spool.seal(record(START + SECOND, [1]), record(START + 2 * SECOND, [1], table="Albums"))
    spool.seal(record(START + 3 * SECOND, [2]))
    return Delivery(spool.spool, tmp_path, store)


def done(delivery: Delivery, epoch: int) -> None:
    """A micro-batch that ends with an epoch is done."""
    delivery.done = epoch


def recorded_as_done(spool: Spool, epoch: int) -> None:
    """The spool records that the sink has everything up to an epoch."""
    consumers.record(spool, "files", epoch, now=START, at=spool.manifest(epoch).identity)


def next_cut(spool: SpoolMaker, delivery: Delivery, store: Cuts, *, at: int | None = None) -> Mapping[str, str]:
    """The incomplete tables of the cut after one more epoch, which ends so many seconds after the start."""
    high = spool.watermark + 10 * SECOND if at is None else START + at * SECOND
    done(delivery, spool.seal(high=high))
    Publication(delivery).after_batch(SPARK)
    return store.published[-1].incomplete


def test_a_cut_names_the_watermark_and_every_tables_version(spool: SpoolMaker, delivery: Delivery, store: Cuts) -> None:
    done(delivery, 2)
    publication = Publication(delivery, now=lambda: START + 60 * SECOND)
    publication.before_batch()
    publication.after_batch(SPARK)
    (cut,) = store.published
    assert (cut.timestamp, cut.epoch, cut.spool_id) == (START + 3 * SECOND, 2, spool.spool_id)
    assert cut.published_at == START + 60 * SECOND
    assert {name: (table.version, table.incomplete) for name, table in cut.tables.items()} == {
        "Albums": ("1", ""),
        "Singers": ("1", ""),
    }


def test_the_sinks_report_has_the_newest_cut(spool: SpoolMaker, delivery: Delivery) -> None:
    done(delivery, 1)
    Publication(delivery).after_batch(SPARK)
    report = report_of(spool.spool, "files")
    assert report.cut is not None
    assert (report.cut.timestamp, report.cut.epoch, report.cut.incomplete) == (START + 2 * SECOND, 1, {})


def test_a_micro_batch_that_is_repeated_is_published_once(delivery: Delivery, store: Cuts) -> None:
    for epoch in (1, 1, 2):
        done(delivery, epoch)
        Publication(delivery).after_batch(SPARK)
    assert [cut.epoch for cut in store.published] == [1, 2]


def test_epochs_without_events_are_published_while_no_micro_batch_runs(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    spool.seal(high=START + 9 * SECOND)
    clock = [0.0]
    publication = Publication(delivery, clock=lambda: clock[0])
    publication.look(SPARK)
    assert not store.published, "nothing is known to be done"
    recorded_as_done(spool.spool, 3)
    clock[0] = 60.0
    publication.look(SPARK)
    assert [(cut.epoch, cut.timestamp) for cut in store.published] == [(3, START + 9 * SECOND)]


def test_nothing_is_published_after_a_micro_batch_was_started_whose_tables_may_have_some_of_it(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    recorded_as_done(spool.spool, 1)
    StartedBatches(spool.spool, "files").begin(StartedBatch(first=2, last=2, pinned="options"), done=1)
    Publication(delivery).look(SPARK)
    assert not store.published


@pytest.mark.parametrize("tables", [{"Singers": "its disk is full"}, {}])
def test_a_stopped_table_and_one_with_dead_letters_are_incomplete_with_the_reason(
    spool: SpoolMaker, delivery: Delivery, store: Cuts, tables: dict[str, str]
) -> None:
    write_report(spool.spool, "files", NOTHING.after(1, 3, tables))
    (rows,) = list(spool.spool.batches(spool.spool.manifest(1).files[0]))
    albums = rows.filter(pc.equal(rows.column("object"), "Albums"))
    delivery.dead_letters.put("Albums", "0_files_1_0", albums, ["too long"])
    done(delivery, 2)
    Publication(delivery).after_batch(SPARK)
    expected = {"Singers": "it is stopped: its disk is full"} if tables else {}
    assert store.published[0].incomplete == {**expected, "Albums": "it has dead letters"}


def test_while_a_sinks_store_lacks_its_dead_letters_every_table_is_incomplete(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    document = recorded(spool.spool, spool.spool.header(), "Albums", at=START)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Albums", state="done"),)))
    write_report(own, "files", NOTHING.after(1, 2, {}))
    report = NOTHING.after(1, 3, {}).model_copy(update={"replayed": 3})
    write_report(spool.spool, "files", report)
    why = "dead letters of its sink are not found (2): they may be of it"
    assert next_cut(spool, delivery, store) == {"Albums": why, "Singers": why}
    (rows,) = list(spool.spool.batches(spool.spool.manifest(2).files[0]))
    delivery.dead_letters.put("Singers", "0_files_1_0", rows, ["too long"])
    assert next_cut(spool, delivery, store) == {"Singers": "it has dead letters"}
    delivery.dead_letters.discard("Singers", "0_files_1")
    write_report(spool.spool, "files", report.model_copy(update={"replayed": 5}))
    assert next_cut(spool, delivery, store) == {}


def test_after_a_gap_every_table_is_incomplete_until_a_backfill_heals_it(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    gap = spool.restart_at(START + 30 * SECOND)
    for epoch in (2, gap):
        done(delivery, epoch)
        Publication(delivery).after_batch(SPARK)
    before, after = store.published
    assert (before.incomplete, after.incomplete) == ({}, {"Albums": NOT_READ, "Singers": NOT_READ})
    at = START + 35 * SECOND
    document = recorded(spool.spool, spool.spool.header(), "Albums", at=at)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Albums", state="done"),)))
    consumers.record(own, "second", 1, now=T)
    assert next_cut(spool, delivery, store) == {"Albums": NOT_READ, "Singers": NOT_READ}, "it is another sink's"
    consumers.record(own, "files", 1, now=T)
    assert next_cut(spool, delivery, store) == {"Singers": NOT_READ}


def test_after_a_gap_a_table_is_complete_from_the_timestamp_on_as_of_which_a_repair_has_left_it_equal(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    spool.restart_at(START + 30 * SECOND)
    keep_equal(spool.spool, "second", ["Albums"], START + 40 * SECOND)
    keep_equal(spool.spool, "files", ["Singers"], START + 20 * SECOND)
    assert next_cut(spool, delivery, store, at=35) == {"Albums": NOT_READ, "Singers": NOT_READ}
    keep_equal(spool.spool, "files", ["Singers"], START + 50 * SECOND)
    assert next_cut(spool, delivery, store, at=45) == {"Albums": NOT_READ, "Singers": NOT_READ}, "it is before that"
    assert next_cut(spool, delivery, store, at=50) == {"Albums": NOT_READ}
    spool.restart_at(START + 90 * SECOND)
    assert next_cut(spool, delivery, store, at=95).keys() == {"Albums", "Singers"}, "there is another gap"


def test_a_sink_that_starts_later_than_the_spool_has_incomplete_tables_until_a_backfill_or_a_repair_completes_them(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    keep_start(spool.spool, "files", "now", by_minute=False, now=START)
    missing = "what was committed up to 2026-03-01T10:00:03.000000Z is missing"
    assert next_cut(spool, delivery, store) == {"Albums": missing, "Singers": missing}
    document = recorded(spool.spool, spool.spool.header(), "Albums", at=spool.watermark)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Albums", state="done"),)))
    assert next_cut(spool, delivery, store) == {"Albums": missing, "Singers": missing}, "it is another sink's"
    consumers.record(own, "files", 1, now=T)
    assert next_cut(spool, delivery, store) == {"Singers": missing}
    keep_equal(spool.spool, "files", ["Singers"], spool.watermark)
    assert next_cut(spool, delivery, store) == {}


def test_minutes_begin_with_the_start_of_their_sink_and_lack_nothing_from_before(
    spool: SpoolMaker, delivery: Delivery, store: Cuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Delivery, "begins_with_its_start", FileDelivery.begins_with_its_start)
    LateStore(spool.spool).keep([late_record(START + SECOND)], now=T)
    spool.restart_at(START + 30 * SECOND)
    spool.seal(record(START + 40 * SECOND, [5]))
    keep_start(spool.spool, "files", "now", by_minute=False, now=START)
    assert next_cut(spool, delivery, store) == {}
    spool.restart_at(START + 90 * SECOND)
    assert next_cut(spool, delivery, store, at=95).keys() == {"Albums", "Singers"}, "there is another gap"


def test_a_table_is_incomplete_while_a_record_of_it_came_late_and_nothing_has_repaired_it(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    LateStore(spool.spool).keep([late_record(START + 5 * SECOND)], now=T)
    assert next_cut(spool, delivery, store, at=4) == {}, "it is after the cut"
    at = "2026-03-01T10:00:05.000000Z"
    late = f"changes between {at} and {at} came late or never: they were not delivered"
    assert next_cut(spool, delivery, store, at=6) == {"Singers": late}
    keep_equal(spool.spool, "files", ["Singers"], START + 7 * SECOND)
    assert next_cut(spool, delivery, store, at=8) == {}


def test_a_transaction_that_lacks_records_leaves_every_table_incomplete_until_a_repair(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    LateStore(spool.spool).keep([IncompleteTransaction("a", START + 3 * SECOND, expected=3, received=2)], now=START)
    at = "2026-03-01T10:00:03.000000Z"
    why = f"changes between {at} and {at} came late or never: they were not delivered"
    assert next_cut(spool, delivery, store, at=6) == {"Albums": why, "Singers": why}
    keep_equal(spool.spool, "files", ["Singers"], START + 7 * SECOND)
    assert next_cut(spool, delivery, store, at=8) == {"Albums": why}


def test_partitions_that_were_announced_late_leave_every_table_incomplete(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    publication = Publication(delivery)
    done(delivery, 1)
    publication.after_batch(SPARK)
    at, watermark = START + SECOND // 2, START + 2 * SECOND
    children = ChildPartitionsRecord(at, "00000001", (ChildPartition("child", frozenset({"token"})),))
    late = LateStore(spool.spool)
    late.keep([LateRecord("token", children, at, watermark, watermark)], now=T)
    done(delivery, 2)
    publication.after_batch(SPARK)
    first, second = store.published
    low, high = "2026-03-01T10:00:00.500000Z", "2026-03-01T10:00:02.000000Z"
    why = f"changes between {low} and {high} came late or never: they were not delivered"
    assert (first.incomplete, second.incomplete) == ({}, {"Albums": why, "Singers": why})


def test_a_table_that_was_excluded_for_a_while_is_incomplete_until_a_backfill_or_a_repair_after_that(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    keep_patterns(spool.spool, (), ("Alb*",), spool.watermark)
    low = format_rfc3339(spool.watermark + 1)
    assert next_cut(spool, delivery, store) == {}
    high = format_rfc3339(spool.watermark)
    keep_patterns(spool.spool, (), (), spool.watermark)
    keep_equal(spool.spool, "files", ["Albums"], spool.watermark - 1)
    why = f"changes between {low} and {high} were not read: source.tables excluded it"
    included = spool.watermark
    assert next_cut(spool, delivery, store) == {"Albums": why}
    keep_equal(spool.spool, "files", ["Albums"], included)
    assert next_cut(spool, delivery, store) == {}


def late_record(at: int) -> LateRecord:
    """A record of the first table, without which its epoch was delivered."""
    return LateRecord("token", record(at, [99]), at, at, at + SECOND)


def test_a_sink_that_starts_with_the_spool_has_complete_tables_unless_another_one_alone_got_its_backfill(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    keep_start(spool.spool, "files", "oldest", by_minute=False, now=START)
    document = recorded(spool.spool, spool.spool.header(), "Albums", at=START - 1)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Albums", state="done"),)))
    assert next_cut(spool, delivery, store) == {}, "its configuration has no backfill"
    delivery.backfill = BackfillRules()
    missing = "what was committed up to 2026-03-01T09:59:59.999999999Z is missing"
    assert next_cut(spool, delivery, store) == {"Albums": missing}
    consumers.record(own, "files", 1, now=T)
    assert next_cut(spool, delivery, store) == {}


def test_a_new_table_is_incomplete_before_its_backfill_is_recorded(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    delivery.backfill = BackfillRules()
    assert next_cut(spool, delivery, store) == {}
    delivery.backfill = BackfillRules(new_tables=True, exclude=("Sing*",))
    assert next_cut(spool, delivery, store) == {"Albums": "its backfill is not done"}
    document = recorded(spool.spool, spool.spool.header(), "Albums", at=START)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Albums", state="done"),)))
    consumers.record(own, "files", 1, now=T)
    assert next_cut(spool, delivery, store) == {}


def test_a_table_is_incomplete_while_its_backfill_is_not_done_even_if_that_ends_beside_the_micro_batch(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    document = recorded(spool.spool, spool.spool.header(), "Singers", at=START)
    done(delivery, 2)
    publication = Publication(delivery)
    publication.before_batch()
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Singers", state="done"),)))
    publication.after_batch(SPARK)
    assert store.published[0].incomplete == {"Singers": "its backfill is not done"}
    recorded_as_done(spool.spool, 2)
    publish_without_sink(delivery, SPARK)
    assert [cut.incomplete for cut in store.published] == [{"Singers": "its backfill is not done"}, {}]
    assert {cut.epoch for cut in store.published} == {2}, "no epoch follows, and the second counts"


def test_a_backfill_of_another_sink_leaves_a_table_complete_unless_the_configuration_has_one(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    document = recorded(spool.spool, spool.spool.header(), "Singers", at=START)
    own = spool_of(spool.spool, document.number)
    not_done = {"Singers": "its backfill is not done"}
    assert next_cut(spool, delivery, store) == not_done, "it may get the rows"
    keep_destination(own, "tables", Destination(type="tables", options={"sink.path": "/lake"}))
    consumers.record(own, "tables", 1, now=T)
    assert next_cut(spool, delivery, store) == {}
    delivery.backfill = BackfillRules()
    assert next_cut(spool, delivery, store) == not_done


@pytest.mark.parametrize("notes_versions_last", [True, False])
def test_a_backfill_that_begins_before_the_versions_are_noted_makes_its_table_incomplete(
    spool: SpoolMaker,
    delivery: Delivery,
    store: Cuts,
    monkeypatch: pytest.MonkeyPatch,
    *,
    notes_versions_last: bool,
) -> None:
    """In ``merge-load`` the time at which tables are read is of the statement that publishes."""

    def slow(cut: PublishedCut) -> None:
        if not store.published:
            recorded(spool.spool, spool.spool.header(), "Singers", at=START)
        Cuts.publish(store, cut)

    monkeypatch.setattr(store, "publish", slow)
    monkeypatch.setattr(store, "notes_versions_last", notes_versions_last)
    times = iter(range(START, START + 9))
    done(delivery, 2)
    Publication(delivery, now=lambda: next(times)).after_batch(SPARK)
    expected: list[Mapping[str, str]] = [{}, {"Singers": "its backfill is not done"}]
    assert [cut.incomplete for cut in store.published] == expected[: 2 if notes_versions_last else 1]
    assert sorted({cut.published_at for cut in store.published}) == [cut.published_at for cut in store.published]
    report = report_of(spool.spool, "files").cut
    assert report is not None
    assert dict(report.incomplete) == store.published[-1].incomplete


@pytest.mark.parametrize("is_recorded", [True, False])
def test_beside_a_micro_batch_that_was_killed_no_cut_is_published_again(
    spool: SpoolMaker, delivery: Delivery, store: Cuts, *, is_recorded: bool
) -> None:
    """Some of its tables may be committed, and others not."""
    document = recorded(spool.spool, spool.spool.header(), "Singers", at=START)
    done(delivery, 2)
    Publication(delivery).after_batch(SPARK)
    recorded_as_done(spool.spool, 2)
    first = spool.seal(record(START + 4 * SECOND, [3]), record(START + 5 * SECOND, [3], table="Albums"))
    if is_recorded:  # it was killed before its cut was published, and so was the next one within its tables
        recorded_as_done(spool.spool, first)
        first = spool.seal(record(START + 6 * SECOND, [4]))
    StartedBatches(spool.spool, "files").begin(StartedBatch(first=first, last=first, pinned="options"), done=first - 1)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Singers", state="done"),)))
    consumers.record(own, "files", 1, now=T)
    publish_without_sink(delivery, SPARK)
    assert [cut.epoch for cut in store.published] == [2]


def test_what_others_write_into_the_sinks_report_while_a_cut_is_published_stays(
    spool: SpoolMaker, delivery: Delivery, store: Cuts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(cut: PublishedCut) -> None:
        Cuts.publish(store, cut)
        record_restart(spool.spool, "files", START, "killed")

    monkeypatch.setattr(store, "publish", slow)
    done(delivery, 2)
    Publication(delivery).after_batch(SPARK)
    report = report_of(spool.spool, "files")
    assert (report.restarts, report.cut is not None) == (1, True)


def test_a_table_with_rows_of_a_backfill_is_incomplete_until_the_cut_has_reached_their_timestamp(
    spool: SpoolMaker, delivery: Delivery, store: Cuts
) -> None:
    document = recorded(spool.spool, spool.spool.header(), "Singers", at=START + 3 * SECOND)
    own = spool_of(spool.spool, document.number)
    write_progress(own, BackfillProgress(updated=T, tables=(TableProgress(table="Singers", state="done"),)))
    for epoch in (1, 2):
        done(delivery, epoch)
        Publication(delivery).after_batch(SPARK)
    before, after = store.published
    assert before.incomplete == {"Singers": "its backfill's rows are as of 2026-03-01T10:00:03.000000Z"}
    assert after.incomplete == {}


def test_beside_a_running_sink_nothing_is_published(spool: SpoolMaker, delivery: Delivery, store: Cuts) -> None:
    recorded_as_done(spool.spool, 2)
    with spool.spool.storage.locked(sink_lock("files"), "taken"):
        publish_without_sink(delivery, SPARK)
    assert not store.published


@pytest.mark.parametrize("is_reading", [True, False])
def test_a_sink_that_another_one_has_replaced_publishes_nothing(
    delivery: Delivery, store: Cuts, monkeypatch: pytest.MonkeyPatch, *, is_reading: bool
) -> None:
    """While it reads versions, the other one may commit some tables of a later epoch, and not all."""

    def slow(tables: Sequence[str]) -> Mapping[str, str]:
        has_lease.clear()
        return Cuts.versions(store, tables)

    def check() -> None:
        if not has_lease:
            raise SpoolInUseError("another sink runs")

    has_lease = [True] if is_reading else []
    monkeypatch.setattr(store, "versions", slow)
    done(delivery, 2)
    with pytest.raises(SpoolInUseError):
        Publication(delivery, check).after_batch(SPARK)
    assert not store.published


def test_of_a_backfill_nothing_is_published(tmp_path: Path, store: Cuts) -> None:
    spool, header = spool_with_start(tmp_path / "spool")
    own = spool_of(spool, recorded(spool, header, "A").number)
    delivery = Delivery(spool, tmp_path, store)
    delivery.feed = Feed(own, spool)
    delivery.done = 1
    Publication(delivery).after_batch(SPARK)
    assert not store.published
