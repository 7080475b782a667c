"""The number of records in a message to Conduit."""

import pyarrow as pa
import pytest

from connector.conduit.source_plugin import parts

MIB = 1024 * 1024


def rows(*sizes: tuple[int, int | None]) -> pa.RecordBatch:
    """Rows whose payload and old values have so many bytes."""
    payloads = pa.array(["x" * size for size, _ in sizes], pa.string())
    befores = pa.array([None if size is None else "x" * size for _, size in sizes], pa.string())
    return pa.RecordBatch.from_pydict({"payload": payloads, "before": befores, "at": pa.array(range(len(sizes)))})


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ([], []),
        ([(10, None)] * 2_500, [1000, 1000, 500]),
        ([(MIB, None)] * 10, [4, 4, 2]),
        ([(MIB, MIB)] * 5, [2, 2, 1]),
        ([(10, None), (9 * MIB, None), (10, None), (4 * MIB, 1), (4 * MIB, None)], [1, 1, 1, 1, 1]),
        ([(0, None)] * 3, [3]),
    ],
)
def test_a_message_is_bounded_by_rows_and_by_bytes_and_all_rows_are_in_one(
    sizes: list[tuple[int, int | None]], counts: list[int]
) -> None:
    batch = rows(*sizes)
    found = list(parts(batch))
    assert [part.num_rows for part in found] == counts
    assert [at for part in found for at in part.column("at").to_pylist()] == list(range(len(sizes)))


def test_a_part_of_a_batch_has_its_own_bytes() -> None:
    batch = rows(*[(3 * MIB, None)] * 2, *[(10, None)] * 5).slice(2)
    assert [part.num_rows for part in parts(batch)] == [5]
