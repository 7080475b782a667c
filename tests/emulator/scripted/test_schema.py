from dataclasses import replace

import grpc
import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from connector.core.timestamps import SECOND
from emulator import ScriptedError, ScriptedSpanner
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import FORMS, engine, scenario

_ResultSetMetadata = types.ResultSetMetadata.pb()


def _rows(served: ScriptedSpanner, sql: str, **parameters: str | None) -> list[list[object]]:
    answer = served.describe(sql, parameters)
    return [[_plain(Value.FromString(value)) for value in row] for row in answer.rows]


def _plain(value: Value) -> object:
    kind = value.WhichOneof("kind")
    return None if kind == "null_value" else getattr(value, kind)


def _columns(served: ScriptedSpanner, sql: str) -> list[tuple[str, str]]:
    described = _ResultSetMetadata.FromString(served.describe(sql, {}).metadata)
    return [(field.name, types.TypeCode(field.type_.code).name) for field in described.row_type.fields]


@pytest.mark.parametrize(("dialect", "mode"), FORMS)
def test_the_schema_has_the_dialect_and_the_options_that_are_not_the_default(
    dialect: Dialect, mode: PartitionMode
) -> None:
    served = engine(scenario(dialect, mode))
    (name,) = _rows(
        served,
        "SELECT option_value FROM information_schema.database_options WHERE option_name = 'database_dialect'",
    )
    assert name == [{"googlesql": "GOOGLE_STANDARD_SQL", "postgresql": "POSTGRESQL"}[dialect]]
    mutable = [["partition_mode", "MUTABLE_KEY_RANGE"]] if mode == "MUTABLE_KEY_RANGE" else []
    sql = "SELECT option_name, option_value FROM information_schema.change_stream_options"
    assert _rows(served, sql) == [*mutable, ["value_capture_type", "NEW_ROW_AND_OLD_VALUES"]]


@pytest.mark.parametrize(
    ("seconds", "option"), [(86_400, "1d"), (7 * 86_400, None), (36 * 3600, "36h"), (90 * 60, "90m"), (1, "1s")]
)
def test_retention_is_formatted_as_it_would_be_set(seconds: int, option: str | None) -> None:
    served = engine(replace(scenario(), retention=seconds * SECOND, value_capture_type="OLD_AND_NEW_VALUES"))
    sql = "SELECT option_name, option_value FROM information_schema.change_stream_options"
    assert _rows(served, sql) == ([["retention_period", option]] if option else [])


def test_booleans_are_bool_in_googlesql_and_yes_in_postgresql() -> None:
    google, postgres = engine(scenario("googlesql")), engine(scenario("postgresql"))
    sql = "SELECT change_stream_name, {}all{} FROM information_schema.change_streams"
    assert _rows(google, sql.format("`", "`")) == [["Everything", True]]
    assert _columns(google, sql.format("`", "`"))[1] == ("ALL", "BOOL")
    assert _rows(postgres, sql.format('"', '"')) == [["Everything", "YES"]]
    assert _columns(postgres, sql.format('"', '"'))[1] == ("all", "STRING")


def test_a_stream_for_all_lists_neither_tables_nor_columns() -> None:
    for table in ("change_stream_tables", "change_stream_columns"):
        assert _rows(engine(scenario()), f"SELECT * FROM INFORMATION_SCHEMA.{table.upper()}") == []


def test_columns_have_their_types_in_both_dialects() -> None:
    sql = (
        "SELECT c.column_name, c.ordinal_position, c.spanner_type, c.is_nullable, c.is_generated"
        " FROM information_schema.columns AS c JOIN information_schema.tables AS t ON c.table_name = t.table_name"
        " WHERE t.table_type = 'BASE TABLE' AND c.table_name IN ('Singers', 'Albums') ORDER BY 1, 2"
    )
    google = {tuple(row) for row in _rows(engine(scenario("googlesql")), sql)}
    assert ("SingerId", "1", "INT64", "NO", "NEVER") in google
    assert ("UpdatedAt", "5", "TIMESTAMP", "YES", "NEVER") in google
    assert ("FullName", "6", "STRING(MAX)", "YES", "ALWAYS") in google
    assert ("Tracks", "5", "ARRAY<STRING(MAX)>", "YES", "NEVER") in google
    postgres = {tuple(row) for row in _rows(engine(scenario("postgresql")), sql)}
    assert ("SingerId", "1", "bigint", "NO", "NEVER") in postgres
    assert ("UpdatedAt", "5", "spanner.commit_timestamp", "YES", "NEVER") in postgres
    assert ("Tracks", "5", "character varying[]", "YES", "NEVER") in postgres


def test_a_named_schema_is_listed_beside_the_unnamed_one() -> None:
    sql = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'Invoices' OR table_name = 'Order'"
    assert sorted(_rows(engine(scenario("googlesql")), sql)) == [[""], ["sales"]]
    assert sorted(_rows(engine(scenario("postgresql")), sql)) == [["public"], ["sales"]]


def test_keys_are_listed_in_their_order() -> None:
    sql = (
        "SELECT column_name, ordinal_position FROM information_schema.index_columns"
        " WHERE index_type = 'PRIMARY_KEY' AND table_name = 'Albums' ORDER BY ordinal_position"
    )
    assert _rows(engine(scenario()), sql) == [["SingerId", "1"], ["AlbumId", "2"]]
    assert _columns(engine(scenario()), sql) == [("COLUMN_NAME", "STRING"), ("ORDINAL_POSITION", "INT64")]


def test_current_timestamp_is_the_servers_time() -> None:
    served = engine(scenario(), now=1.5)
    for sql in ("SELECT CURRENT_TIMESTAMP", "select current_timestamp();", "SELECT CURRENT_TIMESTAMP AS now"):
        assert _rows(served, sql) == [["2026-09-21T14:13:21.623456789Z"]]
    assert _columns(served, "SELECT CURRENT_TIMESTAMP AS now") == [("now", "TIMESTAMP")]


def test_select_1_is_a_number() -> None:
    assert _rows(engine(scenario()), "SELECT 1") == [["1"]]
    assert _columns(engine(scenario("googlesql")), "SELECT 1") == [("", "INT64")]
    assert _columns(engine(scenario("postgresql")), "SELECT 1") == [("?column?", "INT64")]


def test_parameters_are_bound_by_name_and_by_number() -> None:
    sql = "SELECT table_name FROM information_schema.tables WHERE table_name = {}"
    assert _rows(engine(scenario("googlesql")), sql.format("@name"), name="Albums") == [["Albums"]]
    assert _rows(engine(scenario("postgresql")), sql.format("$1"), p1="Albums") == [["Albums"]]


@pytest.mark.parametrize(
    "sql",
    [
        *("SELEC", "SELECT nothing FROM nowhere", "SELECT * FROM Singers", "", "SELECT 1; SELECT 2"),
        *("DELETE FROM information_schema.tables WHERE true", "DROP TABLE information_schema.tables"),
        *("ATTACH '/nowhere/file' AS x", "PRAGMA database_list", "BEGIN", "SELECT @missing"),
    ],
)
def test_any_other_statement_is_rejected_and_changes_nothing(sql: str) -> None:
    served = engine(scenario())
    with pytest.raises(ScriptedError) as refused:
        served.describe(sql, {})
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert _rows(served, "SELECT count(*) FROM information_schema.tables") == [["6"]]
