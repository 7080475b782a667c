"""Rows from messages whose values were cut into chunks."""

from dataclasses import dataclass, field

import pytest
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import given
from hypothesis import strategies as st

from connector.rows import RowAssembler, merge

Node = str | bool | None | list["Node"]


@dataclass
class Message:
    values: list[Value]
    chunked_value: bool = False
    columns: int | None = field(default=None)


def value(node: Node) -> Value:
    match node:
        case str():
            return Value(string_value=node)
        case bool():
            return Value(bool_value=node)
        case None:
            return Value(null_value=0)
        case _:
            return Value(list_value=ListValue(values=[value(item) for item in node]))


def node(of: Value) -> Node:
    match of.WhichOneof("kind"):
        case "string_value":
            return str(of.string_value)
        case "bool_value":
            return bool(of.bool_value)
        case "list_value":
            return [node(item) for item in of.list_value.values]
        case _:
            return None


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("foo", "bar", "foobar"),
        (["a", "b"], ["c", "d"], ["a", "bc", "d"]),
        (["a", ["b", "c"]], [["d"], "e"], ["a", ["b", "cd"], "e"]),
        ([True], [False], [True, False]),
        (["a"], [None], ["a", None]),
        ([], ["a"], ["a"]),
    ],
)
def test_a_chunk_continues_as_the_api_reference_says(first: Node, second: Node, whole: Node) -> None:
    into = value(first)
    merge(into, value(second))
    assert node(into) == whole


def test_chunks_of_different_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="continued by one of kind"):
        merge(value("a"), value([]))


def _split(whole: Node, at: int) -> tuple[Node, Node, int]:
    """Cuts a value after ``at`` characters, wherever in it they are; also says how many characters it took."""
    if isinstance(whole, str):
        cut = min(at, len(whole))
        return whole[:cut], whole[cut:], cut
    assert isinstance(whole, list)
    head: list[Node] = []
    for index, item in enumerate(whole):
        if isinstance(item, str | list):
            first, rest, used = _split(item, at)
            if rest:
                return [*head, first], [rest, *whole[index + 1 :]], used
            at -= used
        head.append(item)
    return head, [], 0


nodes = st.recursive(
    st.text(min_size=1, max_size=5), lambda inner: st.lists(inner, min_size=1, max_size=4), max_leaves=20
).filter(lambda found: isinstance(found, list))


@given(nodes, st.integers(0, 60))
def test_a_value_cut_anywhere_is_whole_again(whole: Node, at: int) -> None:
    first, rest, _ = _split(whole, at)
    if not rest or not first:
        return
    assembler = RowAssembler()
    rows = list(assembler.rows(Message([value(first)], chunked_value=True), columns=1))
    rows += list(assembler.rows(Message([value(rest)]), columns=None))
    assert [node(row[0]) for row in rows] == [whole]


def test_a_row_may_span_messages_and_a_message_many_rows() -> None:
    assembler = RowAssembler()
    first = list(assembler.rows(Message([value("a"), value("b"), value("c")]), columns=2))
    second = list(assembler.rows(Message([value("d"), value("e")]), columns=None))
    assert [[node(cell) for cell in row] for row in first + second] == [["a", "b"], ["c", "d"]]


def test_a_chunk_may_span_three_messages() -> None:
    assembler = RowAssembler()
    rows = [
        *assembler.rows(Message([value("x"), value("a")], chunked_value=True), columns=1),
        *assembler.rows(Message([value("b")], chunked_value=True), columns=None),
        *assembler.rows(Message([value("c"), value("y")]), columns=None),
    ]
    assert [node(row[0]) for row in rows] == ["x", "abc", "y"]
