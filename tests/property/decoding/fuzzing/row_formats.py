"""The forms of rows that are fuzzed: how the rows of each are made, mutated, encoded, specified and decoded."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from connector.core.dialects import GOOGLESQL, IMMUTABLE, MUTABLE, POSTGRESQL
from connector.core.records import Record
from connector.spanner.decoding.decoder import ColumnDecoder, Walk, walk
from connector.spanner.decoding.googlesql import googlesql_columns
from connector.spanner.decoding.mutable import mutable_columns
from connector.spanner.decoding.postgresql import postgresql_columns
from tests.property.decoding.change_rows import AT, STYLES, googlesql, places, postgresql, text
from tests.property.decoding.framed import message
from tests.property.decoding.fuzzing.mutations import (
    ON_DOCUMENTS,
    ON_LISTS,
    ON_MESSAGES,
    Mutation,
    places_in_message,
)
from tests.property.decoding.fuzzing.valid_rows import change, data_change, encoded, proto
from tests.property.decoding.specification import googlesql_rows, mutable_rows, postgresql_rows

_NEIGHBOURS = 40


@dataclass(frozen=True)
class Neighbour:
    """A valid row that is decoded beside a mutated one: its commit timestamp, its message and its record."""

    at: int
    message: bytes
    record: Record


@dataclass(frozen=True)
class RowFormat:
    """A form of rows. A row is made as a tree, which is mutated and then encoded as a node.

    Args:
        name: of the form.
        make: makes the tree of a row with a timestamp.
        data: makes the tree of a data change record.
        places: lists the places of a tree that can be mutated.
        mutations: that apply to such a tree.
        encode: encodes a tree as a node, as :func:`tests.property.decoding.change_rows.value` takes it.
        specify: returns the records that a tree and its node mean; raises InvalidError.
        walk: the row decoder.
        columns: the column decoder.
        before: valid rows that are earlier than the mutated one.
        after: valid rows that are later.
    """

    name: str
    make: Callable[[Random, int], Any]
    data: Callable[[Random, int], Any]
    places: Callable[[Any], Sequence[tuple[Any, Any]]]
    mutations: tuple[Mutation, ...]
    encode: Callable[[Random, Any], Any]
    specify: Callable[[Any, Any], list[Record]]
    walk: Walk
    columns: ColumnDecoder
    before: list[Neighbour]
    after: list[Neighbour]


def _with_neighbours(rows: RowFormat) -> RowFormat:
    random = Random(7)
    for some, start in ((rows.before, AT), (rows.after, AT + 2 * 10**9)):
        for number in range(_NEIGHBOURS):
            tree = rows.data(random, start + number)
            node = rows.encode(random, tree)
            (record,) = rows.specify(tree, node)
            some.append(Neighbour(start + number, message([node]), record))
    return rows


def row_formats() -> dict[str, RowFormat]:
    """The forms of rows by name, one for each decoder."""

    def mutable(name: str, of: Walk) -> RowFormat:
        return RowFormat(
            name, proto, partial(proto, data=True), lambda tree: list(places_in_message(tree)), ON_MESSAGES,
            lambda _, tree: b64encode(encoded(tree)).decode(), lambda tree, _: mutable_rows.records(tree), of,
            mutable_columns, [], [],
        )  # fmt: skip

    found = (
        RowFormat(
            "googlesql", lambda random, at: [googlesql(change(random, at))],
            lambda random, at: [googlesql(data_change(random, at))], lambda tree: places([tree]), ON_LISTS,
            lambda _, tree: tree, lambda tree, _: googlesql_rows.records(tree), walk(GOOGLESQL, IMMUTABLE),
            googlesql_columns, [], [],
        ),
        RowFormat(
            "postgresql", lambda random, at: postgresql(change(random, at)),
            lambda random, at: postgresql(data_change(random, at)), places, ON_DOCUMENTS,
            lambda random, tree: text(tree, random.choice(STYLES)),
            lambda _, node: postgresql_rows.records(node), walk(POSTGRESQL, IMMUTABLE), postgresql_columns,
            [], [],
        ),
        mutable("mutable-googlesql", walk(GOOGLESQL, MUTABLE)),
        mutable("mutable-postgresql", walk(POSTGRESQL, MUTABLE)),
    )  # fmt: skip
    return {rows.name: _with_neighbours(rows) for rows in found}
