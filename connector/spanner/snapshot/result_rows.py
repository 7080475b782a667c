"""Makes blocks of rows of a result's messages; a row's values may be spread over several messages. Pure."""

from collections.abc import Iterator, Sequence

from google.cloud.spanner_v1 import types

from connector.core.masking.masks import ColumnMask
from connector.core.masking.rules import ColumnRules
from connector.core.records import ColumnType
from connector.spanner.decoding.chunks import ValueAssembler
from connector.spanner.decoding.mutable_walk import type_json
from connector.spanner.snapshot.row_block import RowBlock

BLOCK_BYTES = 512 * 1024
"""Bytes of messages that make a block, unless a message or a row has more.

Converting a block has a fixed cost, and larger ones exceed what the memory allocator keeps.
"""

_Metadata = types.ResultSetMetadata.pb()


def columns_of(metadata: bytes) -> tuple[ColumnType, ...]:
    """The columns that a google.spanner.v1.ResultSetMetadata describes."""
    fields = _Metadata.FromString(metadata).row_type.fields
    return tuple(
        ColumnType(field.name, type_json(field.type_), is_primary_key=False, ordinal_position=position)
        for position, field in enumerate(fields, 1)
    )


class ResultRows:
    """The rows of one result, whose messages are added in order.

    Args:
        what: names the result in errors.
        table: the table that the rows are of.
        rules: for the table's columns that are excluded or hashed; None if there are none.
    """

    def __init__(self, what: str = "a table", *, table: str = "", rules: ColumnRules | None = None) -> None:
        self._what = what
        self._table = table
        self._rules = rules
        self._mask: ColumnMask | None = None
        self._assembler = ValueAssembler()
        self._columns: tuple[ColumnType, ...] = ()
        self._values: list[bytes] = []
        self._bytes = 0

    def add(self, messages: Sequence[bytes]) -> Iterator[RowBlock]:
        """Adds messages, each the bytes of a google.spanner.v1.PartialResultSet; yields the blocks that are full.

        Raises:
            DecodeError, ValueError: a message is not of the documented format.
        """
        self._values += self._assembler.values(messages)
        if not self._columns:
            self._columns = columns_of(self._assembler.metadata or b"")
            self._mask = None if self._rules is None else self._rules.mask(self._table, self._columns)
        self._bytes += sum(map(len, messages))
        if self._bytes >= BLOCK_BYTES:
            yield from self._blocks()

    def rest(self) -> Iterator[RowBlock]:
        """Yields the last blocks, once all messages were added.

        Raises:
            ValueError: the messages end within a row.
        """
        yield from self._blocks()
        if self._values or self._assembler.pending:
            raise ValueError("the result ends within a row")

    def _blocks(self) -> Iterator[RowBlock]:
        width = len(self._columns)
        rows = len(self._values) // width if width else 0
        if not rows:
            return
        whole = self._values if rows * width == len(self._values) else self._values[: rows * width]
        self._values = self._values[rows * width :]
        at_once = max(rows * BLOCK_BYTES // max(self._bytes, 1), 1)
        self._bytes = 0
        for first in range(0, rows, at_once):
            last = min(first + at_once, rows)
            values = whole if last - first == rows else whole[first * width : last * width]
            yield RowBlock(self._columns, values, self._what, self._mask)
