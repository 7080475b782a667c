"""Every table of a sink that is keyed by column kinds has a line for each of them."""

from collections.abc import Mapping

import pytest

from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from emulator.bigquery.schema import read_columns
from emulator.bigquery.values import converter
from spark_sink.bigquery.merging.values import LOADED_VALUES
from spark_sink.bigquery.rows.builder import RowBuilder
from spark_sink.bigquery.tables.table import COLUMN_TYPES, TableOptions, bigquery_table
from spark_sink.encoding.avro import ADD_VALUES
from spark_sink.encoding.avro_payload import READINGS
from spark_sink.source.typed import SPARK_TYPES
from tests.connector.builders import column
from tests.spark_sink.column_types import TYPE_OBJECTS

TABLES_BY_KIND: dict[str, Mapping[ColumnKind, object]] = {
    "typed()": SPARK_TYPES,
    "Avro's payloads": READINGS,
    "Avro's values": ADD_VALUES,
    "BigQuery's tables": COLUMN_TYPES,
    "BigQuery's loads": LOADED_VALUES,
}


@pytest.mark.parametrize("table", TABLES_BY_KIND)
def test_each_table_has_a_line_for_every_kind(table: str) -> None:
    assert set(TABLES_BY_KIND[table]) == set(ColumnKind)


def test_every_kind_has_a_type_object() -> None:
    assert {kind: SpannerType.parse(type_json).kind for kind, type_json in TYPE_OBJECTS.items()} == {
        kind: kind for kind in ColumnKind
    }


@pytest.mark.parametrize("numeric", ["string", "bignumeric"])
@pytest.mark.parametrize("timestamps", ["micros", "text"])
@pytest.mark.parametrize("kind", ColumnKind)
def test_the_bigquery_double_takes_every_kind(kind: ColumnKind, timestamps: str, numeric: str) -> None:
    schema = TableSchema.of(
        "T", [column("Id", "INT64", 1, key=True), ColumnType("v", TYPE_OBJECTS[kind], False, 2)], ["Id"]
    )
    table = bigquery_table(schema, TableOptions("dataset", "append-only", timestamps=timestamps, numeric=numeric))
    (field,) = [field for field in table.fields if field.name == "v"]
    (sent,) = [field for field in RowBuilder(table, "append-only").descriptor.field if field.name == "v"]
    (known,) = read_columns({"fields": [{"name": "v", "type": field.type}]})
    assert known.type == field.type
    assert converter(field.type, sent.type) is not None
