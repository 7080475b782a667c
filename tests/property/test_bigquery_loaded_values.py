"""Values as a load job of JSON takes them, and those that are rejected."""

import json
from typing import Any

import pyarrow as pa
import pytest

from connector.core.records import ColumnType, Mod
from connector.core.schemas import TableSchema
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.merging.statements import merge_statement
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from tests.connector.builders import record
from tests.property.bigquery_merging import (
    INT64,
    KEYS,
    STRING,
    TABLE,
    Change,
    enveloped,
    rows_of,
)

# What single values become


def line_of(type_json: str, text: str, **options: Any) -> tuple[object, list[str]]:
    """The value that a line has in a column of that type, and the reason if the row is rejected."""
    column = ColumnType("v", type_json, False, 2)
    merger = RowMerger(
        bigquery_table(TableSchema.of("T", (KEYS[1], column)), BigQueryTableOptions("ds", "merge-load", **options))
    )
    mod = Mod('{"Id":"1"}', f'{{"v":{text}}}', "{}")
    refused = merger.add(enveloped(record(table_name="T", column_types=(KEYS[1], column), mods=(mod,))))
    lines = merger.lines().splitlines()
    return (json.loads(lines[0])["v"] if lines else None), [reason for _, reason in refused]


def array_of(element: str) -> str:
    return f'{{"array_element_type":{element},"code":"ARRAY"}}'


BYTES, JSON, FLOAT64, TIMESTAMP = (f'{{"code":"{code}"}}' for code in ("BYTES", "JSON", "FLOAT64", "TIMESTAMP"))
PG_NUMERIC = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'


@pytest.mark.parametrize(
    ("type_json", "text", "expected"),
    [
        (INT64, '"-9223372036854775808"', "-9223372036854775808"),
        (INT64, "null", None),
        (STRING, '"\\u0000\\n€\\"\\\\"', '\0\n€"\\'),
        (BYTES, '"aGk="', "aGk="),
        (FLOAT64, '"NaN"', "NaN"),
        (FLOAT64, '"-Infinity"', "-Infinity"),
        (FLOAT64, "-0.5e-300", -0.5e-300),
        ('{"code":"BOOL"}', "false", False),
        (
            '{"code":"NUMERIC"}',
            '"-99999999999999999999999999999.999999999"',
            "-99999999999999999999999999999.999999999",
        ),
        (PG_NUMERIC, '"NaN"', "NaN"),
        (PG_NUMERIC, "1.50", "1.50"),
        ('{"code":"DATE"}', '"0001-01-01"', "0001-01-01"),
        (TIMESTAMP, '"2026-01-02T03:04:05.123456789Z"', "2026-01-02T03:04:05.123456Z"),
        (TIMESTAMP, '"0001-01-01T00:00:00Z"', "0001-01-01T00:00:00.000000Z"),
        (TIMESTAMP, '"9999-12-31T23:59:59.999999999+00:00"', "9999-12-31T23:59:59.999999Z"),
        (JSON, '"{\\"a\\":[1,null]}"', '{"a":[1,null]}'),
        (JSON, '"\\"text\\""', '"text"'),
        (JSON, '"null"', "null"),
        (JSON, "null", None),
        (JSON, '{"a": [1, null]}', '{"a": [1, null]}'),
        (
            JSON,
            '"[18446744073709551615,-9223372036854775808,0.10,1e-7]"',
            "[18446744073709551615,-9223372036854775808,0.10,1e-7]",
        ),
        ('{"code":"TYPE_OF_TOMORROW"}', '{"a": 1}', '{"a": 1}'),
        ('{"code":"TYPE_OF_TOMORROW"}', '"a"', "a"),
        (array_of(INT64), "null", []),
        (array_of(INT64), '["1","-2"]', ["1", "-2"]),
        (array_of(FLOAT64), '[0.5,"NaN"]', [0.5, "NaN"]),
        (array_of(JSON), '["{\\"a\\":1}","null"]', ['{"a":1}', "null"]),
        (array_of(TIMESTAMP), '["2026-01-02T03:04:05.1234567Z"]', ["2026-01-02T03:04:05.123456Z"]),
        (array_of(PG_NUMERIC), '[1.50,"NaN"]', ["1.50", "NaN"]),
    ],
)
def test_a_value_is_what_a_load_of_json_takes_it_for(type_json: str, text: str, expected: object) -> None:
    assert line_of(type_json, text) == (expected, [])


@pytest.mark.parametrize(
    ("type_json", "text", "expected"),
    [
        (array_of(INT64), '["1",null]', "[1,null]"),
        (array_of(INT64), "null", None),
        (array_of(JSON), '["{\\"a\\":1}",null]', '[{"a":1},null]'),
        (array_of(FLOAT64), '["NaN",1.5]', '["NaN",1.5]'),
    ],
)
def test_an_array_is_json_where_that_is_wished_with_its_nulls(type_json: str, text: str, expected: object) -> None:
    assert line_of(type_json, text, arrays="json") == (expected, [])


def test_timestamps_keep_their_nanoseconds_where_they_are_text() -> None:
    text = "2026-01-02T03:04:05.123456789Z"
    assert line_of(TIMESTAMP, f'"{text}"', timestamps="text") == (text, [])
    assert line_of(array_of(TIMESTAMP), f'["{text}"]', timestamps="text") == ([text], [])


def test_a_json_text_of_several_lines_stays_one_line() -> None:
    text = json.dumps('{\n  "a": "b\\nc",\r\n "d": [1,\n2]}')
    expected = json.loads(text)
    assert line_of(JSON, text) == (expected, [])
    assert line_of(array_of(JSON), f"[{text}]") == ([expected], [])
    assert line_of(array_of(JSON), f"[{text}]", arrays="json") == (f"[{expected}]", [])


@pytest.mark.parametrize("text", ['"NaN"', '"Infinity"', f'"{"9" * 40}"', f'"0.{"1" * 39}"'])
def test_a_number_that_is_not_a_bignumeric_is_rejected_by_itself_for_a_load_would_reject_all(text: str) -> None:
    value, refused = line_of(PG_NUMERIC, text, numeric="bignumeric")
    assert (value, refused) == (None, ["column v has a number that BigQuery's BIGNUMERIC cannot hold"])
    value, refused = line_of(array_of(PG_NUMERIC), f'["1",{text}]', numeric="bignumeric")
    assert (value, refused) == (None, ["column v has a number that BigQuery's BIGNUMERIC cannot hold"])
    assert line_of(PG_NUMERIC, '"-1.5"', numeric="bignumeric") == ("-1.5", [])


@pytest.mark.parametrize(
    ("type_json", "text"),
    [
        (INT64, '"x1"'),
        (INT64, "true"),
        (INT64, '"9223372036854775808"'),
        (STRING, "1"),
        (BYTES, '"abc"'),
        (BYTES, '"€"'),
        (FLOAT64, '"x"'),
        ('{"code":"BOOL"}', '"x"'),
        ('{"code":"NUMERIC"}', '"x"'),
        ('{"code":"DATE"}', '"2026-02-30"'),
        (TIMESTAMP, '"x"'),
        (JSON, '"{"'),
        (JSON, '"[18446744073709551616123]"'),
        (JSON, '"0.1234567890123456789"'),
        (JSON, '"1e400"'),
        (array_of(INT64), '["x"]'),
        (array_of(INT64), '"1"'),
        (array_of(JSON), '["{"]'),
    ],
)
def test_a_value_of_another_type_is_rejected_by_itself_for_a_load_would_reject_all(type_json: str, text: str) -> None:
    value, refused = line_of(type_json, text)
    assert value is None
    assert [("column v" in reason, text.strip('"') in reason) for reason in refused] == [(True, False)]


def test_a_rejected_change_leaves_the_rows_other_changes_as_they_are() -> None:
    tags = (
        Change("INSERT", ("eu", "1"), {"Tags": ["a"]}),
        Change("UPDATE", ("eu", "1"), {"Tags": [None], "Name": "x"}),
    )
    merger = RowMerger(TABLE)
    ((index, reason),) = merger.add(rows_of(tags))
    assert (index, reason) == (
        1,
        "column Tags has a NULL inside an array, which BigQuery's REPEATED columns cannot hold: set sink.arrays: json",
    )
    (line,) = merger.lines().splitlines()
    assert json.loads(line)["Tags"] == ["a"]
    assert "Name" not in json.loads(line)


@pytest.mark.parametrize(
    "payload", ["[]", "{", '{"Id":"1"}', '{"Region":null,"Id":"1"}', '{"Region":"eu","Id":"1","x":1}']
)
@pytest.mark.parametrize("mod_type", ["INSERT", "UPDATE", "DELETE"])
def test_a_row_of_another_table_is_rejected_by_itself(payload: str, mod_type: str) -> None:
    rows = rows_of([Change(mod_type, ("eu", "1"), {})])
    column = rows.schema.get_field_index("payload")
    merger = RowMerger(TABLE)
    refused = merger.add(rows.set_column(column, rows.schema.field(column), pa.array([payload])))
    if mod_type == "DELETE" and '"x"' in payload:  # of which the key is enough
        assert (refused, len(merger)) == ([], 1)
    else:
        assert ([index for index, _ in refused], len(merger)) == ([0], 0)


def test_a_key_of_nanoseconds_is_rejected_for_two_rows_would_become_one() -> None:
    key = ColumnType("At", TIMESTAMP, True, 1)
    merger = RowMerger(bigquery_table(TableSchema.of("T", (key,)), BigQueryTableOptions("ds", "merge-load")))
    mods = tuple(Mod(f'{{"At":"2026-01-02T03:04:05.12345678{digit}Z"}}', "{}", "{}") for digit in "09")
    mods += (Mod('{"At":"2026-01-02T03:04:05.123456000Z"}', "{}", "{}"),)
    refused = merger.add(enveloped(record(table_name="T", column_types=(key,), mods=mods)))
    assert [index for index, _ in refused] == [0, 1]
    assert all("set sink.timestamps: text" in reason for _, reason in refused)
    assert len(merger) == 1


def test_the_statement_names_the_keys_and_columns_as_they_are_in_bigquery() -> None:
    columns = (ColumnType("a b", INT64, True, 1), ColumnType("1st", STRING, False, 2))
    table = bigquery_table(TableSchema.of("T", columns), BigQueryTableOptions("ds", "merge-load"))
    statement = merge_statement(table, "p.ds.T", "p.ds.staging")
    assert statement.startswith("MERGE `p.ds.T` t USING `p.ds.staging` s ON t.`a_b` = s.`a_b` WHEN MATCHED AND")
    assert "INSERT (`a_b`, `_1st`, `datastream_metadata`)" in statement
    assert "`1st`" not in statement


def test_the_statement_makes_json_of_the_texts_that_were_loaded() -> None:
    columns = (
        ColumnType("Id", INT64, True, 1),
        ColumnType("a b", JSON, False, 2),
        ColumnType("c", array_of(JSON), False, 3),
    )
    table = bigquery_table(TableSchema.of("T", columns), BigQueryTableOptions("ds", "merge-load"))
    statement = merge_statement(table, "p.ds.T", "p.ds.staging")
    assert (
        "USING (SELECT * REPLACE (PARSE_JSON(`a_b`) AS `a_b`,"
        " ARRAY(SELECT PARSE_JSON(e) FROM UNNEST(`c`) e WITH OFFSET o ORDER BY o) AS `c`) FROM `p.ds.staging`) s ON"
    ) in statement
