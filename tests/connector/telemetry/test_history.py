"""The history of the status server is bounded, and has rates of what was sealed between two points."""

from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.timestamps import SECOND
from connector.telemetry.history import RecentHistory
from connector.telemetry.metrics import ReaderMetrics, TableCount
from tests.connector.builders import AT


def test_a_partition_that_is_gone_has_finished_and_only_the_newest_300_are_kept() -> None:
    history = RecentHistory()
    history.follow(PartitionGraph([CutPartition("token-of-the-oldest-partition", AT)], watermark=AT))
    history.follow([])
    assert [partition.state for partition in history.graph()] == ["finished"]
    cut = [CutPartition(f"token-of-one-newer-partition-{n:06}", AT + 1 + n) for n in range(400)]
    history.follow(PartitionGraph(cut, watermark=AT))
    assert history.states == {"waiting": 400}
    assert len(history.graph()) == 300
    assert history.graph()[-1].start > history.graph()[0].start


def test_an_hour_of_points_is_kept_with_the_rates_between_them() -> None:
    history, metrics = RecentHistory(), ReaderMetrics()
    metrics.complete = AT
    for step in range(400):
        history.sample(metrics, AT + 10 * step * SECOND)
        metrics.sealed_mods += 50
        metrics.tables["Singers"] = TableCount(1, metrics.sealed_mods, 7)
    assert len(history.points) == 360
    assert history.points[-1].mods_per_second == 5.0
    assert history.points[-1].lag_seconds == 3990.0
    assert history.tables(metrics)[0].mods_per_second == 5.0
