"""Builds rows of a table from events: protobuf messages, as the Storage Write API takes them. Pure.

The message's fields are the table's columns in their order, then BigQuery's pseudo columns if BigQuery merges the
changes. Rows are built a column at a time. A row that BigQuery cannot hold is rejected with a reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from connector.core.byte_columns import RowBytes, ends_of
from connector.core.changes import Int64s
from connector.core.column_kinds import ColumnKind
from connector.envelope.avro_schema import AvroColumn
from connector.envelope.envelope import DELETE, WHOLE_ROWS
from spark_sink.encoding import protobuf_columns
from spark_sink.encoding.avro_payload import PayloadReader, timestamps
from spark_sink.encoding.protobuf_columns import Add
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.rows.reasons import DIGITS, no_key, null_in_array, too_fine_key, unfit_number
from spark_sink.sinks.bigquery.rows.update_pairs import UPDATE_DELETE
from spark_sink.sinks.bigquery.tables.table import MERGE, BigQueryTable, Field, Mode, TableColumn, no_whole_rows
from spark_sink.sinks.shared.completing.whole_rows import are_completed

LARGEST = 19_500_000
"""The most bytes of a row: a request has less than 20 MB, and describes the columns, too."""

SURELY_TAKEN = 9_500_000
"""Bytes of a row that BigQuery took when its limit was 10 MB; it may refuse a larger one, which is then rejected."""

_CHANGE_TYPE, _CHANGE_SEQUENCE_NUMBER = "_CHANGE_TYPE", "_CHANGE_SEQUENCE_NUMBER"
"""The pseudo columns by which BigQuery merges changes."""

_TOO_LARGE = f"the row is too large for BigQuery: it has more than {LARGEST:,} bytes"
TOO_LARGE_PAIR = (
    f"the two rows of the update are too large for BigQuery: together they have more than {LARGEST:,} bytes"
)
"""The reason for which an update is rejected with :mod:`spark_sink.sinks.bigquery.rows.update_pairs`."""
_NOT_COMPLETED = (
    "the update lacks the columns that did not change, and Spanner no longer keeps them as of its commit: they would be"
    " NULL"
)
_PSEUDO_COLUMNS = (Field(_CHANGE_TYPE, "STRING"), Field(_CHANGE_SEQUENCE_NUMBER, "STRING"))
_FINER_THAN_MICROS = r"\.[0-9]{6}[0-9]*[1-9]"
_MILLISECOND = pa.scalar(1000, pa.int64())
_UPDATE, _DELETE, _UPSERT, _INSERT, _UPDATE_INSERT, _UPDATE_DELETE = (
    pa.scalar(text, pa.string()) for text in ("UPDATE", DELETE, "UPSERT", "INSERT", "UPDATE-INSERT", UPDATE_DELETE)
)
_PROTO_TYPES: Mapping[str, "FieldDescriptorProto.Type"] = {
    "BOOL": FieldDescriptorProto.TYPE_BOOL,
    "INT64": FieldDescriptorProto.TYPE_INT64,
    "FLOAT64": FieldDescriptorProto.TYPE_DOUBLE,
    "BYTES": FieldDescriptorProto.TYPE_BYTES,
    "DATE": FieldDescriptorProto.TYPE_INT32,
    "TIMESTAMP": FieldDescriptorProto.TYPE_INT64,
    "STRUCT": FieldDescriptorProto.TYPE_MESSAGE,
}
"""By BigQuery's type; others are text."""

_ADD: Mapping[str, Add] = {
    "BOOL": protobuf_columns.add_booleans,
    "INT64": protobuf_columns.add_integers,
    "FLOAT64": protobuf_columns.add_doubles,
    "DATE": protobuf_columns.add_integers,
    "TIMESTAMP": protobuf_columns.add_integers,
}
"""By BigQuery's type; others are added as text or bytes."""

_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rejected:
    """An event that BigQuery cannot hold: its index in the batch, and why; never a value."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class BuiltRows:
    """The rows of a batch, each with its event's index, and the rejected events, in order."""

    rows: pa.BinaryArray
    indexes: Int64s
    rejected: tuple[Rejected, ...]


class RowBuilder:
    """Builds the rows of one table.

    Args:
        table: the table.
        mode: the sink's mode.
    """

    def __init__(self, table: BigQueryTable, mode: Mode) -> None:
        self._columns = table.columns
        self._merges = mode == MERGE
        self._added = (*table.metadata, *(_PSEUDO_COLUMNS if self._merges else ()))
        self._payloads = PayloadReader(
            table.source,
            [AvroColumn(column.name, column.field.name, _kind_of(column), column.layout) for column in table.columns],
            purpose="written to BigQuery",
            hint="",
        )

    @property
    def descriptor(self) -> DescriptorProto:
        """The message type of a row, self-contained."""
        return message_type("Row", [*(column.field for column in self._columns), *self._added])

    def build(self, rows: pa.RecordBatch, *, now: int) -> BuiltRows:
        """Builds rows from events of the table, in their order; ``now`` is in nanoseconds since 1970.

        Raises:
            SinkError: they are to be merged, and there are updates that hold only what changed.
        """
        if self._merges and are_completed(rows) is None:
            check_whole_rows(rows)
        parts = list(self._parts(rows, 0, now))
        if len(parts) == 1:
            return parts[0]
        return BuiltRows(
            pa.concat_arrays([part.rows for part in parts]),
            np.concatenate([part.indexes for part in parts]),
            tuple(rejected for part in parts for rejected in part.rejected),
        )

    def _parts(self, events: pa.RecordBatch, first: int, now: int) -> Iterator[BuiltRows]:
        """The rows of events; halves the batch until an event that cannot be read is alone."""
        try:
            columns = self._read(events)
        except SinkError as error:
            if len(events) == 1:
                yield BuiltRows(pa.array([], pa.binary()), np.empty(0, np.int64), (Rejected(first, str(error)),))
                return
            half = len(events) // 2
            yield from self._parts(events.slice(0, half), first, now)
            yield from self._parts(events.slice(half), first + half, now)
        else:
            yield self._built(events, columns, first, now)

    def _read(self, events: pa.RecordBatch) -> list[pa.Array]:
        """The values of the source's columns."""
        found = self._payloads.columns(events.column("payload"))
        deleted = _is_deleted(events) if self._merges else None
        for number, column in enumerate(self._columns):
            if deleted is not None and deleted.true_count and not column.is_key:
                found[number] = pc.if_else(deleted, pa.scalar(None, found[number].type), found[number])
            if _is_exact(column):
                found[number] = _exact_timestamps(column, found[number])
        return found

    def _built(self, events: pa.RecordBatch, columns: list[pa.Array], first: int, now: int) -> BuiltRows:
        row = RowBytes(len(events))
        for number, (column, values) in enumerate(zip(self._columns, columns, strict=True), 1):
            _add(row, number, column.field, values)
        for number, field in enumerate(self._added, len(columns) + 1):
            _add_metadata(row, number, field, events, now)
        rows = row.joined()
        reasons: dict[int, str] = {}
        for unfit, reason in self._rejections(events, columns, rows):
            reasons.update((index, reason) for index in np.flatnonzero(unfit).tolist() if index not in reasons)
        indexes = np.arange(len(events))
        if reasons:
            indexes = np.delete(indexes, list(reasons))
            rows = rows.take(pa.array(indexes))
        rejected = tuple(Rejected(first + index, reasons[index]) for index in sorted(reasons))
        return BuiltRows(rows, indexes + first, rejected)

    def _rejections(
        self, events: pa.RecordBatch, columns: list[pa.Array], rows: pa.BinaryArray
    ) -> Iterator[tuple[_Mask, str]]:
        """Yields masks of the events that BigQuery cannot hold, each with the reason."""
        for column, values in zip(self._columns, columns, strict=True):
            yield from _unfit_values(column, values)
        if self._merges and events.column("change_sequence_number").null_count:
            yield _is_null(events.column("change_sequence_number")), "the event has no change_sequence_number"
        if self._merges and are_completed(events) is not None and (partial := _are_partial(events)).any():
            yield partial, _NOT_COMPLETED
        if rows.nbytes > LARGEST:
            yield np.diff(ends_of(rows), prepend=0) > LARGEST, _TOO_LARGE


def partial_updates(rows: pa.RecordBatch) -> dict[int, str]:
    """The reasons for which updates without their unchanged columns are rejected, by index."""
    return {index: _partial(rows, index) for index in np.flatnonzero(_are_partial(rows)).tolist()}


def _are_partial(rows: pa.RecordBatch) -> _Mask:
    source = rows.column("source_metadata")
    updates = pc.equal(pc.struct_field(source, "mod_type"), _UPDATE).fill_null(False)
    whole = pc.is_in(pc.struct_field(source, "value_capture_type"), value_set=pa.array(WHOLE_ROWS))
    are_whole = are_completed(rows)
    if are_whole is not None:
        whole = pc.or_(whole, are_whole)
    mask: _Mask = pc.and_(updates, pc.invert(whole)).to_numpy(zero_copy_only=False)
    return mask


def _partial(rows: pa.RecordBatch, index: int) -> str:
    source = rows.column("source_metadata")
    stream, captured = (
        pc.struct_field(source, name)[index].as_py() for name in ("change_stream_name", "value_capture_type")
    )
    return (
        f"table {rows.column('object')[index]} has an update without the columns that did not change, which would be"
        f" NULL: {no_whole_rows(stream, captured)}"
    )


def check_whole_rows(rows: pa.RecordBatch) -> None:
    """Checks that every update among events holds the whole row, because merging replaces the whole row.

    Raises:
        SinkError: one does not.
    """
    partial = _are_partial(rows)
    if partial.any():
        raise SinkError(_partial(rows, int(partial.argmax())))


def _kind_of(column: TableColumn) -> ColumnKind:
    """The kind that a column's values are read as: decimals and exact timestamps are read as their text."""
    return ColumnKind.STRING if column.field.type in DIGITS or _is_exact(column) else column.kind


def _is_exact(column: TableColumn) -> bool:
    """True if the column's timestamps must not be truncated, because two might become one."""
    return column.field.required and column.field.type == "TIMESTAMP"


def _exact_timestamps(column: TableColumn, texts: pa.Array) -> pa.Array:
    if pc.match_substring_regex(texts, _FINER_THAN_MICROS).true_count:
        raise SinkError(too_fine_key(column))
    try:
        return timestamps(texts)
    except ValueError:
        # without the cause, which holds the text
        raise SinkError(f"the key column {column.name} has a text that is not a valid timestamp") from None


def _unfit_values(column: TableColumn, values: pa.Array) -> Iterator[tuple[_Mask, str]]:
    """Yields masks of the rows with a value that BigQuery's column cannot hold, each with the reason."""
    field = column.field
    if field.required and values.null_count:
        yield _is_null(values), no_key(column)
    flat = values.flatten() if field.repeated else values
    if field.repeated and flat.null_count:
        yield _rows_with(values, _is_null(flat)), null_in_array(column)
    digits = DIGITS.get(field.type)
    if digits is not None:
        fits = pc.match_substring_regex(flat, rf"\A(?:{digits})\z")
        unfit: _Mask = pc.invert(fits.fill_null(True)).to_numpy(zero_copy_only=False)
        if unfit.any():
            yield _rows_with(values, unfit) if field.repeated else unfit, unfit_number(column)


def _is_null(values: pa.Array) -> _Mask:
    mask: _Mask = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _rows_with(lists: pa.ListArray, elements: _Mask) -> _Mask:
    """A mask of the lists that hold one of these elements."""
    rows = np.zeros(len(lists), np.bool_)
    rows[pc.list_parent_indices(lists).to_numpy()[elements]] = True
    return rows


def _add(row: RowBytes, number: int, field: Field, values: pa.Array) -> None:
    add = _ADD.get(field.type, protobuf_columns.add_texts)
    if field.repeated:
        protobuf_columns.add_repeated(row, number, values, add)
    else:
        add(row, number, values)


def _add_metadata(row: RowBytes, number: int, field: Field, events: pa.RecordBatch, now: int) -> None:
    if not field.fields:
        _add(row, number, field, _metadata(field.name, events, now))
        return
    inner = RowBytes(len(events))
    for inner_number, inner_field in enumerate(field.fields, 1):
        _add_metadata(inner, inner_number, inner_field, events, now)
    protobuf_columns.add_texts(row, number, inner.joined())


def _metadata(name: str, events: pa.RecordBatch, now: int) -> pa.Array:
    """A metadata column, by its name in BigQuery."""
    source = events.column("source_metadata")
    match name.removeprefix("_metadata_"):
        case "uuid" | "change_sequence_number" | "sort_keys":
            return events.column(name)
        case "_CHANGE_SEQUENCE_NUMBER":
            return events.column("change_sequence_number")
        case "_CHANGE_TYPE":
            return pc.if_else(_is_deleted(events), _DELETE, _UPSERT)
        case "source_timestamp":
            return pc.divide(events.column(name).cast(pa.int64()), _MILLISECOND)
        case "change_type":
            mod_type = pc.struct_field(source, "mod_type")
            is_update, is_replaced = (pc.equal(mod_type, kind).fill_null(False) for kind in (_UPDATE, _UPDATE_DELETE))
            there = pc.if_else(is_update, _UPDATE_INSERT, pc.if_else(is_replaced, _UPDATE_DELETE, _INSERT))
            return pc.if_else(_is_deleted(events), _DELETE, there)
        case "big_query_commit_timestamp":
            return pa.repeat(pa.scalar(now // 1000, pa.int64()), len(events))
        case "spanner_table_name":
            return events.column("object")
        case "spanner_commit_timestamp":
            return timestamps(pc.struct_field(source, "commit_timestamp"))
        case bare:
            return pc.struct_field(source, bare.removeprefix("spanner_"))


def _is_deleted(events: pa.RecordBatch) -> pa.Array:
    return pc.equal(pc.struct_field(events.column("source_metadata"), "mod_type"), _DELETE).fill_null(False)


def message_type(name: str, fields: Sequence[Field]) -> DescriptorProto:
    """The type of a message with a table's columns, self-contained; a TIMESTAMP is in microseconds since 1970."""
    message = DescriptorProto(name=name)
    taken = {field.name for field in fields}
    for number, field in enumerate(fields, 1):
        label = FieldDescriptorProto.LABEL_REPEATED if field.repeated else FieldDescriptorProto.LABEL_OPTIONAL
        kind = _PROTO_TYPES.get(field.type, FieldDescriptorProto.TYPE_STRING)
        added = message.field.add(name=field.name, number=number, label=label, type=kind, json_name=field.name)
        if field.fields:
            nested = f"{field.name}_struct"
            while nested in taken:  # fields and messages share a namespace
                nested += "_"
            message.nested_type.append(message_type(nested, field.fields))
            added.type_name = nested
    return message
