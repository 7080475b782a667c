"""Change records of tables with any columns."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from tests.spark_sink.spools import KEY, START, record

NAME = ColumnType("Name", '{"code":"STRING"}', False, 2)


def change(
    at: int,
    keys: Sequence[int],
    columns: tuple[ColumnType, ...] = (KEY, NAME),
    table: str = "Singers",
    **values: object,
) -> DataChangeRecord:
    """An INSERT, committed ``at`` seconds after the start."""
    made = record(START + at * SECOND, keys, columns=columns, values=values or {"Name": "n"}, table=table)
    return replace(made, value_capture_type="NEW_ROW")


def keyed_change(
    at: int, columns: tuple[ColumnType, ...], keys: dict[str, object], values: dict[str, object]
) -> DataChangeRecord:
    """An INSERT of one row with a key of any columns."""
    mod = Mod(orjson.dumps(keys).decode(), orjson.dumps(values).decode(), "{}")
    return replace(change(at, [1], columns), mods=(mod,))
