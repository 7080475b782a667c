"""Whoever takes rows of a task that failed takes its error, too."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from connector.core.changes import Changes
from connector.core.windows import Share, Window
from connector.errors import StreamError
from spark_sink.reading.windows import task
from spark_sink.reading.windows.rows import ERROR, RECORD
from spark_sink.reading.windows.shares import ShareDataReader, SharePartition
from spark_sink.reading.windows.task import WindowSetup
from tests.connector.builders import AT, record

SLICES = 5


def test_a_task_that_fails_yields_its_error_in_every_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Iterator[Changes]:
        yield Changes.of([record(commit_timestamp=AT + at) for at in range(0, 100, 20)])
        raise StreamError("a partition cannot be read")

    monkeypatch.setattr(task, "read_share", failing)
    monkeypatch.setattr(WindowSetup, "from_json", lambda _: None)
    window, share = Window(1, AT - 1, AT + 99), Share(0, ())
    part = SharePartition("", window.to_json(), share.to_json(), SLICES)
    rows = pa.Table.from_batches(ShareDataReader({}).read(part)).select(["slice", "kind"]).to_pylist()
    taken = {row["slice"] for row in rows if row["kind"] == RECORD}
    errors = [row["slice"] for row in rows if row["kind"] == ERROR]
    assert len(taken) > 1
    assert sorted(errors) == list(range(SLICES))
