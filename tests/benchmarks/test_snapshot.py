"""A partition of a table is streamed, however many rows it has, and costs less than google-cloud-spanner's rows."""

from collections.abc import Iterator

import pytest

from benchmarks import snapshot
from benchmarks.measure import snapshots
from benchmarks.measure.process import resident
from benchmarks.measure.size import Size
from benchmarks.replay.messages import Span
from benchmarks.replay.rows import TableReplay
from benchmarks.replay.server import ReplayServer, replaying
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spanner.snapshot.reading import read_partition

ROWS = 400_000
"""Some 80 MB as they are sent."""

MOST = 32 * 1024 * 1024
FLOOR = 2.0
"""Less than half of what short runs give under load: 6.9 for Arrow columns, 9.0 for events."""


@pytest.fixture(scope="module", name="server")
def _server() -> Iterator[ReplayServer]:
    with replaying(TableReplay(), Span(0, 0)) as server:
        yield server


def partition(rows: int) -> SnapshotPartition:
    return snapshots.partition(TableReplay.sql(rows))


@pytest.mark.long
def test_no_two_rows_of_a_table_have_the_same_key(server: ReplayServer) -> None:
    address, sql = snapshots.address_at(server.host), [TableReplay.sql(10_400, at) for at in (0, 10_400)]
    blocks = [block.typed() for part in sql for block in read_partition(address, snapshots.partition(part))]
    keys = [key for block in blocks for key in block.column("Id").to_pylist()]
    assert len(keys) == len(set(keys)) == 20_800


def test_memory_does_not_grow_with_the_rows_of_a_partition(server: ReplayServer) -> None:
    for block in read_partition(snapshots.address_at(server.host), partition(20_000)):
        block.typed()
    before, most, rows = resident("self"), 0, 0
    for block in read_partition(snapshots.address_at(server.host), partition(ROWS)):
        rows += block.typed().num_rows
        most = max(most, resident("self"))
    assert rows == ROWS
    assert most - before < MOST


def test_a_reading_that_is_left_is_cancelled(server: ReplayServer) -> None:
    blocks = iter(read_partition(snapshots.address_at(server.host), partition(ROWS)))
    assert next(blocks).rows > 0
    del blocks
    assert sum(block.rows for block in read_partition(snapshots.address_at(server.host), partition(1_000))) == 1_000


@pytest.mark.slow
def test_the_benchmark_compares_equal_rows() -> None:
    for _ in range(2):
        results = list(snapshot.read(Size(mods=10_000, rounds=2, baseline_share=0.2)))
        ratios = [result.cpu.median for result in results if result.cpu]
        if min(ratios) > FLOOR:
            break
    assert [result.framing for result in results] == ["arrow", "events"]
    assert min(ratios) > FLOOR, results
