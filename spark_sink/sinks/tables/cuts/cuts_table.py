"""The table ``_cuts``: its columns, and a published cut as one of its rows. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from connector.core.timestamps import SECOND, format_second, parse
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from spark_sink.sinks.tables.lake_table import table_name

_TIME = pa.timestamp("us", tz="UTC")
_TABLE = pa.struct(
    [("table", pa.string()), ("name", pa.string()), ("version", pa.int64()), ("incomplete", pa.string())]
)
SCHEMA = pa.schema(
    [
        ("timestamp", pa.string()),
        ("at", _TIME),
        ("epoch", pa.int64()),
        ("spool_id", pa.string()),
        ("sink", pa.string()),
        ("published_at", _TIME),
        ("deletes", pa.string()),
        ("tables", pa.list_(_TABLE)),
    ]
)
"""The columns of :data:`CUTS`.

``timestamp`` has nine fractional digits, so that it sorts as text; ``at`` is the same in microseconds, rounded down.
``deletes`` is ``apply`` if a row with ``_is_deleted`` is not one of Spanner's. The ``version`` of a table that is not
there yet is NULL, and ``incomplete`` that of a complete one.
"""

COLUMNS = {field.name: field.dataType.simpleString() for field in from_arrow_schema(SCHEMA).fields}
"""The same with their types in Spark SQL."""


def deletes_of(mode: str, deletes: str) -> str | None:
    """The sink's ``deletes`` for a cut; None if its tables have a row for each change, also for a DELETE."""
    return None if mode == "append" else deletes


def row_of(cut: PublishedCut, sink: str, deletes: str | None) -> pa.Table:
    """A published cut as a row.

    Args:
        cut: the published cut.
        sink: the sink's name.
        deletes: as of :func:`deletes_of`.
    """
    tables = [
        {
            "table": name,
            "name": table_name(name),
            "version": int(table.version) if table.version else None,
            "incomplete": table.incomplete or None,
        }
        for name, table in sorted(cut.tables.items())
    ]
    row = {
        "timestamp": text_of(cut.timestamp),
        "at": _time(cut.timestamp),
        "epoch": cut.epoch,
        "spool_id": cut.spool_id,
        "sink": sink,
        "published_at": _time(cut.published_at),
        "deletes": deletes,
        "tables": tables,
    }
    return pa.Table.from_pylist([row], schema=SCHEMA)


def cut_of(row: Mapping[str, Any]) -> PublishedCut:
    """The published cut of a row, in which ``published_at`` is Unix microseconds."""
    tables = {
        one["table"]: TableAtCut(
            version="" if one["version"] is None else str(one["version"]), incomplete=one["incomplete"] or ""
        )
        for one in row["tables"]
    }
    return PublishedCut(
        timestamp=parse(row["timestamp"]),
        epoch=row["epoch"],
        spool_id=row["spool_id"],
        published_at=row["published_at"] * 1000,
        tables=tables,
    )


def text_of(timestamp: int) -> str:
    """The text of a timestamp (Unix nanoseconds) in the column ``timestamp``: RFC 3339 with nine digits."""
    second, fraction = divmod(timestamp, SECOND)
    return f"{format_second(second)}.{fraction:09}Z"


_START = datetime(1970, 1, 1, tzinfo=UTC)


def _time(timestamp: int) -> datetime:
    return _START + timedelta(microseconds=timestamp // 1000)
