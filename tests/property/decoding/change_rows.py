"""Generates rows of change streams in both dialects, as Spanner might send them, and as it never would.

A row is a :data:`Node`, the tree of its only value. In GoogleSQL arrays and structs are lists; in the PostgreSQL
dialect a row is the text of a JSON document.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import strategies as st

from connector.core.timestamps import format_rfc3339, parse

Node = str | bool | float | None | list["Node"]

AT = parse("2026-01-02T03:04:59.999999000Z")
_STEPS = (0, 0, 0, 1, 1000, 10**6, 10**8, 10**9)

_NESTED = (
    '{"code":"STRUCT","struct_type":{"fields":[{"name":"a","type":{"code":"ARRAY","array_element_type":'
    '{"code":"PROTO","proto_type_fqn":"a.B"}}}]}}'
)
TABLES: tuple[tuple[str, list[tuple[str, str, bool, int]]], ...] = (
    ("Singers", [("Id", '{"code":"INT64"}', True, 1), ("Name", '{"code":"STRING"}', False, 2)]),
    ("Singers", [("Id", '{"code": "INT64"}', True, 1)]),
    ("music.Älben", [("Ärger €🎸", '{"arrayElementType":{"code":"JSON"},"code":"ARRAY"}', False, 7)]),
    ("Nested", [("N", _NESTED, False, 3), ("Id", '{"code":"NEW","x":[1.5,null]}', True, -1)]),
    ("Bare", []),
)
"""Tables and their column types: one table in two versions, one type in two texts, types of later versions."""

TEXTS = (
    "{}", "{}", '{"Id":"1"}', '{"Id":"1","Name":null}', '{ "F" : 1.50e0 , "S":"\\u0041\\n" }', '{"Ä":"€🎸"}', "{ }",
    '{"a":{"b":[{}],"":"}{"}}', '{"n":123456789012345678901234567890.10}', "null",
)  # fmt: skip
"""Payloads: JSON texts."""


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON text that is inserted in a document unchanged."""

    text: str


@dataclass(slots=True)
class DataChange:
    """A data change record of either dialect; the fields are in the order of the row type."""

    commit_timestamp: str
    record_sequence: str
    server_transaction_id: str
    is_last_record_in_transaction_in_partition: bool
    table: tuple[str, list[tuple[str, str, bool, int]]]
    mods: list[tuple[str, str, str]]
    mod_type: str
    value_capture_type: str
    number_of_records_in_transaction: int
    number_of_partitions_in_transaction: int
    transaction_tag: str
    is_system_transaction: bool


@dataclass(slots=True)
class Heartbeat:
    timestamp: str


@dataclass(slots=True)
class Children:
    start_timestamp: str
    record_sequence: str
    children: list[tuple[str, list[str | None] | None]]


Change = DataChange | Heartbeat | Children


@dataclass(frozen=True, slots=True)
class Spread:
    """The variety of the records of a stream."""

    precisions: Sequence[int] = (6,)
    zones: Sequence[str] = ("Z",)
    back: Sequence[int] = (0,)
    """Steps back in time, in nanoseconds."""
    kinds: Sequence[str] = ("data",)


TYPICAL = Spread()
ANY = Spread(
    precisions=range(10),
    zones=("Z", "Z", "Z", "z", "+00:00", "-07:30", "+0100"),
    back=(0, 0, 0, 0, 1, 10**9),
    kinds=("data", "data", "data", "data", "data", "heartbeat", "children"),
)

_SEQUENCES = ("00000000", "00000001", "2", "10", "x", "99999999999999999999")
_TRANSACTIONS = ("a", "b", "MTIzNDU2Nzg5", "ä€🎸")
_NUMBERS = (1, 1, 1, 2, 12, 0, -1, 2**63 - 1)
_PARENTS: tuple[list[str | None] | None, ...] = (None, [], [None], ["p"], ["p", "q", None])


def _data(random: Random) -> DataChange:
    return DataChange(
        commit_timestamp="",
        record_sequence=random.choice(_SEQUENCES),
        server_transaction_id=random.choice(_TRANSACTIONS),
        is_last_record_in_transaction_in_partition=random.random() < 0.5,
        table=random.choice(TABLES),
        mods=[_mod(random) for _ in range(random.choice((0, 1, 1, 1, 1, 2, 5)))],
        mod_type=random.choice(("INSERT", "UPDATE", "DELETE")),
        value_capture_type=random.choice(("NEW_ROW", "OLD_AND_NEW_VALUES")),
        number_of_records_in_transaction=random.choice(_NUMBERS),
        number_of_partitions_in_transaction=random.choice(_NUMBERS),
        transaction_tag=random.choice(("", "", "app=x", "ä€🎸")),
        is_system_transaction=random.random() < 0.5,
    )


def _mod(random: Random) -> tuple[str, str, str]:
    keys, new, old = random.choices(TEXTS, k=3)
    return keys, new, old


def _children(random: Random) -> Children:
    tokens = random.choices(("c1", "c2", "ä"), k=random.randrange(1, 4))
    return Children("", random.choice(_SEQUENCES), [(token, random.choice(_PARENTS)) for token in tokens])


_RANDOM = Random(7)
_POOLS: dict[str, st.SearchStrategy[Change]] = {
    "data": st.sampled_from([_data(_RANDOM) for _ in range(500)]),
    "children": st.sampled_from([_children(_RANDOM) for _ in range(50)]),
    "heartbeat": st.just(Heartbeat("")),
}
"""Generated once: Hypothesis takes as long to draw ten fields as a decoder to decode ten records."""


@st.composite
def changes(draw: st.DrawFn, spread: Spread, *, least: int = 0, most: int = 12) -> list[Change]:
    """Draws records of a partition in the order in which a query returns them: that of time, unless one steps back."""
    precision, zone = draw(st.sampled_from(spread.precisions)), draw(st.sampled_from(spread.zones))
    alike = draw(st.booleans())
    at = AT
    found: list[Change] = []
    for kind in draw(st.lists(st.sampled_from(spread.kinds), min_size=least, max_size=most)):
        at += draw(st.sampled_from(_STEPS)) - draw(st.sampled_from(spread.back))
        if not alike:
            precision, zone = draw(st.sampled_from(spread.precisions)), draw(st.sampled_from(spread.zones))
        one = draw(_POOLS[kind])
        found.append(_at(one, written(at, precision, zone)))
    return found


def _at(one: Change, timestamp: str) -> Change:
    match one:
        case Heartbeat():
            return Heartbeat(timestamp)
        case Children():
            return replace(one, start_timestamp=timestamp)
        case _:
            return replace(one, commit_timestamp=timestamp)


def written(nanos: int, precision: int, zone: str) -> str:
    """Formats a timestamp with so many digits of a second; further digits are cut off."""
    fraction = f"{nanos % 10**9:09}"[:precision]
    return format_rfc3339(nanos)[:19] + (f".{fraction}" if fraction else "") + zone


# GoogleSQL


def googlesql(of: Change) -> list[Node]:
    """Returns a change record: a struct of three arrays, one of which has an element."""
    match of:
        case Heartbeat():
            return [[], [[of.timestamp]], []]
        case Children():
            children: list[Node] = [[token, None if parents is None else [*parents]] for token, parents in of.children]
            return [[], [], [[of.start_timestamp, of.record_sequence, children]]]
    table, columns = of.table
    data: list[Node] = [
        of.commit_timestamp,
        of.record_sequence,
        of.server_transaction_id,
        of.is_last_record_in_transaction_in_partition,
        table,
        [[name, kind, key, str(position)] for name, kind, key, position in columns],
        [[*mod] for mod in of.mods],
        of.mod_type,
        of.value_capture_type,
        str(of.number_of_records_in_transaction),
        str(of.number_of_partitions_in_transaction),
        of.transaction_tag,
        of.is_system_transaction,
    ]
    return [[data], [], []]


# PostgreSQL

Document = dict[str, Any]


def postgresql(of: Change) -> Document:
    """Returns a change record: an object with one member."""
    match of:
        case Heartbeat():
            return {"heartbeat_record": {"timestamp": of.timestamp}}
        case Children():
            children = [
                {"token": token, "parent_partition_tokens": parents and [*parents]} for token, parents in of.children
            ]
            record = {
                "start_timestamp": of.start_timestamp,
                "record_sequence": of.record_sequence,
                "child_partitions": children,
            }
            return {"child_partitions_record": record}
    table, columns = of.table
    data: Document = {
        "column_types": [
            {"is_primary_key": key, "name": name, "ordinal_position": position, "type": Json(kind)}
            for name, kind, key, position in columns
        ],
        "commit_timestamp": of.commit_timestamp,
        "is_last_record_in_transaction_in_partition": of.is_last_record_in_transaction_in_partition,
        "is_system_transaction": of.is_system_transaction,
        "mod_type": of.mod_type,
        "mods": [{"keys": Json(keys), "new_values": Json(new), "old_values": Json(old)} for keys, new, old in of.mods],
        "number_of_partitions_in_transaction": of.number_of_partitions_in_transaction,
        "number_of_records_in_transaction": of.number_of_records_in_transaction,
        "record_sequence": of.record_sequence,
        "server_transaction_id": of.server_transaction_id,
        "table_name": table,
        "transaction_tag": of.transaction_tag,
        "value_capture_type": of.value_capture_type,
    }
    return {"data_change_record": data}


@dataclass(frozen=True, slots=True)
class Style:
    """The style in which JSON is written: the whitespace around values, and whether all of it is ASCII."""

    space: str = ""
    ascii: bool = False


STYLES = (Style(), Style(), Style(" "), Style("\r\n\t", ascii=True), Style(ascii=True))


def text(node: Any, style: Style) -> str:
    """Writes a document as JSON."""
    space = style.space
    match node:
        case Json():
            return node.text
        case dict():
            members = [f"{json.dumps(key)}{space}:{space}{text(item, style)}{space}" for key, item in node.items()]
            return "{" + space + f",{space}".join(members) + "}"
        case list():
            return "[" + space + f",{space}".join(text(item, style) + space for item in node) + "]"
        case _:
            return json.dumps(node, ensure_ascii=style.ascii)


# Oddities


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Returns the places of all values in a tree of lists and objects: the container, and the index or key."""
    found = []
    inner = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
    for at, item in inner:
        found.append((tree, at))
        found += places(item)
    return found


def changed(draw: st.DrawFn, trees: list[Any], change: Callable[[Any, Any], None]) -> None:
    """Changes the trees in one drawn place."""
    where = [place for tree in trees for place in places(tree)]
    if where:
        change(*where[draw(st.integers(0, len(where) - 1))])


def value(node: Node) -> Value:
    """Encodes a node as Spanner does."""
    match node:
        case bool():
            return Value(bool_value=node)
        case str():
            return Value(string_value=node)
        case float():
            return Value(number_value=node)
        case None:
            return Value(null_value=0)
        case _:
            return Value(list_value=ListValue(values=[value(item) for item in node]))


def some_rows(dialect: str, random: Random, count: int) -> list[Value]:
    """Generates rows of one record each, most of them data change records, in the order of their timestamps."""
    found = []
    for number in range(count):
        make = random.choice((_data, _data, _data, _data, _children, lambda _: Heartbeat("")))
        one = _at(make(random), written(AT + number * 1000, 6, "Z"))
        found.append(value([googlesql(one)] if dialect == "googlesql" else text(postgresql(one), Style())))
    return found
