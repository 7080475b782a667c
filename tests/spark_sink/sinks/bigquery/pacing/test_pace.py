"""The BigQuery sink gathers epochs until its quotas allow a micro-batch, whatever restarts.

Without Spark, on a clock that is passed in, and with a tenth of the real quota for a tenth of the tables.
"""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from connector.core.epoch import SealedEpoch
from connector.core.health.states import NEVER
from connector.core.partitions import CutPartition
from connector.core.records import ColumnType
from connector.core.timestamps import SECOND
from connector.spool import consumers
from connector.spool.lifecycle import write_state
from connector.spool.manifest import SegmentFile
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.merging import loads
from spark_sink.sinks.bigquery.pacing import quotas
from spark_sink.sinks.bigquery.pacing.pace import Gathered, Pace, _Document, loaded, release
from spark_sink.sinks.bigquery.pacing.quotas import STREAMS, Pacing, Quota, Spent
from spark_sink.sinks.bigquery.tables.table import Mode
from spark_sink.sinks.bigquery.writing.parts import parts_of
from spark_sink.sinks.shared.started_batches import StartedBatch
from spark_sink.sources.changes import epoch_stream as stream
from spark_sink.sources.changes.admission import EpochWeight
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun, configured
from tests.spark_sink.spools import SINGERS, START, SpoolMaker, record

TABLES = [f"Table{number}" for number in range(5)]


class Clock:
    """A clock that is set; it starts when the first epoch is sealed."""

    def __init__(self) -> None:
        self.now = START + SECOND

    def __call__(self) -> int:
        return self.now


class World:
    """A spool into which an epoch is sealed each second, and the sink's runs with it."""

    def __init__(self, path: Path, double: BigQueryDouble, mode: str, **options: object) -> None:
        self.clock = Clock()
        self.double = double
        self.maker = SpoolMaker(path / "spool")
        self.checkpoint = Checkpoint([])
        self.config = configured(
            self.maker.path,
            dataset="d",
            mode=mode,
            project=double.project,
            endpoint=double.endpoint,
            grpc_endpoint=double.grpc_endpoint,
            location="US",
            **options,
        )

    def sink(self) -> SinkRun:
        return SinkRun(self.config, self.checkpoint, clock=self.clock)

    def seal(self, tables: list[str] = TABLES) -> None:
        self.maker.seal(*(record(self.clock.now, [1], table=table) for table in tables))

    def seconds(self, sink: SinkRun, seconds: int, tables: list[str] = TABLES) -> list[int]:
        """Simulates some seconds; returns when micro-batches were delivered, in seconds since the start."""
        out = []
        for _ in range(seconds):
            self.seal(tables)
            if sink.run():
                out.append((self.clock.now - START) // SECOND)
            self.clock.now += SECOND
        return out


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the quota; and nothing waits for new epochs while a test holds the clock."""
    monkeypatch.setattr(stream, "NEWS_WAIT", 0.0)
    monkeypatch.setattr(quotas, "STREAMS", Quota("streams", STREAMS.limit // 10, STREAMS.seconds))


pytestmark = pytest.mark.usefixtures("_small")


@pytest.mark.long
def test_tables_are_appended_to_at_once_while_the_burst_lasts_and_then_every_36_seconds(
    tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.sink() as sink:
        times = world.seconds(sink, 110)
    assert times[:20] == list(range(1, 21))
    assert [later - one for one, later in pairwise(times[20:])] == [36, 36]
    assert len(bigquery_double.rows("d", "Table3")) == times[-1]


@pytest.mark.long
def test_a_restart_continues_with_what_was_spent(tmp_path: Path, bigquery_double: BigQueryDouble) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.sink() as sink:
        world.seconds(sink, 25)
    with world.sink() as sink:
        assert len(world.seconds(sink, 36)) == 1
    assert bigquery_double.meter.total("CreateWriteStream") == 100 + 5


def test_each_try_of_a_micro_batch_is_paid_for_and_waits_until_it_can_be(
    tmp_path: Path, bigquery_double: BigQueryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    slept: list[float] = []
    spend = Pace.spend

    def sleeping(self: Pace, *args: object, **kwargs: object) -> None:
        naps: list[float] = []
        self._sleep = naps.append
        spend(self, *args, **kwargs)  # type: ignore[arg-type]
        slept.append(sum(naps))

    monkeypatch.setattr(Pace, "spend", sleeping)
    world.seal()
    with world.sink() as sink:
        assert sink.plan()
        sink.tasks()  # and dies
    for _ in range(30):
        with world.sink() as sink:
            assert sink.plan()
            sink.tasks()
    assert slept[:20] == [0] * 20
    assert slept[-1] > 36


def test_a_try_again_that_waits_for_the_quota_ends_its_wait_when_the_service_is_to_end(tmp_path: Path) -> None:
    maker = SpoolMaker(tmp_path / "spool")
    maker.fill(1)
    release(maker.spool)  # by a run before: it says nothing of this one
    clock = Clock()
    naps: list[float] = []
    pace = paced(maker, clock, "append-only", sleep=naps.append)
    (epoch,) = (EpochWeight.of(one, bool) for one in maker.spool.summaries(1, 1))
    owed = Spent(clock.now + 3600 * SECOND, clock.now)
    pace._keep(owed)
    pace.spend([epoch], again=True)
    assert 500 < sum(naps) <= 600
    naps.clear()

    def released_after_three(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            release(maker.spool)

    pace._sleep = released_after_three
    pace._keep(owed)
    pace.spend([epoch], again=True)
    assert naps == [1.0] * 3


def paced(maker: SpoolMaker, clock: Clock, mode: Mode, **options: Any) -> Pace:
    """The pace of a spool of 4 MB, an hour's staleness, and parts of 100 bytes."""
    pacing = Pacing.of(mode, 3600 * SECOND)
    sizes = {"batch_bytes": 2**21, "part_bytes": 100, "most_held": 2**21, **options}
    return Pace(maker.spool, pacing, clock=clock, **sizes)


def weight(epoch: int, size: int, schemas: str = "") -> EpochWeight:
    return EpochWeight(epoch, 0, 1, size, 1, schemas, frozenset({"Singers"}), START)


def test_epochs_before_a_schema_change_wait_for_the_quota_alone(tmp_path: Path) -> None:
    pace = paced(SpoolMaker(tmp_path / "spool"), Clock(), "merge-load")
    pace.spend([weight(1, 10)])
    same = pace.gathered([weight(2, 10), weight(3, 10)])
    assert not same.full
    assert pace.holds(same)
    changed = pace.gathered([weight(2, 10), weight(3, 10, "wider")])
    assert [epoch.epoch for epoch in changed.epochs] == [2]
    assert changed.full
    assert not pace.holds(changed)


def test_epochs_that_fill_the_spool_of_a_daemon_with_a_smaller_limit_wait_for_the_quota_alone(tmp_path: Path) -> None:
    """Its limit is looked at again: it may be restarted with another one."""
    maker, clock = SpoolMaker(tmp_path / "spool"), Clock()
    pace = paced(maker, clock, "merge-load")
    pace.spend([weight(1, 10)])
    held = Gathered([weight(2, 10)], full=False, held=2**20)
    assert pace.holds(held)
    write_state(maker.spool, replace(NEVER, max_bytes=2**21))
    clock.now += 10 * SECOND
    assert pace.holds(replace(held, held=2**20 - 1))
    assert not pace.holds(held)


def test_epochs_before_a_micro_batch_that_was_started_wait_for_the_quota_alone(tmp_path: Path) -> None:
    with BigQueryDouble.started(count_jobs=True) as double:
        world = World(tmp_path, double, "merge-load", max_staleness="1h")
        with world.sink() as sink:
            assert world.seconds(sink, 1) == [1]
            for _ in range(3):
                world.seal()
                world.clock.now += SECOND
            assert sink.run() == []
            at = next(world.maker.spool.manifests(4, 4)).identity
            begun = StartedBatch(first=3, last=4, pinned=sink.delivery.options["pinned"], at=at)
            sink._reader._started.begin(begun, done=1)  # as another checkpoint has it
            assert sink.plan()
            assert sink.checkpoint.offsets[-1]["epoch"] == 2


@pytest.mark.parametrize("wider", [False, True])
def test_a_schema_change_delays_nothing_that_comes_after_it(tmp_path: Path, wider: bool) -> None:
    with BigQueryDouble.started(count_jobs=True) as double:
        world = World(tmp_path, double, "merge-load", max_staleness="1h")
        with world.sink() as sink:
            assert world.seconds(sink, 2, ["Singers"]) == [1]
            columns = (*SINGERS, ColumnType("More", '{"code":"STRING"}', False, 3)) if wider else SINGERS
            world.clock.now += SECOND
            world.maker.seal(record(world.clock.now, [1], columns=columns))
            assert len(sink.run()) == wider, "what was before the change is delivered, what is after it gathers"


def test_a_spool_that_cuts_and_manifests_fill_is_not_made_to_wait_for_rows(tmp_path: Path) -> None:
    clock = Clock()
    maker = SpoolMaker(tmp_path / "spool")
    for number in range(60):  # partitions that split all the time
        cut = [CutPartition(f"{number:06d}-{place:04d}-" + "x" * 90, START) for place in range(200)]
        low, maker.watermark = maker.watermark, maker.watermark + SECOND
        one = record(maker.watermark)
        maker.writer.seal(SealedEpoch(low, maker.watermark, (one,), one.size), cut, now=maker.watermark)
    pace = paced(maker, clock, "merge-load")
    weights = [EpochWeight.of(epoch, bool) for epoch in maker.spool.summaries(1, maker.spool.latest())]
    pace.spend(weights[:1])
    assert sum(epoch.bytes for epoch in weights) < 2**20
    assert pace.holds(pace.gathered(weights[:30]))
    assert not pace.holds(pace.gathered(weights))


@pytest.mark.parametrize("mode", ["append-only", "merge-load"])
def test_a_clock_that_was_fast_holds_nothing_back_once_it_is_right(tmp_path: Path, mode: Mode) -> None:
    clock, right = Clock(), Clock()
    maker = SpoolMaker(tmp_path / "spool")
    pace = paced(maker, clock, mode)
    clock.now += 30 * 86_400 * SECOND
    pace.spend([weight(1, 10)])
    clock.now = right.now
    full = Gathered([weight(2, 10)], full=True)
    restarted = paced(maker, clock, mode)
    for each in (pace, restarted):
        assert not each.holds(full)
    if mode == "merge-load":
        assert pace.holds(Gathered([weight(2, 10)], full=False))
        clock.now += 3600 * SECOND
        assert not pace.holds(Gathered([weight(2, 10)], full=False))
    pace.spend([weight(2, 10)])
    noted = pace._spool.document("consumers/bigquery.pace", _Document, "")
    assert noted.begun == clock.now, "it is noted, though the note before is of a later time"


def test_restarts_do_not_prolong_the_delay_of_a_clock_that_was_fast(tmp_path: Path) -> None:
    clock, right = Clock(), Clock().now
    maker = SpoolMaker(tmp_path / "spool")
    clock.now += 30 * 86_400 * SECOND
    pace = paced(maker, clock, "append-only")
    pace._keep(Spent(clock.now + 3600 * SECOND, clock.now))
    pace.spend([weight(1, 10)])
    full, held = Gathered([weight(2, 10)], full=True), []
    for second in range(0, 2 * 3600 + 1, 60):
        clock.now = right + second * SECOND
        held.append(paced(maker, clock, "append-only").holds(full))
    assert held[0]
    assert not held[-1]


@pytest.mark.parametrize("size", [17, 20, 24, 33, 40, 7])
def test_calls_are_counted_as_parts_are_cut(tmp_path: Path, size: int) -> None:
    pace = paced(SpoolMaker(tmp_path / "spool"), Clock(), "append-only", part_bytes=32)
    files = [
        SegmentFile(
            path=f"segments/{1:020d}-{'0' * 16}.arrow",
            rows=1,
            bytes=size,
            crc32c="AAAAAA==",
            first_commit_timestamp=1,
            last_commit_timestamp=1,
        )
    ] * 15
    assert pace.calls([weight(number, size) for number in range(15)]) == len(parts_of(files, 32))


def test_loads_of_a_micro_batch_in_several_slices_are_counted_once_they_are_known(tmp_path: Path) -> None:
    clock = Clock()
    maker = SpoolMaker(tmp_path / "spool")
    pace = paced(maker, clock, "merge-load")
    pace.spend([weight(7, 10)])
    before = pace._spent().paid_until
    pace.spend([weight(8, 10)])
    loaded(maker.spool, 8, 101)
    after = paced(maker, clock, "merge-load")._spent().paid_until
    assert after - before == quotas.LOADS.span(1 + 100)
    assert pace._spent().paid_until == after
    assert pace._spent().paid_until == after, "once"
    pace.spend([weight(9, 10)])
    assert pace._spent().paid_until == after + quotas.LOADS.span(1), "the note is of another micro-batch"


def test_the_driver_reports_how_many_loads_a_micro_batch_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "MERGED_BYTES", -1)  # each epoch is a load
    with BigQueryDouble.started(count_jobs=True) as double:
        world = World(tmp_path, double, "merge-load")
        for _ in range(5):
            world.seal()
            world.clock.now += SECOND
        with world.sink() as sink:
            assert sink.run()
            spent = sink._reader._pace._spent()
        assert double.meter.total("load jobs") == 5 * len(TABLES)
    assert spent.paid_until == world.clock.now + quotas.LOADS.span(5 * len(TABLES))


@pytest.mark.long
def test_what_is_to_be_delivered_at_an_end_is_not_held_back(tmp_path: Path, bigquery_double: BigQueryDouble) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.sink() as sink:
        world.seconds(sink, 25)
        assert sink.run() == []
        sink.delivery.drain()
        assert len(sink.run()) == 1
        assert len(bigquery_double.rows("d", "Table3")) == 25
        world.seal()
        assert sink.run() == [], "what is sealed later is held back as before"
    with world.sink() as sink:
        sink.only_what_is_sealed()  # as AvailableNow does
        assert len(sink.run()) == 1


@pytest.mark.parametrize(("mode", "options"), [("append-only", {}), ("merge-load", {"max_staleness": "2m"})])
def test_a_drain_ends_with_what_was_sealed_before_though_another_daemon_continues_sealing(
    tmp_path: Path, bigquery_double: BigQueryDouble, mode: str, options: dict[str, str]
) -> None:
    world = World(tmp_path, bigquery_double, mode, **options)
    with world.sink() as sink:
        world.clock.now += SECOND
        for _ in range(25):
            sink.plan()
            sink.checkpoint.done = True  # as if it had been delivered
            world.seal()
            world.clock.now += SECOND
        sealed = world.maker.spool.latest()
        sink.delivery.drain()
        assert sink.delivery.waiting()
        for later in range(3):
            world.seal()
            sink.plan()
            sink.checkpoint.done = True
            assert sink.delivery.waiting() is (later == 0), "recorded when the next micro-batch is asked for"
        done = consumers.find(world.maker.spool, "bigquery")
    assert done is not None
    assert sealed <= done.epoch < world.maker.spool.latest()


@pytest.mark.long
def test_a_single_table_is_not_made_to_wait_for_what_all_would_take(
    tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.sink() as sink:
        assert len(world.seconds(sink, 60, ["Table3"])) == 60


def test_changes_for_bigquery_to_merge_go_at_every_trigger_over_one_connection_without_new_streams(
    tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    world = World(tmp_path, bigquery_double, "merge")
    with world.sink() as sink:
        assert len(world.seconds(sink, 10)) == 10
    assert bigquery_double.meter.total("CreateWriteStream") == 0
    assert bigquery_double.meter.total("AppendRows") == 50
    assert bigquery_double.meter.total("AppendRows connections") == 1


@pytest.mark.long
def test_loads_gather_for_max_staleness_and_a_table_is_loaded_and_merged_once(tmp_path: Path) -> None:
    with BigQueryDouble.started(count_jobs=True) as double:
        world = World(tmp_path, double, "merge-load", max_staleness="1m")
        with world.sink() as sink:
            assert world.seconds(sink, 125, TABLES[:3]) == [1, 61, 121]
        assert double.meter.total("load jobs") == double.meter.total("MERGE statements") == 9


def test_bigquery_reads_a_table_that_changes_as_a_whole_once_in_max_staleness(tmp_path: Path) -> None:
    clock = Clock()
    with BigQueryDouble.started(now=lambda: datetime.fromtimestamp(clock.now // SECOND, UTC)) as double:
        world = World(tmp_path, double, "merge", max_staleness="1m")
        world.clock = clock
        with world.sink() as sink:
            for _ in range(25):
                world.seal(["Singers"])
                assert sink.run()
                clock.now += 10 * SECOND
                double.set_size("d", "Singers", 10**9)
        assert double.meter.total("background apply jobs") == 4
        assert double.meter.total("bytes scanned") // 10**9 == 4
