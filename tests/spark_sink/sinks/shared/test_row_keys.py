"""A row that was read is found by its key, however the values of the key are written."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config.address import DatabaseAddress
from connector.core.column_kinds import ColumnKind
from connector.core.records import ColumnType
from connector.errors import SpannerCdcError
from connector.spanner.snapshot import reading
from connector.spanner.snapshot.row_block import RowBlock
from spark_sink.sinks.shared.completing.row_keys import row_key
from spark_sink.sinks.shared.completing.spanner_rows import Completion, SpannerRows
from spark_sink.sinks.shared.completing.whole_rows import Read
from tests.connector.spanner.snapshot.encoded import encoded
from tests.property.effort import effort
from tests.spark_sink.column_types import TYPE_OBJECTS

DIGITS = st.integers(0, 999_999_999).map(lambda nanoseconds: f"{nanoseconds:09}")


def key(kind: ColumnKind, value: object) -> tuple[object, ...]:
    return row_key({"k": value}, ["k"], {"k": kind})


@effort(60)
@given(DIGITS, st.integers(0, 9))
def test_fractions_of_timestamps_may_end_with_zeros(fraction: str, zeros: int) -> None:
    short = fraction.rstrip("0")
    long = (short + "0" * zeros)[:9]
    one, other = (f"2024-01-01T00:00:00.{some}Z".replace(".Z", "Z") for some in (short, long))
    assert key(ColumnKind.TIMESTAMP, one) == key(ColumnKind.TIMESTAMP, other)
    assert key(ColumnKind.TIMESTAMP, one) != key(ColumnKind.TIMESTAMP, "2024-01-01T00:00:01Z")
    assert key(ColumnKind.TIMESTAMP, "2024-01-01T01:00:00+01:00") == key(ColumnKind.TIMESTAMP, "2024-01-01T00:00:00Z")


@pytest.mark.parametrize("kind", [ColumnKind.NUMERIC, ColumnKind.PG_NUMERIC])
@effort(40)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28), max_value=10**28))
def test_numerics_may_end_with_zeros(kind: ColumnKind, value: Any) -> None:
    text = f"{value:f}"
    assert key(kind, text) == key(kind, text.rstrip("0").rstrip(".")) == key(kind, f"{text}00")
    assert key(kind, text) != key(kind, f"{text}1")


@effort(40)
@given(st.floats(allow_nan=False))
def test_floats_may_be_texts_or_have_no_point(value: float) -> None:
    assert key(ColumnKind.FLOAT64, value) == key(ColumnKind.FLOAT64, str(value))
    assert key(ColumnKind.FLOAT64, "Infinity") == key(ColumnKind.FLOAT64, "inf") == key(ColumnKind.FLOAT64, "1e999")
    assert key(ColumnKind.FLOAT64, 3) == key(ColumnKind.FLOAT64, 3.0)
    assert key(ColumnKind.FLOAT64, "NaN") == key(ColumnKind.FLOAT64, "nan")


@effort(40)
@given(st.binary(max_size=12))
def test_bytes_may_lack_their_padding(value: bytes) -> None:
    text = b64encode(value).decode()
    assert key(ColumnKind.BYTES, text) == key(ColumnKind.BYTES, text.rstrip("="))
    assert key(ColumnKind.BYTES, text) != key(ColumnKind.BYTES, b64encode(value + b"x").decode())


@pytest.mark.parametrize("kind", ColumnKind)
def test_a_value_that_is_not_written_as_its_kind_is_compared_as_it_is(kind: ColumnKind) -> None:
    assert key(kind, "*") == key(kind, "*")
    assert key(kind, None) == (None,)


def test_texts_are_compared_exactly() -> None:
    assert key(ColumnKind.STRING, "1.0") != key(ColumnKind.STRING, "1.00")


def rows_of(monkeypatch: pytest.MonkeyPatch, kind: ColumnKind, found: list[str], wanted: str) -> Any:
    """Reads a row by a key that Spanner writes as one of ``found``."""
    column = ColumnType("Id", TYPE_OBJECTS[kind], is_primary_key=False, ordinal_position=1)

    def read_keys(*_: object, **__: object) -> Iterator[RowBlock]:
        yield RowBlock([column], [encoded(one) for one in found])

    monkeypatch.setattr(reading, "read_keys", read_keys)
    rows = SpannerRows(Completion(DatabaseAddress("p", "in", "d")))
    return rows.read(Read("T", (), ("Id",), (f'{{"Id":"{wanted}"}}',), 1)).rows


def test_rows_whose_keys_are_written_otherwise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(monkeypatch, ColumnKind.TIMESTAMP, ["2024-01-01T00:00:00.100Z"], "2024-01-01T00:00:00.1Z")
    assert list(rows) == [key(ColumnKind.TIMESTAMP, "2024-01-01T00:00:00.1Z")]


def test_rows_that_nothing_has_requested_are_one_line_without_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpannerCdcError, match="none has a key that was requested") as caught:
        rows_of(monkeypatch, ColumnKind.STRING, ["secret"], "other")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
