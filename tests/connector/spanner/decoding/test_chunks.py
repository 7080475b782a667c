"""Values that messages hold in chunks are joined."""

from unittest.mock import patch

import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import given
from hypothesis import strategies as st

from connector.spanner.decoding import chunks
from connector.spanner.decoding.chunks import ValueAssembler, merged

Node = str | bool | None | list["Node"]


_PartialResultSet = types.PartialResultSet.pb()


def message(*nodes: Node, chunked: bool = False) -> bytes:
    encoded: bytes = _PartialResultSet(values=map(value, nodes), chunked_value=chunked).SerializeToString()
    return encoded


def nodes_of(values: list[bytes]) -> list[Node]:
    return [node(Value.FromString(one)) for one in values]


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
def test_chunks_are_joined_as_in_the_examples_of_the_api_reference(first: Node, second: Node, whole: Node) -> None:
    assert node(merged([value(first), value(second)])) == whole


def test_chunks_of_different_kinds_are_rejected() -> None:
    with pytest.raises(ValueError, match="continued by one of kind"):
        merged([value("a"), value([])])
    assembler = ValueAssembler()
    with pytest.raises(ValueError, match="continued by one of kind"):
        assembler.values([message("a", chunked=True), message([], chunked=True)])


def _split(whole: Node, at: int) -> tuple[Node, Node, int]:
    """Cuts a value after ``at`` of its characters, at any depth; also returns the characters of the first part."""
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
def test_a_value_in_two_chunks_is_joined_wherever_it_was_cut(whole: Node, at: int) -> None:
    first, rest, _ = _split(whole, at)
    if not rest or not first:
        return
    assembler = ValueAssembler()
    apart = assembler.values([message(first, chunked=True)]) + assembler.values([message(rest)])
    together = ValueAssembler().values([message(first, chunked=True), message(rest)])
    assert nodes_of(apart) == nodes_of(together) == [whole]


def test_the_values_of_many_messages_are_in_order() -> None:
    found = ValueAssembler().values([message("a", ["b"]), message(), message(None), message("d")])
    assert nodes_of(found) == ["a", ["b"], None, "d"]


def test_the_first_messages_metadata_is_kept() -> None:
    metadata = types.ResultSetMetadata.pb()()
    metadata.row_type.fields.add(name="ChangeRecord")
    assembler = ValueAssembler()
    assembler.values([_PartialResultSet(metadata=metadata).SerializeToString(), message("a")])
    assembler.values([message("b")])
    assert assembler.metadata == metadata.SerializeToString()


def test_a_chunk_may_span_three_messages() -> None:
    parts = [message("x", "a", chunked=True), message("b", chunked=True), message("c", "y")]
    assembler = ValueAssembler()
    apart = [value for part in parts for value in assembler.values([part])]
    assert nodes_of(apart) == nodes_of(ValueAssembler().values(parts)) == ["x", "abc", "y"]


def test_a_message_without_values_may_be_between_chunks() -> None:
    parts = [message("a", chunked=True), message(), message("b")]
    assert nodes_of(ValueAssembler().values(parts)) == ["ab"]


def test_bytes_that_are_not_a_message_are_rejected() -> None:
    with pytest.raises(DecodeError):
        ValueAssembler().values([b"\xff"])


@pytest.mark.parametrize("nested", [False, True])
def test_a_value_in_many_chunks_is_copied_no_more_than_one_in_few(nested: bool) -> None:
    """Joined bytes are counted, not timed: each chunk once for each list around it, however many chunks there are."""

    def joined(count: int) -> int:
        assembler, whole = ValueAssembler(), "x" * 8000
        step = len(whole) // count
        texts = [whole[at : at + step] for at in range(0, len(whole), step)]
        parts: list[Node] = [[[text]] if nested else text for text in texts]
        with patch.object(chunks, "merged", wraps=chunks.merged) as merges:
            found = [
                value
                for number, part in enumerate(parts)
                for value in assembler.values([message(part, chunked=number + 1 < count)])
            ]
        assert nodes_of(found) == [[[whole]] if nested else whole]
        return sum(chunk.ByteSize() for call in merges.call_args_list for chunk in call.args[0])

    assert joined(400) < 1.5 * joined(4)


@given(st.lists(nodes, min_size=1, max_size=4), st.lists(st.integers(0, 30), max_size=6))
def test_a_value_in_many_chunks_is_joined(whole: list[Node], ats: list[int]) -> None:
    parts: list[Node] = [list(whole)]
    for at in ats:
        first, rest, _ = _split(parts[-1], at)
        if not first or not rest:
            break
        parts[-1:] = [first, rest]
    messages = [message(part, chunked=number + 1 < len(parts)) for number, part in enumerate(parts)]
    assert nodes_of(ValueAssembler().values(messages)) == [whole]
