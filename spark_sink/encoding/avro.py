"""Avro files (https://avro.apache.org/docs/current/specification/#object-container-files) as Datastream writes them.

A file's sync marker is made of its path, so that a replay writes the same bytes. Rows are encoded a column at a time.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import Pieces
from connector.core.column_kinds import ColumnKind, Layout
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import AvroColumn, avro_schema, collisions, columns_of
from connector.envelope.source_metadata import written_columns
from spark_sink.encoding import avro_columns
from spark_sink.encoding.avro_columns import varint
from spark_sink.encoding.avro_payload import PayloadReader
from spark_sink.encoding.base import EncodedRows, Series, with_object
from spark_sink.errors import SinkError, TableRefusedError

_MAGIC = b"Obj\x01"
_BLOCK = 1024 * 1024
"""Bytes of a block, about: BigQuery loads blocks of up to a megabyte in parallel."""

_MARKER = 16
"""Bytes of a sync marker."""

_SORT_KEYS = (True, True, False, True)
"""Which of the four are longs; the others are strings."""

_STRING, _LONG = b"\x00", b"\x02"
"""Which of a sort key's union follows."""


@dataclass(frozen=True, slots=True)
class _Table:
    """What is known of a schema key."""

    schema: bytes
    columns: list[AvroColumn]
    payloads: PayloadReader


class Avro:
    """Avro container files.

    Args:
        schema_of: the schema that a schema key names.
        deflate: whether blocks are compressed, with Avro's codec of that name.
        timestamps: ``micros``, what is finer is cut off; or ``text``, which has all digits.
        sort_fields: whether the source metadata ends with those that the Dataflow templates sort by.
        object_names: ``table``, or ``schema_table``, the folder's name; the record is called by it then, too.
        arrays: ``json``, or ``multidimensional``, records as Datastream has them.
        exact_keys: whether an event is refused whose key's timestamp would be cut, for it might be another row's then.
    """

    ending = "avro"
    gzipped = False
    needs_before = False

    def __init__(
        self,
        schema_of: Callable[[str], TableSchema],
        *,
        deflate: bool,
        timestamps: str = "micros",
        sort_fields: bool = True,
        exact_keys: bool = True,
        object_names: str = "table",
        arrays: str = "json",
    ) -> None:
        self._schema_of = schema_of
        self._timestamps = timestamps
        self._sort_fields = sort_fields
        self._exact_keys = exact_keys
        self._object_names = object_names
        self._arrays = arrays
        self._deflate = deflate
        self._tables: dict[str, _Table] = {}

    def header(self, series: Series, path: str) -> bytes:
        """The schema, the codec and the sync marker."""
        metadata = {
            "avro.codec": b"deflate" if self._deflate else b"null",
            "avro.schema": self._table(series).schema,
        }
        entries = b"".join(
            varint(len(name)) + name.encode() + varint(len(value)) + value for name, value in metadata.items()
        )
        return _MAGIC + varint(len(metadata)) + entries + varint(0) + _sync_marker(path)

    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """Each row's record."""
        table = self._table(series)
        rows = with_object(rows, series, self._object_names)
        row = Pieces(rows.num_rows)
        avro_columns.add_texts(row, _filled(rows.column("uuid"), "uuid"))
        for name in ("read_timestamp", "source_timestamp"):
            micros = _filled(rows.column(name), name).cast(pa.int64())
            avro_columns.add_longs(row, pa.array(micros.to_numpy() // 1000))
        for name in ("object", "read_method", "stream_name", "schema_key"):
            avro_columns.add_texts(row, _filled(rows.column(name), name))
        _add_sort_keys(row, rows.column("sort_keys"))
        for name, values in written_columns(rows, sort_fields=self._sort_fields):
            _add_metadata(row, _filled(values, name))
        for column, values in zip(table.columns, table.payloads.columns(rows.column("payload")), strict=True):
            _add_value(row, column, values)
        return EncodedRows.of(row.joined())

    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """Those whose payload cannot be written."""
        return self._table(series).payloads.unfit(rows.column("payload"))

    def schema(self, series: Series) -> bytes:
        """The Avro schema of the files of a series, as JSON.

        Raises:
            TableRefusedError: two columns would have one name.
        """
        return self._table(series).schema

    def framed(self, rows: EncodedRows, first: int, stop: int, path: str) -> bytes:
        """Blocks of the rows, each with the file's sync marker behind it."""
        out, marker = [], _sync_marker(path)
        for count, block in _blocks(rows, first, stop):
            data: bytes | memoryview = block
            if self._deflate:
                deflated = zlib.compressobj(6, wbits=-zlib.MAX_WBITS)
                data = deflated.compress(block) + deflated.flush()
            out += [varint(count), varint(len(data)), data, marker]
        return b"".join(out)

    def framed_size(self, rows: EncodedRows, first: int, stop: int) -> int:
        """The bytes of the blocks with the codec null, so that zlib does not decide where a file ends."""
        blocks = ((varint(count), len(block)) for count, block in _blocks(rows, first, stop))
        return sum(len(count) + len(varint(size)) + size + _MARKER for count, size in blocks)

    def _table(self, series: Series) -> _Table:
        known = self._tables.get(series.schema_key)
        if known is None:
            schema = self._schema_of(series.schema_key)
            for fault in collisions(schema):
                raise TableRefusedError(
                    fault, hint="Rename one of them, leave the table out, or write JSON lines (sink.format: jsonl)."
                )
            columns = columns_of(schema, timestamps=self._timestamps, arrays=self._arrays)
            exact = schema.primary_keys if self._exact_keys else ()
            payloads = PayloadReader(schema.table, columns, null_arrays=True, exact=exact)
            name = schema.table if self._object_names == "table" else series.folder
            text = avro_schema(name, columns, sort_fields=self._sort_fields)
            known = _Table(text, columns, payloads)
            self._tables[series.schema_key] = known
        return known


def _blocks(rows: EncodedRows, first: int, stop: int) -> Iterator[tuple[int, memoryview]]:
    """How many rows each block holds, and their bytes."""
    while first < stop:
        end = min(stop, max(first + 1, rows.fitting(first, _BLOCK)))
        yield end - first, rows.between(first, end)
        first = end


def _sync_marker(path: str) -> bytes:
    return blake2b(path.encode(), digest_size=_MARKER).digest()


def _filled(values: pa.Array, name: str) -> pa.Array:
    if values.null_count:
        raise SinkError(f"an event has no {name}, and cannot be written as Avro", hint="Write JSON lines.")
    return values


def _add_sort_keys(row: Pieces, keys: pa.Array) -> None:
    row.literal(varint(len(_SORT_KEYS)))
    for number, is_long in enumerate(_SORT_KEYS):
        key = _filled(pc.list_element(keys, pa.scalar(number)), "sort_keys")
        row.literal(_LONG if is_long else _STRING)
        if is_long:
            avro_columns.add_longs(row, key.cast(pa.int64()))
        else:
            avro_columns.add_texts(row, key)
    row.literal(varint(0))


def _add_metadata(row: Pieces, values: pa.Array) -> None:
    if pa.types.is_list(values.type):
        avro_columns.add_text_lists(row, values)
    elif pa.types.is_boolean(values.type):
        avro_columns.add_booleans(row, values)
    elif pa.types.is_integer(values.type):
        avro_columns.add_longs(row, values)
    else:
        avro_columns.add_texts(row, values)


Add = Callable[[Pieces, pa.Array], None]
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
"""Adds an Arrow column of a kind's values to the rows."""


def _add_value(row: Pieces, column: AvroColumn, values: pa.Array) -> None:
    match column.layout:
        case Layout.VALUE:
            ADD_VALUES[column.kind](row, values)
        case Layout.LIST:
            avro_columns.add_arrays(row, values, ADD_VALUES[column.kind])
        case Layout.JSON_ARRAY:
            _TEXTS(row, values)
