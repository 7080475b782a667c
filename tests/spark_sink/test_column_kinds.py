"""Every table of a sink that is keyed by column kinds has a line for each of them."""

import io
from collections.abc import Mapping

import orjson
import pytest

from connector.core.changes import Changes
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.records import ColumnType, Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.envelope.envelope import EnvelopeBuilder, Source
from emulator.bigquery.schema import read_columns
from emulator.bigquery.values import converter
from spark_sink.encoding.avro import ADD_VALUES, Avro
from spark_sink.encoding.avro_payload import READINGS
from spark_sink.encoding.file_format import Series
from spark_sink.encoding.jsonl import JsonLines
from spark_sink.sinks.bigquery.merging.values import LOADED_VALUES
from spark_sink.sinks.bigquery.rows.builder import RowBuilder
from spark_sink.sinks.bigquery.tables.table import COLUMN_TYPES, BigQueryTableOptions, bigquery_table
from spark_sink.sources.changes.known_tables import SPARK_TYPES
from spark_sink.sources.files.avro import avro_events
from spark_sink.sources.files.files import json_lines
from tests.connector.builders import column, record
from tests.spark_sink.column_types import TYPE_OBJECTS, VALUES

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
    table = bigquery_table(
        schema, BigQueryTableOptions("dataset", "append-only", timestamps=timestamps, numeric=numeric)
    )
    (field,) = [field for field in table.fields if field.name == "v"]
    (sent,) = [field for field in RowBuilder(table, "append-only").descriptor.field if field.name == "v"]
    (known,) = read_columns({"fields": [{"name": "v", "type": field.type}]})
    assert known.type == field.type
    assert converter(field.type, sent.type) is not None


@pytest.mark.parametrize("arrays", ["json", "multidimensional"])
@pytest.mark.parametrize("kind", ColumnKind)
def test_every_kind_is_read_back_from_avro_and_json_lines(kind: ColumnKind, arrays: str) -> None:
    array_type = f'{{"array_element_type":{TYPE_OBJECTS[kind]},"code":"ARRAY"}}'
    columns = (ColumnType("v", TYPE_OBJECTS[kind], False, 1), ColumnType("a", array_type, False, 2))
    mods = (Mod("{}", f'{{"v":{VALUES[kind]},"a":[{VALUES[kind]}]}}', "{}"),)
    registry = SchemaRegistry()
    builder = EnvelopeBuilder(Source("p", "i", "d", "s", "d"), stream_name=None, read_method="spanner-cdc")
    batch = builder.build(Changes.of([record(column_types=columns, mods=mods)]), registry, 1)
    series = Series(*(batch.column(name)[0].as_py() for name in ("object", "schema_key", "read_method")))
    avro = Avro(registry.by_key, deflate=False, timestamps="text", arrays=arrays)
    lines = JsonLines(registry.by_key, gzip=False)
    files = [
        io.BytesIO(b"".join((form.header(series, "f"), form.framed(form.encode(series, batch), 0, 1, "f"))))
        for form in (avro, lines)
    ]
    (from_avro,), (from_lines,) = avro_events("f", files[0]), json_lines("f", files[1])
    assert orjson.loads(bytes(from_avro.payload)) == orjson.loads(bytes(from_lines.payload))
