"""The work that is due when a backfill ends is done then: by the sink, or by the backfill if no sink runs."""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Timer
from types import MappingProxyType
from typing import cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from connector.config import validated
from connector.config.loading import Config
from connector.errors import SpoolInUseError
from connector.spool.backfill.documents import BackfillAnnouncement, BackfillProgress, TableProgress
from connector.spool.backfill.records import spool_of, unfinished_tables, write_progress
from connector.spool.consumers import forget, register, sink_lock
from connector.spool.reading import Spool, to_json
from connector.spool.sink_report import report_of
from spark_sink import idling, settling
from spark_sink.errors import TableError
from spark_sink.idling import awaited
from spark_sink.settling import Settlement, settle_without_sink
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.delivery import TablesDelivery
from spark_sink.sinks.tables.kept_rows import KeptRows
from spark_sink.sinks.tables.merge_into import Merged, TablesWriter, Written
from tests.connector.spool.backfill.builders import T, recorded, spool_with_start
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE

SPARK = cast("SparkSession", None)


class Delivery:
    """One that has something to do for each table of which it has kept rows."""

    consumer, destination, checkpoint = "tables", "", ""
    source = DataSource
    options = MappingProxyType[str, str]({})

    def __init__(self, kept: KeptRows) -> None:
        self.kept = kept
        self.settled: list[frozenset[str]] = []
        self.before: Callable[[], object] = lambda: None

    def run(self, reports: DataFrame) -> str:
        return ""

    def drain(self) -> None: ...

    def waiting(self) -> bool:
        return False

    def is_due(self, unfinished: frozenset[str]) -> bool:
        return not self.kept.tables() <= unfinished

    def settle(self, spark: SparkSession, unfinished: frozenset[str]) -> None:
        self.before()
        due = self.kept.tables() - unfinished
        self.kept.remove(due)
        self.settled.append(due)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with a backfill of tables A and B."""
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B")
    return spool


@pytest.fixture
def config(spool: Spool) -> Config:
    return validated({"source": SOURCE, "spool": {"path": spool.path}})


@pytest.fixture
def delivery(spool: Spool) -> Delivery:
    kept = KeptRows(spool, "tables", lambda: ["A", "B"])
    kept.add(frozenset("AB"))
    return Delivery(kept)


def done(spool: Spool, *tables: str) -> None:
    """Records that the backfill of these tables is done."""
    states = [TableProgress(table=table, state="done" if table in tables else "read") for table in "AB"]
    write_progress(spool_of(spool, 1), BackfillProgress(updated=T, tables=tuple(states)))


def test_each_table_is_settled_once_when_its_own_backfill_ends(
    spool: Spool, config: Config, delivery: Delivery
) -> None:
    settlement = Settlement(delivery, config)
    for tables in ("", "A", "A", "AB", "AB"):
        done(spool, *tables)
        settlement.look(SPARK)
    assert delivery.settled == [{"A"}, {"B"}]


def test_a_repair_that_was_killed_while_it_was_recorded_holds_nothing_up(
    spool: Spool, config: Config, delivery: Delivery
) -> None:
    clock = [0.0]
    settlement = Settlement(delivery, config, clock=lambda: clock[0])
    done(spool, "A", "B")
    spool_of(spool, 2).storage.replace("announced.json", to_json(BackfillAnnouncement(tables=("A",))))
    with spool.storage.locked("backfills/recording.lock", "it is being recorded"):
        settlement.look(SPARK)
    assert delivery.settled == [{"B"}]
    clock[0] = 29
    settlement.look(SPARK)
    assert unfinished_tables(spool) == {"A"}
    clock[0] = 30
    settlement.look(SPARK)
    assert delivery.settled == [{"B"}, {"A"}]


def test_a_sink_looks_while_no_micro_batch_comes_but_not_while_one_runs(
    spool: Spool, config: Config, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idling, "INTERVAL", 0.001)
    settlement, events, busy = Settlement(delivery, config), SimpleQueue[str](), Lock()
    settlement.look(SPARK)
    done(spool, "A", "B")
    delivery.before = lambda: events.put("settled" if busy.locked() else "beside a micro-batch")
    assert awaited(events, busy, lambda: settlement.look_at_intervals(SPARK)) == "settled"
    assert delivery.settled == [{"A", "B"}]


def test_micro_batches_one_after_another_do_not_read_the_spool_more_often_than_a_sink_that_waits(
    spool: Spool, config: Config, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cloud Storage bills each read."""
    clock, reads = [0.0], list[float]()

    def unfinished(spool: Spool) -> frozenset[str]:
        reads.append(clock[0])
        return frozenset("AB")

    monkeypatch.setattr(settling, "unfinished_tables", unfinished)
    settlement = Settlement(delivery, config, clock=lambda: clock[0])
    settlement.look(SPARK)
    for at in range(1, 100):
        clock[0] = at / 10
        settlement.look_at_intervals(SPARK)
    assert len(reads) == 5, reads


def test_a_backfill_that_began_and_ended_between_two_looks_is_settled_without_another_micro_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, header = spool_with_start(tmp_path)
    delivery = Delivery(KeptRows(spool, "tables", lambda: ["A", "B"]))
    config = validated({"source": SOURCE, "spool": {"path": spool.path}})
    monkeypatch.setattr(idling, "INTERVAL", 0.001)
    settlement, events = Settlement(delivery, config), SimpleQueue[str]()
    settlement.look(SPARK)
    recorded(spool, header, "A", "B")
    delivery.kept.add(frozenset("AB"))  # a micro-batch keeps rows
    done(spool, "A", "B")
    delivery.before = lambda: events.put("settled")
    deadline = Timer(60, events.put, ["not settled"])
    deadline.start()
    assert awaited(events, Lock(), lambda: settlement.look_at_intervals(SPARK)) == "settled"
    deadline.cancel()


def test_a_sink_that_another_one_has_replaced_settles_nothing(spool: Spool, config: Config, delivery: Delivery) -> None:
    def replaced() -> None:
        raise SpoolInUseError("another sink runs")

    done(spool, "A", "B")
    with pytest.raises(SpoolInUseError):
        Settlement(delivery, config, replaced).look(SPARK)
    assert delivery.settled == []


def test_a_backfill_that_ends_without_a_sink_settles_itself(spool: Spool, config: Config, delivery: Delivery) -> None:
    done(spool, "A")
    settle_without_sink(delivery, config, SPARK)
    assert delivery.settled == [{"A"}]


def test_a_backfill_that_ends_beside_a_sink_leaves_it_to_that(spool: Spool, config: Config, delivery: Delivery) -> None:
    """A sink that is ending looks once more after it has freed its lock."""
    done(spool, "A", "B")
    with spool.storage.locked(sink_lock("tables"), "taken"):
        settle_without_sink(delivery, config, SPARK)
        assert delivery.settled == []
    settle_without_sink(delivery, config, SPARK)
    assert delivery.settled == [{"A", "B"}]


def test_a_backfill_that_ends_while_another_one_is_settled_is_not_missed(
    spool: Spool, config: Config, delivery: Delivery
) -> None:
    """Whoever settles the first one holds the lock, and its end finds the lock taken."""

    def ends() -> None:
        done(spool, "A", "B")
        delivery.before = lambda: None
        settle_without_sink(delivery, config, SPARK)

    done(spool, "A")
    delivery.before = ends
    settle_without_sink(delivery, config, SPARK)
    assert delivery.settled == [{"A"}, {"B"}]


def test_rows_that_were_kept_are_known_after_a_kill_and_without_a_record_every_table_counts(spool: Spool) -> None:
    kept = KeptRows(spool, "tables", lambda: ["A", "B", "C"])
    assert kept.tables() == {"A", "B", "C"}, "an older program has left no record"
    kept.add(frozenset("A"))
    kept.remove(frozenset("BC"))
    assert KeptRows(spool, "tables", lambda: ["C"]).tables() == {"A"}
    kept.remove(frozenset("A"))
    assert KeptRows(spool, "tables", lambda: ["C"]).tables() == frozenset()
    register(spool, "tables", now=T)
    forget(spool, "tables")
    assert KeptRows(spool, "tables", lambda: ["C"]).tables() == {"C"}


def test_a_table_whose_deleted_rows_cannot_be_removed_keeps_no_other_from_it_and_is_tried_at_the_next_start(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = {"type": "tables", "path": "/lake", "dead_letters": str(tmp_path / "dead-letters")}
    config = validated({"source": SOURCE, "spool": {"path": spool.path}, "sink": sink})
    assert isinstance(config.sink, TablesConfig)
    kept = KeptRows(spool, "tables", list)
    kept.add(frozenset("AB"))
    done(spool, "A", "B")

    def remove(_: TablesWriter, __: SparkSession, table: str) -> None:
        if table in refused:
            raise TableError(f"no DELETE from {table}")

    monkeypatch.setattr(TablesWriter, "remove_deleted", remove)
    monkeypatch.setattr("spark_sink.sinks.tables.delivery.missing_library", lambda *_: "")
    refused = {"A"}
    settle_without_sink(TablesDelivery(config, config.sink, Feed.of(config)), config, SPARK)
    assert kept.tables() == {"A"}
    assert report_of(spool, "tables").stopped == {"A": "its deleted rows are kept with _is_deleted: no DELETE from A"}
    refused.clear()
    settle_without_sink(TablesDelivery(config, config.sink, Feed.of(config)), config, SPARK)
    assert (kept.tables(), report_of(spool, "tables").stopped) == (frozenset(), {})


def test_a_table_whose_deleted_rows_are_removed_at_another_attempt_is_not_reported_again(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of another table's backfill is one, in the same process."""
    sink = {"type": "tables", "path": "/lake", "dead_letters": str(tmp_path / "dead-letters")}
    config = validated({"source": SOURCE, "spool": {"path": spool.path}, "sink": sink})
    assert isinstance(config.sink, TablesConfig)
    KeptRows(spool, "tables", list).add(frozenset("AB"))
    refused = {"A"}

    def remove(_: TablesWriter, __: SparkSession, table: str) -> None:
        if table in refused:
            raise TableError(f"no DELETE from {table}")

    monkeypatch.setattr(TablesWriter, "remove_deleted", remove)
    monkeypatch.setattr(TablesWriter, "write", lambda *_, **__: Written(Merged(2, 2, {"B": 1}), {}))
    monkeypatch.setattr("spark_sink.sinks.tables.delivery.missing_library", lambda *_: "")
    delivery = TablesDelivery(config, config.sink, Feed.of(config))
    settlement = Settlement(delivery, config)
    done(spool, "A")
    settlement.look(SPARK)
    delivery.run(cast("DataFrame", None))
    assert list(report_of(spool, "tables").stopped) == ["A"]
    refused.clear()
    done(spool, "A", "B")
    settlement.look(SPARK)
    assert report_of(spool, "tables").stopped == {}
    delivery.run(cast("DataFrame", None))
    assert report_of(spool, "tables").stopped == {}


def test_without_a_backfill_no_table_has_kept_rows(tmp_path: Path) -> None:
    spool, _ = spool_with_start(tmp_path)
    assert KeptRows(spool, "tables", lambda: ["A"]).tables() == frozenset()
