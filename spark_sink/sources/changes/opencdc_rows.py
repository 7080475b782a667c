"""OpenCDC records as the columns of a micro-batch, for the source's option ``envelope``.

The executors convert the rows of the spool to records, so the spool is the same for both envelopes.
"""

from collections.abc import Iterator

import orjson
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from connector.envelope.opencdc import OpenCdcRecord, OpenCdcWriter

_STRING = pa.string()
_PAYLOAD = pa.struct([pa.field("before", _STRING), pa.field("after", _STRING)])
SCHEMA = pa.schema(
    [
        pa.field("position", _STRING),
        pa.field("operation", _STRING),
        pa.field("metadata", pa.map_(_STRING, _STRING)),
        pa.field("key", _STRING),
        pa.field("payload", _PAYLOAD),
    ]
)
"""All may be null. The position is text, as ``--start-position`` takes it; key, before and after are JSON objects."""

_ROWS = 4096
"""Rows of a record batch, which bounds the memory of the conversion: each row becomes several Python objects."""


def spark_schema() -> StructType:
    """The columns as Spark's types; parsing the DDL would need a Spark session."""
    return from_arrow_schema(SCHEMA)


def records(writer: OpenCdcWriter, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Converts rows of the envelope's columns to OpenCDC records."""
    for first in range(0, rows.num_rows, _ROWS):
        yield _columns(list(writer.records(rows.slice(first, _ROWS))))


def _columns(some: list[OpenCdcRecord]) -> pa.RecordBatch:
    payload = [
        pa.array([_json(one.before) for one in some], _STRING),
        pa.array([_json(one.after) for one in some], _STRING),
    ]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([one.position_text for one in some], _STRING),
            pa.array([one.operation for one in some], _STRING),
            pa.array([list(one.metadata.items()) for one in some], SCHEMA.field("metadata").type),
            pa.array([_json(one.key) for one in some], _STRING),
            pa.StructArray.from_arrays(payload, fields=list(_PAYLOAD)),
        ],
        schema=SCHEMA,
    )


def _json(values: dict[str, object] | None) -> str | None:
    return None if values is None else orjson.dumps(values).decode()
