"""Rows come back from the disk as they were added, each key in one bucket."""

from pathlib import Path

import pytest

from connector.proof.verify import buckets as buckets_module
from connector.proof.verify.buckets import Buckets, parts_of
from connector.proof.verify.rows import RowChange


@pytest.mark.parametrize("held", [1, 10_000_000])
def test_rows_come_back_in_order_each_key_in_one_bucket(
    held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets_module, "_HELD_BYTES", held)
    added = [RowChange("T", f"[{n % 100}]", (n, 0, 0), "UPDATE", b'{"n":%d}' % n) for n in range(1000)]
    buckets = Buckets(tmp_path / "rows", 7)
    for row in added:
        buckets.add(row)
    buckets.flush()
    found = [list(buckets.rows(number)) for number in range(buckets.count)]
    assert sorted((row for rows in found for row in rows), key=lambda row: row.order) == added
    for rows in found:
        assert [row.order for row in rows] == sorted(row.order for row in rows)
    keys = [{row.key for row in rows} for rows in found]
    assert sum(map(len, keys)) == 100
    assert sum(map(bool, keys)) == 7


def test_a_bucket_that_is_too_large_is_divided_by_keys_on_both_sides_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets_module, "LARGE_BYTES", 10_000)
    monkeypatch.setattr(buckets_module, "BUCKET_BYTES", 5_000)
    added = [RowChange("T", f"[{n % 100}]", (n, 0, 0), "UPDATE", b'{"n":%d}' % n) for n in range(1000)]
    one, other = Buckets(tmp_path / "one", 1), Buckets(tmp_path / "other", 1)
    for row in added:
        one.add(row)
        if row.order[0] % 2:
            other.add(row)
    one.flush()
    other.flush()
    parts = [(list(first()), list(second())) for first, second in parts_of(one, other, 0, tmp_path)]
    assert len(parts) > 4
    assert sorted((row for first, _ in parts for row in first), key=lambda row: row.order) == added
    assert sum(len(second) for _, second in parts) == 500
    keys = [{row.key for row in (*first, *second)} for first, second in parts]
    assert sum(map(len, keys)) == 100
    assert {path.name for path in tmp_path.iterdir()} == {"one", "other"}  # nothing is left
