"""Rows in Spanner from which updates that hold only what changed are completed."""

import json

import pytest

from spark_sink.sinks.shared.completing.spanner_rows import SpannerRows
from spark_sink.sinks.shared.completing.whole_rows import Found, Read, decoded


@pytest.fixture
def sold(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The sales of each row in Spanner, by its id; without one, Spanner does not keep the row any more."""
    sales: dict[str, str] = {}

    def read(self: SpannerRows, read: Read) -> Found:
        keys = [json.loads(key)["Id"] for key in read.keys]
        return Found({(key,): decoded(json.dumps({"Sales": sales[key]})) for key in keys if key in sales})

    monkeypatch.setattr(SpannerRows, "read", read)
    return sales
