"""Tables of Spanner in BigQuery: names, types, keys, and errors."""

from collections.abc import Callable
from typing import get_args

import pytest

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from spark_sink.sinks.bigquery.resources import staged_field, table_resource
from spark_sink.sinks.bigquery.tables.table import (
    MERGE,
    SEPARATE_NAMES,
    BigQueryTableOptions,
    BigQueryTarget,
    Field,
    Mode,
    bigquery_name,
    bigquery_table,
    collisions,
    errors_of_stream,
    table_errors,
)
from tests.connector.builders import column

MODES: tuple[Mode, ...] = get_args(Mode)
MERGING: tuple[Mode, ...] = ("merge", "merge-load")
APPENDING: tuple[Mode, ...] = ("append-only", "changelog")
KEY = column("Id", "INT64", 1, key=True)
WHOLE, PARTIAL = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES"), ("OLD_AND_NEW_VALUES", "NEW_VALUES")

GOOGLESQL = {
    '{"code":"BOOL"}': "BOOL",
    '{"code":"INT64"}': "INT64",
    '{"code":"FLOAT32"}': "FLOAT64",
    '{"code":"FLOAT64"}': "FLOAT64",
    '{"code":"NUMERIC"}': "NUMERIC",
    '{"code":"STRING"}': "STRING",
    '{"code":"BYTES"}': "BYTES",
    '{"code":"DATE"}': "DATE",
    '{"code":"TIMESTAMP"}': "TIMESTAMP",
    '{"code":"JSON"}': "JSON",
    '{"code":"UUID"}': "STRING",
    '{"code":"INTERVAL"}': "STRING",
    '{"code":"ENUM","proto_type_fqn":"a.C"}': "INT64",
    '{"code":"PROTO","proto_type_fqn":"a.B"}': "BYTES",
    '{"code":"TYPE_OF_TOMORROW"}': "STRING",
}
POSTGRESQL = {
    '{"code":"BOOL"}': "BOOL",
    '{"code":"INT64"}': "INT64",
    '{"code":"INT64","type_annotation":"PG_OID"}': "INT64",
    '{"code":"FLOAT32"}': "FLOAT64",
    '{"code":"FLOAT64"}': "FLOAT64",
    '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}': "STRING",
    '{"code":"STRING"}': "STRING",
    '{"code":"BYTES"}': "BYTES",
    '{"code":"DATE"}': "DATE",
    '{"code":"TIMESTAMP"}': "TIMESTAMP",
    '{"code":"JSON","type_annotation":"PG_JSONB"}': "JSON",
    '{"code":"UUID"}': "STRING",
    '{"code":"INTERVAL"}': "STRING",
}
TYPES = {"googlesql": GOOGLESQL, "postgresql": POSTGRESQL}
TYPED = [(dialect, type_json, name) for dialect, types in TYPES.items() for type_json, name in types.items()]


def array_of(element: str) -> str:
    return f'{{"array_element_type":{element},"code":"ARRAY"}}'


def table_options(mode: Mode = "append-only", **options: str) -> BigQueryTableOptions:
    return BigQueryTableOptions(**{"dataset": "ds", "mode": mode, **options})  # type: ignore[arg-type]


def schema(*columns: ColumnType, table: str = "Singers", keys: tuple[str, ...] = ()) -> TableSchema:
    return TableSchema.of(table, columns, keys)


def field_of(type_json: str, mode: Mode = "append-only", **options: str) -> Field:
    """The field that a column of that type becomes."""
    made = bigquery_table(schema(KEY, ColumnType("v", type_json, False, 2)), table_options(mode, **options))
    return next(found.field for found in made.columns if found.name == "v")


def keyed(*codes: str) -> TableSchema:
    """A table whose key columns have these types."""
    return schema(*(column(f"k{number}", code, number, key=True) for number, code in enumerate(codes, 1)))


# Types


@pytest.mark.parametrize(("dialect", "type_json", "name"), TYPED)
@pytest.mark.parametrize("mode", MODES)
def test_every_type_of_spanners_has_one_in_bigquery(dialect: str, type_json: str, name: str, mode: Mode) -> None:
    assert dialect in TYPES
    assert field_of(type_json, mode) == Field("v", name)


@pytest.mark.parametrize(("dialect", "type_json", "name"), TYPED)
def test_an_array_is_repeated_or_json(dialect: str, type_json: str, name: str) -> None:
    assert dialect in TYPES
    assert field_of(array_of(type_json)) == Field("v", name, repeated=True)
    assert field_of(array_of(type_json), arrays="json") == Field("v", "JSON")


@pytest.mark.parametrize("of", [str, array_of])
def test_timestamps_are_text_where_that_is_wished_and_dates_stay_dates(of: Callable[[str], str]) -> None:
    assert field_of(of('{"code":"TIMESTAMP"}'), timestamps="text").type == "STRING"
    assert field_of(of('{"code":"DATE"}'), timestamps="text").type == "DATE"


@pytest.mark.parametrize("of", [str, array_of])
def test_postgresqls_numeric_is_a_bignumeric_where_that_is_wished_and_googlesqls_stays(
    of: Callable[[str], str],
) -> None:
    annotated = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'
    assert field_of(of(annotated), numeric="bignumeric").type == "BIGNUMERIC"
    assert field_of(of('{"code":"NUMERIC"}'), numeric="bignumeric").type == "NUMERIC"
    assert field_of(of('{"code":"STRING"}'), numeric="bignumeric").type == "STRING"


@pytest.mark.parametrize("mode", MODES)
def test_every_column_may_be_null_but_the_key_of_a_table_that_is_merged_into(mode: Mode) -> None:
    made = bigquery_table(schema(KEY, column("Name", ordinal=2)), table_options(mode))
    required = [field.name for field in made.fields if field.required]
    assert required == (["Id"] if mode in MERGING else [])


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Id", "Id"),
        ("a_1", "a_1"),
        ("1st", "_1st"),
        ("a b-c", "a_b_c"),
        ("ü", "_"),
        ("٣", "_"),
        ("_", "_"),
        ("_TABLE_SUFFIX", "c_TABLE_SUFFIX"),
        ("_table_", "c_table_"),
        ("_FILE_NAME", "c_FILE_NAME"),
        ("_PARTITIONTIME", "c_PARTITIONTIME"),
        ("_Row_Timestamp", "c_Row_Timestamp"),
        ("__ROOT__x", "c__ROOT__x"),
        ("_colidentifier1", "c_colidentifier1"),
        ("_CHANGE_TYPE", "c_CHANGE_TYPE"),
        ("_CHANGE_SEQUENCE_NUMBER", "c_CHANGE_SEQUENCE_NUMBER"),
        ("CHANGE_TYPE", "CHANGE_TYPE"),
        ("x" * 400, "x" * 300),
    ],
)
def test_a_name_is_one_that_bigquery_takes(name: str, expected: str) -> None:
    assert bigquery_name(name) == expected


def test_a_columns_own_name_is_kept_beside_the_one_in_bigquery() -> None:
    made = bigquery_table(schema(KEY, column("1 st", ordinal=2)), table_options())
    assert [(found.name, found.field.name) for found in made.columns] == [("Id", "Id"), ("1 st", "_1_st")]


@pytest.mark.parametrize("mode", MODES)
def test_columns_that_would_have_one_name_are_rejected_whatever_their_case(mode: Mode) -> None:
    made = bigquery_table(schema(KEY, column("a b", ordinal=2), column("A_B", ordinal=3)), table_options(mode))
    assert list(table_errors(made, table_options(mode))) == [
        "the columns a b and A_B of table Singers would both be called a_b in BigQuery"
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_column_with_the_name_of_a_metadata_column_is_rejected(mode: Mode) -> None:
    own = bigquery_table(schema(KEY), table_options(mode)).metadata[0].name
    made = bigquery_table(schema(KEY, column(own.upper(), ordinal=2)), table_options(mode))
    assert [error.partition(" of table")[0] for error in table_errors(made, table_options(mode))] == [
        f"the columns {own.upper()} and {own}"
    ]


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        ("Singers", {}, ("ds", "Singers")),
        ("Singers", {"prefix": "p_"}, ("ds", "p_Singers")),
        ("music.Singers", {}, ("ds", "music_Singers")),
        ("music.Singers", {"prefix": "p_"}, ("ds", "p_music_Singers")),
        ("music.Singers", {"dataset": "x_{schema}"}, ("x_music", "Singers")),
        ("music.Singers", {"dataset": "{schema}", "prefix": "p_"}, ("music", "p_Singers")),
        ("Singers", {"dataset": "x_{schema}", "default_schema": "public"}, ("x_public", "Singers")),
        ("Singers", {"dataset": "x_{schema}", "default_schema": "a-b"}, ("x_a_b", "Singers")),
        ("Singers", {"default_schema": "public"}, ("ds", "Singers")),
        ("Straße", {}, ("ds", "Stra_e")),
        ("1st", {"prefix": "p_"}, ("ds", "p__1st")),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_table_is_in_the_dataset_of_all_or_of_its_schema(
    table: str, options: dict[str, str], expected: tuple[str, str], mode: Mode
) -> None:
    made = bigquery_table(schema(KEY, table=table), table_options(mode, **options))
    suffix = "_changelog" if mode == "changelog" else ""
    assert (made.source, made.dataset, made.name) == (table, expected[0], f"{expected[1]}{suffix}")


def test_tables_that_would_be_one_are_rejected_and_those_of_other_schemas_datasets_are_not() -> None:
    tables = [schema(KEY, table=name) for name in ("a_b", "a.b", "c")]
    assert list(collisions([bigquery_table(table, table_options()) for table in tables])) == [
        f"the tables a.b and a_b would both be ds.a_b in BigQuery: {SEPARATE_NAMES}"
    ]
    own = table_options(dataset="{schema}", default_schema="public")
    assert list(collisions([bigquery_table(table, own) for table in tables])) == []
    same = table_options(dataset="{schema}", default_schema="a")
    assert list(collisions([bigquery_table(schema(KEY, table=name), same) for name in ("b", "a.b")])) == [
        f"the tables a.b and b would both be a.b in BigQuery: {SEPARATE_NAMES}"
    ]


# Keys and clustering


@pytest.mark.parametrize("mode", MODES)
def test_a_key_is_in_its_own_order_and_clusters_by_its_first_four_columns(mode: Mode) -> None:
    names = ("e", "b", "d", "a", "c")
    columns = [column(name, "INT64", number, key=True) for number, name in enumerate(sorted(names), 1)]
    made = bigquery_table(schema(*columns, keys=names), table_options(mode))
    assert made.primary_key == (names if mode in MERGING else ())
    assert made.clustering == names[:4]


def test_what_cannot_cluster_is_passed_over() -> None:
    made = bigquery_table(keyed("FLOAT64", "STRING", "BYTES", "INT64"), table_options())
    assert made.clustering == ("k2", "k4")


def test_a_keys_columns_have_the_names_of_bigquery() -> None:
    made = bigquery_table(schema(column("a b", "INT64", 1, key=True)), table_options("merge"))
    assert (made.primary_key, made.clustering) == (("a_b",), ("a_b",))


@pytest.mark.parametrize("mode", MERGING)
@pytest.mark.parametrize("code", ["BOOL", "INT64", "ENUM", "NUMERIC", "STRING", "UUID", "DATE", "TIMESTAMP"])
def test_a_table_with_a_key_that_bigquery_has_can_be_merged(mode: Mode, code: str) -> None:
    assert list(table_errors(bigquery_table(keyed(code), table_options(mode)), table_options(mode))) == []


@pytest.mark.parametrize("code", ["FLOAT64", "FLOAT32", "BYTES"])
def test_a_key_of_a_type_that_bigquery_has_no_keys_of_is_rejected_where_it_is_merged(code: str) -> None:
    for mode in MERGING:
        (error,) = table_errors(bigquery_table(keyed("INT64", code), table_options(mode)), table_options(mode))
        kind = "FLOAT64" if code == "FLOAT32" else code
        assert error.startswith(f"the key column k2 of table Singers is {kind} in BigQuery, which has no such keys")
    for mode in APPENDING:
        assert list(table_errors(bigquery_table(keyed("INT64", code), table_options(mode)), table_options(mode))) == []


@pytest.mark.parametrize("mode", MODES)
def test_only_a_table_that_is_merged_needs_a_key_and_one_of_at_most_16_columns(mode: Mode) -> None:
    none = list(table_errors(bigquery_table(schema(column("a", ordinal=1)), table_options(mode)), table_options(mode)))
    assert [error.partition(":")[0] for error in none] == (
        ["table Singers has no primary key to merge by"] if mode == "merge" else []
    )
    assert list(table_errors(bigquery_table(keyed(*["INT64"] * 16), table_options(mode)), table_options(mode))) == []
    many = list(table_errors(bigquery_table(keyed(*["INT64"] * 17), table_options(mode)), table_options(mode)))
    assert [error.partition(",")[0] for error in many] == (
        ["the key of table Singers has 17 columns"] if mode in MERGING else []
    )


# What each row has beside its columns


def test_merged_tables_tell_of_the_last_change_and_appended_ones_of_each() -> None:
    fields = {mode: bigquery_table(schema(KEY), table_options(mode)).metadata for mode in MODES}
    inner = {
        mode: {inner.name: inner.type for inner in found[0].fields}
        for mode, found in fields.items()
        if found[0].name == "datastream_metadata"
    }
    datastream = {"uuid": "STRING", "source_timestamp": "INT64"}
    assert inner == {
        "merge": datastream,
        "merge-load": {**datastream, "change_sequence_number": "STRING"},
        "append-only": {
            **datastream,
            "change_sequence_number": "STRING",
            "change_type": "STRING",
            "sort_keys": "STRING",
        },
    }
    assert [one.name for one in fields["append-only"][0].fields if one.repeated] == ["sort_keys"]
    assert all(len(found) == 1 and found[0].type == "STRUCT" for mode, found in fields.items() if mode != "changelog")


def test_a_changelog_has_the_columns_of_the_dataflow_template() -> None:
    made = bigquery_table(schema(KEY, column("Name", ordinal=2)), table_options("changelog"))
    assert {field.name: field.type for field in made.fields} == {
        "Id": "INT64",
        "Name": "STRING",
        "_metadata_spanner_mod_type": "STRING",
        "_metadata_spanner_table_name": "STRING",
        "_metadata_spanner_commit_timestamp": "TIMESTAMP",
        "_metadata_spanner_server_transaction_id": "STRING",
        "_metadata_spanner_record_sequence": "STRING",
        "_metadata_spanner_is_last_record_in_transaction_in_partition": "BOOL",
        "_metadata_spanner_number_of_records_in_transaction": "INT64",
        "_metadata_spanner_number_of_partitions_in_transaction": "INT64",
        "_metadata_big_query_commit_timestamp": "TIMESTAMP",
    }


# What keeps a stream out


@pytest.mark.parametrize("captured", [*WHOLE, *PARTIAL])
@pytest.mark.parametrize("mode", MODES)
def test_only_merge_refuses_a_stream_that_captures_only_changes_with_the_statement_that_helps(
    mode: Mode, captured: str
) -> None:
    errors = errors_of_stream(table_options(mode), "Everything", captured, [schema(KEY)])
    if mode != MERGE or captured in WHOLE:
        assert errors == []
        return
    (error,) = errors
    assert error.startswith("sink.mode: merge needs whole rows, and change stream Everything captures " + captured)
    assert "ALTER CHANGE STREAM Everything SET OPTIONS (value_capture_type = 'NEW_ROW')" in error
    assert """PostgreSQL: ALTER CHANGE STREAM "Everything" SET (value_capture_type = 'NEW_ROW')""" in error
    assert "merge-load" in error


def test_all_faults_of_a_stream_are_reported_at_once() -> None:
    errors = errors_of_stream(
        table_options("merge"),
        "Everything",
        "NEW_VALUES",
        [
            schema(KEY, column("a b", ordinal=2), column("a_b", ordinal=3), table="x.y"),
            schema(KEY, table="x_y"),
            schema(column("a"), table="Keyless"),
        ],
    )
    phrases = ["merge needs whole rows", "would both be called a_b", "has no primary key", "would both be ds.x_y"]
    assert [[words in error for words in phrases] for error in errors] == [
        [words == expected for words in phrases] for expected in phrases
    ]
    assert all(error.startswith(("sink: ", "sink.mode: ")) for error in errors)


@pytest.mark.parametrize("mode", MODES)
def test_texts_of_a_key_are_compared_as_they_are_whatever_the_datasets_collation(mode: Mode) -> None:
    columns = [column("Id", "INT64", 1, key=True), column("Code", "STRING", 2, key=True), column("Name", "STRING", 3)]
    table = bigquery_table(TableSchema.of("T", columns), BigQueryTableOptions("d", mode))
    fields = {one["name"]: one for one in table_resource(BigQueryTarget("p"), table).to_api_repr()["schema"]["fields"]}
    assert fields["Code"]["collation"] == ""
    assert "collation" not in fields["Name"], "the dataset's holds"
    assert "collation" not in fields["Id"]
    assert all(staged_field(field).to_api_repr()["collation"] == "" for field in table.fields if field.type == "STRING")
