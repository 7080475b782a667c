"""Rows of bytes built from columns."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.core.byte_columns import RowBytes, bytes_of, ends_of, is_constant, joined
from connector.core.text_columns import json_texts


@given(st.lists(st.tuples(st.binary(max_size=4), st.text(max_size=3)), max_size=9), st.integers(0, 3))
def test_a_row_is_its_parts_in_order(rows: list[tuple[bytes, str]], first: int) -> None:
    some = rows[first:]
    pieces = RowBytes(len(some))
    pieces.literal(b"<")
    pieces.column(pa.array([data for data, _ in rows], pa.binary()).slice(first))
    pieces.literal(b"|")
    pieces.literal(b"-")
    pieces.column(pa.array([text for _, text in rows], pa.string()).slice(first))
    out = pieces.joined()
    expected = [b"<" + data + b"|-" + text.encode() for data, text in some]
    assert out.to_pylist() == expected
    assert bytes_of(out).tobytes() == b"".join(expected)
    assert [end - len(row) for end, row in zip(ends_of(out).tolist(), expected, strict=True)] == [
        sum(map(len, expected[:number])) for number in range(len(expected))
    ]


def test_a_column_with_one_value_is_a_literal() -> None:
    pieces = RowBytes(2)
    pieces.column(pa.array(["a", "a"]))
    pieces.literal(b"b")
    assert pieces.joined().to_pylist() == [b"ab", b"ab"]
    assert is_constant(pa.array(["a", "a"]))
    assert not is_constant(pa.array(["a", "b", "a"]))
    assert not is_constant(pa.array(["a", None, "a"]))
    assert not is_constant(pa.array([], pa.string()))


def test_texts_are_joined_with_commas() -> None:
    assert joined(pa.array(["{}", '{"a":1}', "{}"]).slice(1)).tobytes() == b'{"a":1},{}'


def test_columns_of_every_type_of_the_envelope_are_json() -> None:
    assert json_texts(pa.array(["a", None, 'q"\n', "ü"])).to_pylist() == ['"a"', "null", '"q\\"\\n"', '"ü"']
    assert json_texts(pa.array([1, None, -(2**63)])).to_pylist() == ["1", "null", str(-(2**63))]
    assert json_texts(pa.array([True, None, False])).to_pylist() == ["true", "null", "false"]
    lists = pa.array([["a", 'b"'], None, [], [""]], pa.list_(pa.string()))
    assert json_texts(lists).to_pylist() == ['["a","b\\""]', "null", "[]", '[""]']
    assert json_texts(lists.slice(1, 2)).to_pylist() == ["null", "[]"]
