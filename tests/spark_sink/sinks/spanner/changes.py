"""Changes of tables, each of a transaction at a second."""

from collections.abc import Mapping
from dataclasses import replace

import orjson

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from tests.spark_sink.spools import START, record


def column(name: str, place: int, *, of_key: bool = False, kind: str = "INT64") -> ColumnType:
    return ColumnType(name, f'{{"code":"{kind}"}}', of_key, place)


NAMES = (column("Id", 1, of_key=True), column("V", 2, kind="STRING"))
"""Of a table with a key and a text."""


def change(
    at: int,
    table: str,
    key: Mapping[str, object],
    values: Mapping[str, object] | None = None,
    mod_type: str = "INSERT",
    *,
    columns: tuple[ColumnType, ...],
    place: int = 0,
    capture: str = "NEW_ROW",
) -> DataChangeRecord:
    """A change of the transaction at a second, at a place in it."""
    made = record(
        START + at * SECOND, table=table, columns=columns, mod_type=mod_type, sequence=place, transaction=f"t{at}"
    )
    mod = Mod(orjson.dumps(key).decode(), orjson.dumps(values or {}).decode(), "{}")
    return replace(made, value_capture_type=capture, mods=(mod,))
