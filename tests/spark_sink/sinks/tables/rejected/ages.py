"""Singers whose ages cannot be cast, and the mending of their dead letters."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from spark_sink.sinks.tables.config import Format
from tests.spark_sink.sinks.tables.campaign.by_hand import Sink
from tests.spark_sink.sinks.tables.reading import target
from tests.spark_sink.spools import KEY, START, record

AGE = ColumnType("Age", '{"code":"INT64"}', False, 2)
COLUMNS = (KEY, AGE)
BAD = "private-4711"
WHY = "column Age: the value is no bigint"


def made(at: int, key: int, age: str | None, kind: str = "INSERT", capture: str = "NEW_ROW") -> DataChangeRecord:
    """A change of a row of Singers, ``at`` seconds after the start."""
    values: dict[str, object] = {} if age is None else {"Age": age}
    one = record(START + at * SECOND, [key], columns=COLUMNS, values=values, mod_type=kind, sequence=key)
    return replace(one, value_capture_type=capture)


def mend(sink: Sink, age: str = "5") -> None:
    """Edits the dead letters, as an operator may."""
    edit(sink, lambda payload: payload.replace(BAD, age))


def edit(sink: Sink, edited: Callable[[str], str]) -> None:
    """Edits the payloads of all dead letters."""
    for file in sink.store.files():
        rows, why = sink.store.read(file)
        number = rows.schema.names.index("payload")
        payloads = pa.array([edited(one) for one in rows.column("payload").to_pylist()], pa.string())
        sink.store.replace(file, rows.set_column(number, rows.schema.field(number), payloads), why)


def merged(lake: SparkSession, path: Path, of_format: Format) -> dict[int, int | None]:
    """The rows of Singers."""
    table = target(path, of_format)
    lake.sql(f"REFRESH TABLE {table}")
    rows = lake.table(table).collect()
    found = {row["Id"]: row["Age"] for row in rows}
    assert len(found) == len(rows)
    assert not any(row["_is_deleted"] for row in rows)
    return found
