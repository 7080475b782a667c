"""The catalogue of Spanner's column types, and the tables that are keyed by the kinds in it."""

from collections import Counter
from collections.abc import Mapping

import pytest

from connector.core.column_kinds import CATALOGUE, GOOGLESQL_TYPES, POSTGRESQL_TYPES, ColumnKind, SpannerType
from connector.core.dialects import DIALECTS, Dialect
from connector.envelope.avro_schema import AVRO_TYPES
from connector.envelope.events import EVENT_VALUES
from connector.envelope.opencdc import CONVERTERS
from emulator.scenario.capture import reported_columns
from emulator.workload.tables import TABLES, Table

TABLES_BY_KIND: dict[str, Mapping[ColumnKind, object]] = {
    "events": EVENT_VALUES,
    "OpenCDC": CONVERTERS,
    "Avro schemas": AVRO_TYPES,
}
TYPES = [
    ('{"code":"INT64"}', SpannerType(ColumnKind.INT64)),
    ('{"code":"INT64","type_annotation":"PG_OID"}', SpannerType(ColumnKind.INT64)),
    ('{"code":"NUMERIC"}', SpannerType(ColumnKind.NUMERIC)),
    ('{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}', SpannerType(ColumnKind.PG_NUMERIC)),
    ('{"code":"JSON","type_annotation":"PG_JSONB"}', SpannerType(ColumnKind.JSON)),
    ('{"code":"ENUM","proto_type_fqn":"a.C"}', SpannerType(ColumnKind.ENUM)),
    ('{"code":"PROTO","proto_type_fqn":"a.B"}', SpannerType(ColumnKind.PROTO)),
    ('{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', SpannerType(ColumnKind.STRING, is_array=True)),
    (
        '{"array_element_type":{"code":"NUMERIC","type_annotation":"PG_NUMERIC"},"code":"ARRAY"}',
        SpannerType(ColumnKind.PG_NUMERIC, is_array=True),
    ),
    ('{"code":"STRING","type_annotation":"A_NEWER_ANNOTATION"}', SpannerType(ColumnKind.STRING)),
    ('{"code":"A_NEWER_TYPE"}', SpannerType(ColumnKind.UNKNOWN)),
    ('{"code":"TOKENLIST"}', SpannerType(ColumnKind.UNKNOWN)),
    ('{"code":"STRUCT"}', SpannerType(ColumnKind.UNKNOWN)),
    (
        '{"array_element_type":{"code":"A_NEWER_TYPE"},"code":"ARRAY"}',
        SpannerType(ColumnKind.UNKNOWN, is_array=True),
    ),
    ('{"code":"ARRAY"}', SpannerType(ColumnKind.UNKNOWN, is_array=True)),
    ("{}", SpannerType(ColumnKind.UNKNOWN)),
]


@pytest.mark.parametrize("table", TABLES_BY_KIND)
def test_each_table_has_a_line_for_every_kind(table: str) -> None:
    assert set(TABLES_BY_KIND[table]) == set(ColumnKind)


def test_every_kind_but_the_unknown_one_is_in_the_catalogue() -> None:
    assert {entry.kind for entry in CATALOGUE} == set(ColumnKind) - {ColumnKind.UNKNOWN}


def test_a_type_and_a_name_are_in_the_catalogue_once() -> None:
    types = Counter((entry.code, entry.annotation) for entry in CATALOGUE)
    assert max(types.values()) == 1
    assert len(GOOGLESQL_TYPES) == sum(bool(entry.googlesql) for entry in CATALOGUE)
    assert len(POSTGRESQL_TYPES) == sum(len(entry.postgresql) for entry in CATALOGUE)


@pytest.mark.parametrize(("type_json", "expected"), TYPES, ids=[type_json for type_json, _ in TYPES])
def test_a_records_type_is_parsed_to_its_kind(type_json: str, expected: SpannerType) -> None:
    assert SpannerType.parse(type_json) == expected


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=[dialect.name for dialect in DIALECTS.values()])
def test_each_type_of_a_dialect_has_the_kind_of_its_entry(dialect: Dialect) -> None:
    for entry in CATALOGUE:
        for name in (entry.googlesql,) if dialect.name == "googlesql" else entry.postgresql:
            type_json = dialect.column_type(name) if name else None
            assert type_json is None or SpannerType.parse(type_json) == SpannerType(entry.kind)


@pytest.mark.parametrize("kind", ColumnKind)
def test_kinds_of_one_encoding_have_one_representative(kind: ColumnKind) -> None:
    assert kind.encoded_like.encoded_like is kind.encoded_like


@pytest.mark.parametrize("table", TABLES, ids=[table.name for table in TABLES])
def test_the_sample_databases_columns_have_known_kinds(table: Table) -> None:
    names = [column.name for column in table.columns]
    for column in (*reported_columns(table, "googlesql", names), *reported_columns(table, "postgresql", names)):
        assert (column.code, column.annotation) in {(entry.code, entry.annotation) for entry in CATALOGUE}
