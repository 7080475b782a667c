"""The BigQuery sink gathers epochs until its quotas allow a micro-batch, whatever restarts.

Without Spark, on a clock that is passed in, and with a tenth of the real quota for a tenth of the tables.
"""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from connector import bigquery_quotas, consumers
from connector.bigquery_quotas import STREAMS, Quota
from connector.timestamps import SECOND
from emulator.bigquery_double import BigQueryDouble
from spark_sink import stream
from spark_sink.bigquery_pace import Pace
from tests.spark.bigquery_lives import Checkpoint, Life, configured
from tests.spark.spools import START, SpoolMaker, record

TABLES = [f"Table{number}" for number in range(5)]


class Clock:
    """A clock that is set; it starts when the first epoch is sealed."""

    def __init__(self) -> None:
        self.now = START + SECOND

    def __call__(self) -> int:
        return self.now


class World:
    """A spool into which an epoch is sealed each second, and the sink's lives with it."""

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

    def life(self) -> Life:
        return Life(self.config, self.checkpoint, clock=self.clock)

    def seal(self, tables: list[str] = TABLES) -> None:
        self.maker.seal(*(record(self.clock.now, [1], table=table) for table in tables))

    def seconds(self, life: Life, seconds: int, tables: list[str] = TABLES) -> list[int]:
        """Lives through some seconds; when, in seconds since the start, micro-batches were delivered."""
        out = []
        for _ in range(seconds):
            self.seal(tables)
            if life.run():
                out.append((self.clock.now - START) // SECOND)
            self.clock.now += SECOND
        return out


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the quota; and nobody waits for news that will not come while a test holds the clock."""
    monkeypatch.setattr(stream, "NEWS_WAIT", 0.0)
    monkeypatch.setattr(bigquery_quotas, "STREAMS", Quota("streams", STREAMS.limit // 10, STREAMS.seconds))


pytestmark = pytest.mark.usefixtures("_small")


def test_tables_are_appended_to_at_once_while_the_burst_lasts_and_then_every_36_seconds(
    tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.life() as life:
        moments = world.seconds(life, 110)
    assert moments[:20] == list(range(1, 21))
    assert [later - one for one, later in pairwise(moments[20:])] == [36, 36]
    assert len(bigquery_double.rows("d", "Table3")) == moments[-1]


def test_a_restart_goes_on_with_what_was_spent(tmp_path: Path, bigquery_double: BigQueryDouble) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.life() as life:
        world.seconds(life, 25)
    with world.life() as life:
        assert len(world.seconds(life, 36)) == 1
    assert bigquery_double.meter.total("CreateWriteStream") == 100 + 5


def test_each_try_of_a_micro_batch_is_paid_for_and_waits_until_it_can_be(
    tmp_path: Path, bigquery_double: BigQueryDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    slept: list[float] = []
    spend = Pace.spend

    def sleeping(self: Pace, *args: object, **kwargs: object) -> None:
        self._sleep = slept.append
        spend(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Pace, "spend", sleeping)
    world.seal()
    with world.life() as life:
        assert life.plan()
        life.tasks()  # and dies
    for _ in range(30):
        with world.life() as life:
            assert life.plan()
            life.tasks()
    assert slept[:19] == [0.0] * 19
    assert slept[-1] > 36


def test_what_is_to_be_delivered_at_an_end_is_not_held_back(tmp_path: Path, bigquery_double: BigQueryDouble) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.life() as life:
        world.seconds(life, 25)
        assert life.run() == []
        life.delivery.drain()
        assert len(life.run()) == 1
        assert len(bigquery_double.rows("d", "Table3")) == 25
        world.seal()
        assert life.run() == [], "what is sealed later is held back as before"
    with world.life() as life:
        life.only_what_is_sealed()  # as AvailableNow does
        assert len(life.run()) == 1


@pytest.mark.parametrize(("mode", "options"), [("append-only", {}), ("merge-load", {"max_staleness": "2m"})])
def test_a_drain_ends_with_what_was_sealed_before_though_another_daemon_goes_on_sealing(
    tmp_path: Path, bigquery_double: BigQueryDouble, mode: str, options: dict[str, str]
) -> None:
    world = World(tmp_path, bigquery_double, mode, **options)
    with world.life() as life:
        world.clock.now += SECOND
        for _ in range(25):
            life.plan()
            life.checkpoint.done = True  # as if it had been delivered
            world.seal()
            world.clock.now += SECOND
        sealed = world.maker.spool.latest()
        life.delivery.drain()
        assert life.delivery.waiting()
        for later in range(3):
            world.seal()
            life.plan()
            life.checkpoint.done = True
            assert life.delivery.waiting() is (later == 0), "recorded when the next micro-batch is asked for"
        done = consumers.find(world.maker.spool, consumers.BIGQUERY)
    assert done is not None
    assert sealed <= done.epoch < world.maker.spool.latest()


def test_a_single_table_is_not_made_to_wait_for_what_all_would_take(
    tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    world = World(tmp_path, bigquery_double, "append-only")
    with world.life() as life:
        assert len(world.seconds(life, 60, ["Table3"])) == 60


def test_changes_for_bigquery_to_merge_go_at_every_trigger_over_one_connection_without_new_streams(
    tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    world = World(tmp_path, bigquery_double, "merge")
    with world.life() as life:
        assert len(world.seconds(life, 10)) == 10
    assert bigquery_double.meter.total("CreateWriteStream") == 0
    assert bigquery_double.meter.total("AppendRows") == 50
    assert bigquery_double.meter.total("AppendRows connections") == 1


def test_loads_gather_for_max_staleness_and_a_table_is_loaded_and_merged_once(tmp_path: Path) -> None:
    with BigQueryDouble.started(count_jobs=True) as double:
        world = World(tmp_path, double, "merge-load", max_staleness="1m")
        with world.life() as life:
            assert world.seconds(life, 125, TABLES[:3]) == [1, 61, 121]
        assert double.meter.total("load jobs") == double.meter.total("MERGE statements") == 9


def test_bigquery_reads_a_table_that_changes_as_a_whole_once_in_max_staleness(tmp_path: Path) -> None:
    clock = Clock()
    with BigQueryDouble.started(now=lambda: datetime.fromtimestamp(clock.now // SECOND, UTC)) as double:
        world = World(tmp_path, double, "merge", max_staleness="1m")
        world.clock = clock
        with world.life() as life:
            for _ in range(25):
                world.seal(["Singers"])
                assert life.run()
                clock.now += 10 * SECOND
                double.set_size("d", "Singers", 10**9)
        assert double.meter.total("background apply jobs") == 4
        assert double.meter.total("bytes scanned") // 10**9 == 4
