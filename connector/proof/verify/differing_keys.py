"""The keys of rows that differ, in files, so that the rows can be read again however many they are."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.proof.verify.rows import Columns, RowKind, Unsure

_HELD = 10_000
"""Keys in memory, after which all are written."""


class DifferingKey(NamedTuple):
    """The key of a row that differs.

    Attributes:
        text: a JSON object with the columns of the key, in Spanner's encoding.
        is_extra: whether Spanner did not have the row.
    """

    text: str
    is_extra: bool


class DifferingKeys:
    """The keys of rows that differ, by table.

    Args:
        folder: an empty folder for the files, which hold values of rows.

    Attributes:
        counts: how many there are, by table and kind.

    Raises:
        OSError: from every method, if the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[str, int] = {}
        self._held: list[tuple[int, bytes]] = []
        self.counts: Counter[tuple[str, RowKind]] = Counter()

    @property
    def tables(self) -> list[str]:
        """The tables with such rows, sorted."""
        return sorted(self._numbers)

    def add(self, kind: RowKind, schema: TableSchema, row: Columns) -> None:
        """Adds a row.

        Args:
            kind: how it differs: one of :data:`connector.proof.verify.report.REPAIRABLE`.
            schema: of its table.
            row: the columns of the key at least, in Datastream's unified types.
        """
        number = self._numbers.setdefault(schema.table, len(self._numbers))
        self.counts[schema.table, kind] += 1
        mark = b"-" if kind is RowKind.EXTRA else b"+"
        self._held.append((number, mark + key_text(schema, row) + b"\n"))
        if len(self._held) >= _HELD:
            self._flush()

    def of(self, table: str, most: int) -> Iterator[list[DifferingKey]]:
        """The keys of a table in the order in which they were added, in lists of at most so many."""
        self._flush()
        with self._path(self._numbers[table]).open(encoding="utf-8") as lines:
            while found := [DifferingKey(line[1:-1], line[0] == "-") for line in islice(lines, most)]:
                yield found

    def _flush(self) -> None:
        lines: defaultdict[int, bytearray] = defaultdict(bytearray)
        for number, line in self._held:
            lines[number] += line
        self._held.clear()
        for number, text in lines.items():
            with self._path(number).open("ab") as file:
                file.write(text)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:04}"


def key_text(schema: TableSchema, row: Mapping[str, object]) -> bytes:
    """The text of a JSON object with the columns of a row's key, in their order and in Spanner's encoding.

    Args:
        schema: the table's.
        row: the columns of the key at least, in Datastream's unified types.
    """
    kinds = {column.name: SpannerType.parse(column.type).kind.encoded_like for column in schema.columns}
    values = {name: row[name] for name in schema.primary_keys}
    encoded = {name: value.value if isinstance(value, Unsure) else value for name, value in values.items()}
    for name, value in encoded.items():
        if kinds.get(name) is ColumnKind.INT64 and value is not None:
            encoded[name] = str(value)
    return orjson.dumps(encoded, default=float)  # the number of a FLOAT64 is parsed as a Decimal
