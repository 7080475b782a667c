"""Rows come back from the disk as they were added, each key in one bucket."""

from pathlib import Path

import pytest

from connector.verify import buckets as buckets_module
from connector.verify.buckets import Buckets
from connector.verify.rows import RowChange


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
