"""Mutations of rows, in the order in which a destination's tables need them, in commits within Spanner's limits. Pure.

A commit's mutations are applied in their order
(https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#commitrequest). Rows are deleted first, children
before parents, and written then, parents before children: a parent is what a table is interleaved in or refers to by a
foreign key. Rows of tables that others refer to are deleted last: until then something may refer to them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue
from google.protobuf.struct_pb2 import Value as ProtobufValue

from spark_sink.sinks.spanner.writing.row_merger import MergedRow, Value

_Mutation = types.Mutation.pb()

DELETE, WRITE, UPDATE = "delete", "insert_or_update", "update"

CELLS = 20_000
"""Cells of a commit, a quarter of Spanner's limit of mutations: each index of a table has cells of its own."""

MOST_CELLS = 80_000
"""Spanner's limit of mutations (https://cloud.google.com/spanner/quotas)."""

BYTES = 4_000_000
"""Characters of the payloads of a commit; Spanner takes 100 MB, and is slow with large ones."""


class RowMutation(NamedTuple):
    """A row that is written or deleted.

    Attributes:
        operation: the name of the mutation's field.
        table: the destination's name.
        columns: that are written; those of the key where the row is deleted.
        values: of these columns.
        row: whose it is.
        lacking: columns that the row must have if it is not there, and that its changes do not have.
    """

    operation: str
    table: str
    columns: tuple[str, ...]
    values: Sequence[Value]
    row: MergedRow
    lacking: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Characters, at most about so many."""
        return sum(len(change.payload) for change in self.row.changes) + 20


Level = tuple[RowMutation, ...]


@dataclass(frozen=True, slots=True)
class Levels:
    """The mutations of some rows, each by the depth of tables.

    Attributes:
        deletes: what is deleted, children first.
        writes: what is written, parents first.
        last_deletes: what is deleted of tables that others refer to by foreign keys, children first.
        takes_others: whether one of these deletes takes with it what refers to the row.
    """

    deletes: tuple[Level, ...]
    writes: tuple[Level, ...]
    last_deletes: tuple[Level, ...] = ()
    takes_others: bool = False

    def in_order(self) -> tuple[Level, ...]:
        """The levels."""
        return *self.deletes, *self.writes, *self.last_deletes

    def orders(self) -> Iterator[tuple[Level, ...]]:
        """All orders that may be right for a single commit, the most likely one first."""
        yield self.in_order()
        replaced = (tuple(one for one in level if one.row.is_replaced) for level in self.deletes)
        others = (tuple(one for one in level if not one.row.is_replaced) for level in self.deletes)
        yield *replaced, *self.writes, *others, *self.last_deletes
        if self.last_deletes and not self.takes_others:  # a unique value may move from a deleted row
            yield *self.deletes, *self.last_deletes, *self.writes
        elif self.last_deletes:  # what is there has its new references by then, and what is new cannot be taken
            new = tuple(tuple(one for one in level if one.row.is_new) for level in self.writes)
            there = (tuple(one for one in level if not one.row.is_new) for level in self.writes)
            if any(new):
                yield *self.deletes, *there, *self.last_deletes, *new


def leveled(
    mutations: Iterable[tuple[int, RowMutation]],
    deleted_last: Iterable[tuple[int, RowMutation]] = (),
    *,
    takes_others: bool = False,
) -> Levels:
    """Mutations by the depth of their tables, which is given with each; a parent's is less than its children's."""
    deletes, writes, last = (defaultdict[int, list[RowMutation]](list) for _ in range(3))
    for depth, one in mutations:
        (deletes if one.operation == DELETE else writes)[depth].append(one)
    for depth, one in deleted_last:
        last[depth].append(one)
    return Levels(
        tuple(tuple(deletes[depth]) for depth in sorted(deletes, reverse=True)),
        tuple(tuple(writes[depth]) for depth in sorted(writes)),
        tuple(tuple(last[depth]) for depth in sorted(last, reverse=True)),
        takes_others,
    )


def commits(mutations: Iterable[RowMutation]) -> Iterator[list[RowMutation]]:
    """Divides mutations into commits within the limits, or of one larger row."""
    held: list[RowMutation] = []
    cells = size = 0
    for one in mutations:
        if held and (cells + len(one.columns) > CELLS or size + one.size > BYTES):
            yield held
            held, cells, size = [], 0, 0
        held.append(one)
        cells += len(one.columns)
        size += one.size
    if held:
        yield held


def encoded(mutations: Iterable[RowMutation]) -> list[Message]:
    """Mutations as protocol buffers, in order; those that follow one another with the same columns are one."""
    return [
        _mutation(operation, table, columns, [one.values for one in rows])
        for (operation, table, columns), rows in groupby(mutations, key=lambda one: one[:3])
    ]


def _mutation(operation: str, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> Message:
    mutation: Message = _Mutation()
    if operation == DELETE:
        mutation.delete.table = table
        for values in rows:
            _fill(mutation.delete.key_set.keys.add(), values)
        return mutation
    write = getattr(mutation, operation)
    write.table = table
    write.columns.extend(columns)
    for values in rows:
        _fill(write.values.add(), values)
    return mutation


def _fill(into: ListValue, values: Iterable[Value]) -> None:
    for value in values:
        _set(into.values.add(), value)


def _set(into: ProtobufValue, value: Value) -> None:
    """Spanner's encoding of a value is that of JSON (google.spanner.v1.TypeCode); a number is a FLOAT64 or FLOAT32."""
    match value:
        case None:
            into.null_value = 0
        case str():
            into.string_value = value
        case bool():
            into.bool_value = value
        case int() | float():
            into.number_value = value
        case list():
            into.list_value.SetInParent()
            _fill(into.list_value, value)
        case _:
            into.string_value = orjson.dumps(value).decode()
