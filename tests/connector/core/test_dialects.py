"""Types of columns, as INFORMATION_SCHEMA and as records name them."""

import pytest

from connector.core.dialects import GOOGLESQL, POSTGRESQL, Dialect

TYPES: list[tuple[Dialect, str, str | None]] = [
    (GOOGLESQL, "BOOL", '{"code":"BOOL"}'),
    (GOOGLESQL, "INT64", '{"code":"INT64"}'),
    (GOOGLESQL, "FLOAT32", '{"code":"FLOAT32"}'),
    (GOOGLESQL, "FLOAT64", '{"code":"FLOAT64"}'),
    (GOOGLESQL, "NUMERIC", '{"code":"NUMERIC"}'),
    (GOOGLESQL, "STRING(MAX)", '{"code":"STRING"}'),
    (GOOGLESQL, "STRING(36)", '{"code":"STRING"}'),
    (GOOGLESQL, "BYTES(1024)", '{"code":"BYTES"}'),
    (GOOGLESQL, "DATE", '{"code":"DATE"}'),
    (GOOGLESQL, "TIMESTAMP", '{"code":"TIMESTAMP"}'),
    (GOOGLESQL, "JSON", '{"code":"JSON"}'),
    (GOOGLESQL, "UUID", '{"code":"UUID"}'),
    (GOOGLESQL, "INTERVAL", '{"code":"INTERVAL"}'),
    (GOOGLESQL, "PROTO<shop.Order>", '{"code":"PROTO","proto_type_fqn":"shop.Order"}'),
    (GOOGLESQL, "PROTO<`shop.Order`>", '{"code":"PROTO","proto_type_fqn":"shop.Order"}'),
    (GOOGLESQL, "ENUM<shop.State>", '{"code":"ENUM","proto_type_fqn":"shop.State"}'),
    (GOOGLESQL, "ARRAY<STRING(MAX)>", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}'),
    (
        GOOGLESQL,
        "ARRAY<PROTO<shop.Order>>",
        '{"array_element_type":{"code":"PROTO","proto_type_fqn":"shop.Order"},"code":"ARRAY"}',
    ),
    (
        GOOGLESQL,
        "ARRAY<ENUM<shop.State>>",
        '{"array_element_type":{"code":"ENUM","proto_type_fqn":"shop.State"},"code":"ARRAY"}',
    ),
    (GOOGLESQL, "ARRAY<FLOAT32>(vector_length=>128)", '{"array_element_type":{"code":"FLOAT32"},"code":"ARRAY"}'),
    (GOOGLESQL, "ARRAY<FLOAT64>(vector_length=>3)", '{"array_element_type":{"code":"FLOAT64"},"code":"ARRAY"}'),
    (GOOGLESQL, "ARRAY<FLOAT32>(vector_length => 128)", '{"array_element_type":{"code":"FLOAT32"},"code":"ARRAY"}'),
    (GOOGLESQL, "TOKENLIST", None),
    (GOOGLESQL, "STRUCT<a INT64>", None),
    (GOOGLESQL, "a type of tomorrow", None),
    (GOOGLESQL, "ARRAY<a type of tomorrow>", None),
    (POSTGRESQL, "boolean", '{"code":"BOOL"}'),
    (POSTGRESQL, "bigint", '{"code":"INT64"}'),
    (POSTGRESQL, "real", '{"code":"FLOAT32"}'),
    (POSTGRESQL, "double precision", '{"code":"FLOAT64"}'),
    (POSTGRESQL, "numeric", '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'),
    (POSTGRESQL, "numeric(10,2)", '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'),
    (POSTGRESQL, "character varying", '{"code":"STRING"}'),
    (POSTGRESQL, "character varying(10)", '{"code":"STRING"}'),
    (POSTGRESQL, "text", '{"code":"STRING"}'),
    (POSTGRESQL, "bytea", '{"code":"BYTES"}'),
    (POSTGRESQL, "date", '{"code":"DATE"}'),
    (POSTGRESQL, "timestamp with time zone", '{"code":"TIMESTAMP"}'),
    (POSTGRESQL, "spanner.commit_timestamp", '{"code":"TIMESTAMP"}'),
    (POSTGRESQL, "jsonb", '{"code":"JSON","type_annotation":"PG_JSONB"}'),
    (POSTGRESQL, "oid", '{"code":"INT64","type_annotation":"PG_OID"}'),
    (POSTGRESQL, "uuid", '{"code":"UUID"}'),
    (POSTGRESQL, "interval", '{"code":"INTERVAL"}'),
    (POSTGRESQL, "bigint[]", '{"array_element_type":{"code":"INT64"},"code":"ARRAY"}'),
    (POSTGRESQL, "character varying(10)[]", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}'),
    (
        POSTGRESQL,
        "numeric[]",
        '{"array_element_type":{"code":"NUMERIC","type_annotation":"PG_NUMERIC"},"code":"ARRAY"}',
    ),
    (POSTGRESQL, "real[] vector length 128", '{"array_element_type":{"code":"FLOAT32"},"code":"ARRAY"}'),
    (POSTGRESQL, "double precision[] vector length 4", '{"array_element_type":{"code":"FLOAT64"},"code":"ARRAY"}'),
    (POSTGRESQL, "real[] VECTOR LENGTH 128", '{"array_element_type":{"code":"FLOAT32"},"code":"ARRAY"}'),
    (POSTGRESQL, "spanner.tokenlist", None),
    (POSTGRESQL, "a type of tomorrow", None),
]


@pytest.mark.parametrize(("dialect", "spelling", "wanted"), TYPES, ids=[spelling for _, spelling, _ in TYPES])
def test_a_type_of_information_schema_is_the_one_of_records(
    dialect: Dialect, spelling: str, wanted: str | None
) -> None:
    assert dialect.column_type(spelling) == wanted
