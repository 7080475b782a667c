"""Columns of another type or in another key, and records that name them."""

from dataclasses import replace

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from emulator.bigquery.double import BigQueryDouble
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.spools import START, record

BYTES = ColumnType("Name", '{"code":"BYTES"}', False, 2)
TAGS = ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 3)
ID_NO_KEY = ColumnType("Id", '{"code":"INT64"}', False, 1)
NAME_AS_KEY = ColumnType("Name", '{"code":"STRING"}', True, 2)
CODE_AS_KEY = ColumnType("Code", '{"code":"STRING"}', True, 1)

Server = LocalBigQuery | BigQueryDouble


def with_mods(seconds: int, columns: tuple[ColumnType, ...], *mods: tuple[str, str]) -> DataChangeRecord:
    """Inserts of table Singers, by their keys' and their other values' JSON."""
    inserted = record(START + seconds * SECOND, [1], columns=columns)
    return replace(inserted, mods=tuple(Mod(keys, values, "{}") for keys, values in mods))
