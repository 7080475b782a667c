"""Encodes Avro container files (https://avro.apache.org/docs/current/specification) as Datastream writes them.

The sync marker of a file is a hash of its path, so that a replay writes the same bytes. Rows are encoded a column at a
time.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import RowBytes
from connector.core.column_kinds import ColumnKind, Layout
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import AvroColumn, avro_schema, collisions, columns_of
from connector.envelope.source_metadata import written_columns
from spark_sink.encoding import avro_columns
from spark_sink.encoding.avro_columns import varint
from spark_sink.encoding.avro_payload import PayloadReader
from spark_sink.encoding.file_format import EncodedRows, Encoding, Series, with_object
from spark_sink.errors import SinkError, TableRefusedError

_MAGIC = b"Obj\x01"
_BLOCK = 1024 * 1024
"""Approximate size of a block in bytes: BigQuery loads blocks of up to a megabyte in parallel."""

_MARKER = 16
"""Size of a sync marker in bytes."""

_SORT_KEYS = (True, True, False, True)
"""The sort keys, of the four, that are longs; the others are strings."""

_STRING, _LONG = b"\x00", b"\x02"
"""The indexes of the types in a sort key's union."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The Avro schema and encoders of rows that have one schema key."""

    schema: bytes
    columns: list[AvroColumn]
    payloads: PayloadReader


@dataclass(eq=False, slots=True)
class Avro(Encoding):
    """Avro container files.

    Attributes:
        schema_of: returns the schema with a schema key.
        deflate: whether blocks are compressed with Avro's codec deflate.
        timestamps: ``micros``, which truncates finer digits, or ``text``, which keeps them.
        sort_fields: whether the source metadata ends with the fields that the Dataflow templates sort by.
        completes: whether it ends with the field that says whether a row is complete.
        object_names: ``table``, or ``schema_table``, the name of the folder, which then also names the record.
        arrays: ``json``, or ``multidimensional`` for Datastream's records of elements.
        exact_keys: whether an event is rejected if a timestamp in its key would be truncated, because two keys could
            become one.
    """

    ending = "avro"
    gzipped = False
    needs_before = False

    schema_of: Callable[[str], TableSchema]
    _: KW_ONLY
    deflate: bool
    timestamps: str = "micros"
    sort_fields: bool = True
    completes: bool = False
    exact_keys: bool = True
    object_names: str = "table"
    arrays: str = "json"
    _tables: dict[str, _Table] = field(default_factory=dict)

    def header(self, series: Series, path: str) -> bytes:
        """The header of the file: schema, codec and sync marker."""
        metadata = {
            "avro.codec": b"deflate" if self.deflate else b"null",
            "avro.schema": self._table(series).schema,
        }
        entries = b"".join(
            varint(len(name)) + name.encode() + varint(len(value)) + value for name, value in metadata.items()
        )
        return _MAGIC + varint(len(metadata)) + entries + varint(0) + _sync_marker(path)

    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """The Avro record of each row."""
        table = self._table(series)
        rows = with_object(rows, series, self.object_names)
        row = RowBytes(rows.num_rows)
        avro_columns.add_texts(row, _filled(rows.column("uuid"), "uuid"))
        for name in ("read_timestamp", "source_timestamp"):
            micros = _filled(rows.column(name), name).cast(pa.int64())
            avro_columns.add_longs(row, pa.array(micros.to_numpy() // 1000))
        for name in ("object", "read_method", "stream_name", "schema_key"):
            avro_columns.add_texts(row, _filled(rows.column(name), name))
        _add_sort_keys(row, rows.column("sort_keys"))
        snapshot = pc.struct_field(rows.column("source_metadata"), "snapshot")
        for name, values in written_columns(rows, sort_fields=self.sort_fields, completes=self.completes):
            _add_metadata(row, _filled(_without_transaction(values, snapshot), name))
        for column, values in zip(table.columns, table.payloads.columns(rows.column("payload")), strict=True):
            _add_value(row, column, values)
        return EncodedRows.of(row.joined())

    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """The rows whose payload cannot be encoded, by index, with the reason."""
        return self._table(series).payloads.unfit(rows.column("payload"))

    def schema(self, series: Series) -> bytes:
        """The Avro schema of the files of a series, as JSON.

        Raises:
            TableRefusedError: two columns would have the same name.
        """
        return self._table(series).schema

    def framed(self, rows: EncodedRows, first: int, stop: int, path: str) -> bytes:
        """The rows as blocks, each followed by the file's sync marker."""
        out, marker = [], _sync_marker(path)
        for count, block in _blocks(rows, first, stop):
            data: bytes | memoryview = block
            if self.deflate:
                deflated = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
                data = deflated.compress(block) + deflated.flush()
            out += [varint(count), varint(len(data)), data, marker]
        return b"".join(out)

    def framed_size(self, rows: EncodedRows, first: int, stop: int) -> int:
        """The size of the uncompressed blocks in bytes, so that file boundaries do not depend on zlib."""
        blocks = ((varint(count), len(block)) for count, block in _blocks(rows, first, stop))
        return sum(len(count) + len(varint(size)) + size + _MARKER for count, size in blocks)

    def _table(self, series: Series) -> _Table:
        known = self._tables.get(series.schema_key)
        if known is None:
            schema = self.schema_of(series.schema_key)
            for fault in collisions(schema):
                raise TableRefusedError(
                    fault, hint="Rename one, exclude the table, or write JSON lines (sink.format: jsonl)."
                )
            columns = columns_of(schema, timestamps=self.timestamps, arrays=self.arrays)
            exact = schema.primary_keys if self.exact_keys else ()
            payloads = PayloadReader(schema.table, columns, null_arrays=True, exact=exact)
            name = schema.table if self.object_names == "table" else series.folder
            text = avro_schema(name, columns, sort_fields=self.sort_fields, completes=self.completes)
            known = _Table(text, columns, payloads)
            self._tables[series.schema_key] = known
        return known


def _blocks(rows: EncodedRows, first: int, stop: int) -> Iterator[tuple[int, memoryview]]:
    """The number of rows in each block, and their bytes."""
    while first < stop:
        end = min(stop, max(first + 1, rows.fitting(first, _BLOCK)))
        yield end - first, rows.between(first, end)
        first = end


def _sync_marker(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=_MARKER).digest()


def _filled(values: pa.Array, name: str) -> pa.Array:
    if values.null_count:
        raise SinkError(
            f"an event has no {name}, and cannot be written as Avro", hint="Write JSON lines (sink.format: jsonl)."
        )
    return values


def _without_transaction(values: pa.Array, snapshot: pa.Array) -> pa.Array:
    """The values, with an empty one for each row of a backfill that has none: such a row is of no transaction.

    Datastream's schema has no null there.
    """
    if not values.null_count or pa.types.is_list(values.type):
        return values
    empty = pa.scalar("" if pa.types.is_string(values.type) else 0).cast(values.type)
    return pc.if_else(pc.and_(snapshot, values.is_null()), empty, values)


def _add_sort_keys(row: RowBytes, keys: pa.Array) -> None:
    row.literal(varint(len(_SORT_KEYS)))
    for number, is_long in enumerate(_SORT_KEYS):
        key = _filled(pc.list_element(keys, pa.scalar(number)), "sort_keys")
        row.literal(_LONG if is_long else _STRING)
        if is_long:
            avro_columns.add_longs(row, key.cast(pa.int64()))
        else:
            avro_columns.add_texts(row, key)
    row.literal(varint(0))


def _add_metadata(row: RowBytes, values: pa.Array) -> None:
    if pa.types.is_list(values.type):
        avro_columns.add_text_lists(row, values)
    elif pa.types.is_boolean(values.type):
        avro_columns.add_booleans(row, values)
    elif pa.types.is_integer(values.type):
        avro_columns.add_longs(row, values)
    else:
        avro_columns.add_texts(row, values)


Add = Callable[[RowBytes, pa.Array], None]
_LONGS: Add = partial(avro_columns.add_longs, nullable=True)
_FLOATS: Add = partial(avro_columns.add_floats, nullable=True)
_TEXTS: Add = partial(avro_columns.add_texts, nullable=True)

ADD_VALUES: Mapping[ColumnKind, Add] = {
    ColumnKind.BOOL: partial(avro_columns.add_booleans, nullable=True),
    ColumnKind.INT64: _LONGS,
    ColumnKind.FLOAT32: _FLOATS,
    ColumnKind.FLOAT64: _FLOATS,
    ColumnKind.NUMERIC: partial(avro_columns.add_decimals, nullable=True),
    ColumnKind.PG_NUMERIC: _TEXTS,
    ColumnKind.STRING: _TEXTS,
    ColumnKind.BYTES: _TEXTS,
    ColumnKind.DATE: _LONGS,
    ColumnKind.TIMESTAMP: _LONGS,
    ColumnKind.JSON: _TEXTS,
    ColumnKind.UUID: _TEXTS,
    ColumnKind.INTERVAL: _TEXTS,
    ColumnKind.ENUM: _LONGS,
    ColumnKind.PROTO: _TEXTS,
    ColumnKind.UNKNOWN: _TEXTS,
}
"""Appends an Arrow column of a kind's values to the rows; null is allowed."""


def _add_value(row: RowBytes, column: AvroColumn, values: pa.Array) -> None:
    match column.layout:
        case Layout.VALUE:
            ADD_VALUES[column.kind](row, values)
        case Layout.LIST:
            avro_columns.add_arrays(row, values, ADD_VALUES[column.kind])
        case Layout.JSON_ARRAY:
            _TEXTS(row, values)
