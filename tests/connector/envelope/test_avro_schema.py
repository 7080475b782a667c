"""Names and types in Avro."""

import json

import pytest

from connector.core.column_kinds import ColumnKind
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import avro_name, avro_schema, collisions, columns_of
from tests.connector.builders import column


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Id", "Id"),
        ("a_1", "a_1"),
        ("1st", "_1st"),
        ("a b", "a_b"),
        ("ü", "_"),
        ("music.Songs", "music_Songs"),
        ("_", "_"),
        ("٣", "_"),
    ],
)
def test_a_name_holds_ascii_alphanumerics_and_underscores(name: str, expected: str) -> None:
    assert avro_name(name) == expected


def test_a_collision_names_the_columns_and_the_table() -> None:
    schema = TableSchema.of("T", [column("a b", ordinal=1), column("a-b", ordinal=2), column("a_b"), column("c")])
    assert list(collisions(schema)) == ["the columns a b and a-b and a_b of table T would both be called a_b in Avro"]
    assert list(collisions(TableSchema.of("T", [column("a"), column("A"), column("b")]))) == []


@pytest.mark.parametrize("table", ["payload", "source_metadata"])
def test_a_record_has_another_name_than_the_records_within_it(table: str) -> None:
    schema = json.loads(avro_schema(table, []))
    names = [schema["name"], *(field["type"]["name"] for field in schema["fields"] if field["name"] == schema["name"])]
    assert names == [f"{table}_"]


@pytest.mark.parametrize("table", ["string", "long", "null"])
def test_a_record_has_another_name_than_avros_own_types(table: str) -> None:
    """Avro's Java library, of which Spark and registries are users, rejects a file or schema with such a record."""
    assert json.loads(avro_schema(table, []))["name"] == f"{table}_"


def test_timestamps_are_numbers_or_text() -> None:
    schema = TableSchema.of("T", [column("t", "TIMESTAMP"), column("d", "DATE")])
    assert [one.kind for one in columns_of(schema)] == [ColumnKind.DATE, ColumnKind.TIMESTAMP]
    assert [one.kind for one in columns_of(schema, timestamps="text")] == [ColumnKind.DATE, ColumnKind.STRING]


def test_a_decimal_that_may_be_nan_is_a_number_in_text() -> None:
    schema = TableSchema.of(
        "T",
        [
            ColumnType("a", '{"code":"NUMERIC"}', False, 1),
            ColumnType("b", '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}', False, 2),
        ],
    )
    assert [one.kind for one in columns_of(schema)] == [ColumnKind.NUMERIC, ColumnKind.PG_NUMERIC]
    fields = json.loads(avro_schema("T", columns_of(schema)))["fields"][-1]["type"]["fields"]
    assert [field["type"] for field in fields] == [
        ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}],
        ["null", {"type": "string", "logicalType": "number"}],
    ]
