"""Merges a table's changes, in commit order, into one line for each row: what a load job and a MERGE write.

An UPDATE that names only some columns changes only those, so every value capture type will do. A column that no change
named is marked as not present, because it is not NULL. An INSERT or a DELETE replaces everything before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import orjson
import pyarrow as pa

from connector.core.timestamps import MICROSECOND
from spark_sink.sinks.bigquery.merging.bounds import bound_of, bounded
from spark_sink.sinks.bigquery.merging.statements import ALIASES, added, free_names
from spark_sink.sinks.bigquery.merging.values import RejectedRowError, loaded
from spark_sink.sinks.bigquery.tables.table import IS_DELETED, METADATA, BigQueryTable, Field

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NULL = msgspec.Raw(b"null")


@dataclass(slots=True)
class _Row:
    """A row after its changes: the values that they named, and the last change."""

    values: dict[str, msgspec.Raw]
    deleted: bool
    replaced: bool
    last: tuple[str, int, str]


class RowMerger:
    """The merged rows of one table.

    Args:
        table: the table.
    """

    def __init__(self, table: BigQueryTable) -> None:
        self._table = table
        self._columns = {column.name: column for column in table.columns}
        self._keys = [column.name for column in table.columns if column.is_key]
        self._rows: dict[tuple[object, ...], _Row] = {}
        self._present, self._deleted, self._replaced = added(table)
        by = table.partition.column if table.partition else ""
        self._partition_column = next((column.name for column in table.columns if column.field.name == by), "")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def fields(self) -> list[Field]:
        """The columns of a line. A deleted row has only its key; JSON is loaded as text."""
        own = [
            Field(field.name, "STRING" if field.type == "JSON" else field.type, field.repeated, fields=field.fields)
            for field in self._table.fields
        ]
        return [*own, Field(self._present, "STRING"), Field(self._deleted, "BOOL"), Field(self._replaced, "BOOL")]

    def add(self, rows: pa.RecordBatch) -> list[tuple[int, str]]:
        """Adds events of the table, in commit order; returns the index of each rejected one, and why."""
        rejected = []
        metadata = rows.column("source_metadata")
        mod_types = metadata.field("mod_type").to_pylist()
        timestamps = rows.column("source_timestamp").cast(pa.int64()).to_pylist()
        uuids, numbers = rows.column("uuid").to_pylist(), rows.column("change_sequence_number").to_pylist()
        for index, payload in enumerate(rows.column("payload").to_pylist()):
            try:
                values = self._values(payload, mod_types[index])
            except RejectedRowError as error:
                rejected.append((index, str(error)))
                continue
            self._change(values, mod_types[index], (uuids[index], timestamps[index] // MICROSECOND, numbers[index]))
        return rejected

    @property
    def last(self) -> str:
        """The largest change sequence number of the rows; empty where there are none."""
        return max((row.last[2] for row in self._rows.values()), default="")

    def split(self, most: int) -> "list[RowMerger]":
        """These rows, in several mergers if they have values of more partitions than ``most``; none without rows."""
        of_partition: dict[object, dict[tuple[object, ...], _Row]] = {}
        for key, row in self._rows.items():
            of_partition.setdefault(self._partition_of(key, row, most), {})[key] = row
        if len(of_partition) <= most:
            return [self] if self._rows else []
        partitions = list(of_partition.values())
        return [self._of(partitions[first : first + most]) for first in range(0, len(partitions), most)]

    def _of(self, partitions: Sequence[dict[tuple[object, ...], _Row]]) -> "RowMerger":
        merger = RowMerger(self._table)
        for rows in partitions:
            merger._rows.update(rows)
        return merger

    def _partition_of(self, key: tuple[object, ...], row: _Row, most: int) -> object:
        """The partition of a row's value; a row whose change does not name it may be alone in one."""
        partition, name = self._table.partition, self._partition_column
        if partition is None:
            return None
        if name in row.values:
            return partition.of(bytes(row.values[name]))
        return ("", key) if partition.may_exceed(most) else None

    def lines(self) -> bytes:
        """The rows as lines of JSON."""
        return b"\n".join(self._line(row) for row in self._rows.values())

    def bounds(self) -> str:
        """A condition on the target that all keys of these rows meet; empty where there is none."""
        target, _ = free_names(self._table, *ALIASES)
        bounds = (
            bound_of(self._columns[name], {bytes(row.values[name]) for row in self._rows.values()}, target)
            for name in bounded(self._table)
        )
        return " AND ".join(filter(None, bounds))

    def _values(self, payload: str, mod_type: str) -> dict[str, msgspec.Raw]:
        try:
            found = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise RejectedRowError("the row is not a JSON object") from None
        named = self._keys if mod_type == "DELETE" else dict.fromkeys((*self._keys, *found))
        values = {}
        for name in named:
            column = self._columns.get(name)
            if column is None:
                raise RejectedRowError(f"column {name} is not known in table {self._table.source}")
            values[name] = loaded(column, found.get(name, _NULL))
        return values

    def _change(self, values: dict[str, msgspec.Raw], mod_type: str, last: tuple[str, int, str]) -> None:
        key = tuple(orjson.loads(bytes(values[name])) for name in self._keys)
        known = self._rows.get(key)
        if mod_type == "UPDATE" and (known is None or not known.deleted):
            before = known.values if known else {}
            self._rows[key] = _Row({**before, **values}, False, known.replaced if known else False, last)
        else:
            self._rows[key] = _Row(values, mod_type == "DELETE", mod_type != "DELETE", last)

    def _line(self, row: _Row) -> bytes:
        uuid, timestamp, number = row.last
        line: dict[str, object] = {
            column.field.name: orjson.Fragment(bytes(row.values[column.name]))
            for column in self._table.columns
            if column.name in row.values
        }
        metadata = {"uuid": uuid, "source_timestamp": timestamp, "change_sequence_number": number}
        line[METADATA] = {**metadata, IS_DELETED: row.deleted} if self._table.keeps_deleted else metadata
        line[self._present] = "".join("01"[column.name in row.values] for column in self._table.columns)
        line[self._deleted], line[self._replaced] = row.deleted, row.replaced
        return orjson.dumps(line)
