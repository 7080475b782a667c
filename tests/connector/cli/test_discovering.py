"""``discover``: what a change stream watches, and what each sink makes of it."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from connector.cli.discovering.objects import described, sinks, unified_type
from connector.cli.discovering.text import streams_text, unified_text
from connector.core.column_kinds import CATALOGUE, TypeEntry
from connector.core.dialects import GOOGLESQL
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.spanner.discovery import ChangeStream

ID = ColumnType("Id", '{"code":"INT64"}', True, 1)
TAGS = ColumnType("Tags", '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}', False, 2)
PRICE = ColumnType("Price", '{"code":"NUMERIC"}', False, 3)


def stream(*tables: TableSchema, **types: str) -> ChangeStream:
    spelled = {(table.table, name): text for table in tables for name, text in types.items()}
    set_options = {"retention_period": "24h"}
    return ChangeStream("Everything", "24h", "NEW_ROW", "IMMUTABLE_KEY_RANGE", tables, spelled, set_options)


def only(report: dict[str, object]) -> dict[str, Any]:
    """The only table of a change stream."""
    tables = report["tables"]
    assert isinstance(tables, list)
    (table,) = tables
    return dict(table)


SHOP = stream(TableSchema.of("shop.Orders", [ID, TAGS, PRICE]), Id="INT64", Tags="ARRAY<STRING(MAX)>", Price="NUMERIC")


def test_objects_and_fields_are_those_of_datastreams_discover_api() -> None:
    assert described(SHOP, GOOGLESQL, {})["spannerDatabase"] == {
        "schemas": [
            {
                "schema": "shop",
                "tables": [
                    {
                        "table": "Orders",
                        "columns": [
                            {"column": "Id", "dataType": "INT64", "isPrimaryKey": True, "ordinalPosition": 1},
                            {
                                "column": "Tags",
                                "dataType": "ARRAY<STRING(MAX)>",
                                "isPrimaryKey": False,
                                "ordinalPosition": 2,
                            },
                            {"column": "Price", "dataType": "NUMERIC", "isPrimaryKey": False, "ordinalPosition": 3},
                        ],
                    }
                ],
            }
        ]
    }


def test_people_see_each_column_with_its_type_everywhere() -> None:
    assert streams_text([described(SHOP, GOOGLESQL, sinks())]).splitlines() == [
        "Everything  googlesql  NEW_ROW  retention 24h  IMMUTABLE_KEY_RANGE",
        "  shop.Orders",
        "    column  Spanner             unified type     jsonl           avro     bigquery       spanner        tables",  # noqa: E501
        "    Id*     INT64               long             number          long     INT64          INT64          bigint",  # noqa: E501
        "    Tags    ARRAY<STRING(MAX)>  array of string  array: text     json     ARRAY<STRING>  ARRAY<STRING>  array<string>",  # noqa: E501
        "    Price   NUMERIC             decimal(38, 9)   text of digits  decimal  NUMERIC        NUMERIC        decimal(38,9)",  # noqa: E501
    ]


def test_a_table_that_a_sink_cannot_hold_is_shown_with_the_reason() -> None:
    keyless = described(stream(TableSchema.of("T", [PRICE])), GOOGLESQL, sinks())
    assert "    bigquery: table T has no primary key to merge by: take mode merge-load or append-only" in streams_text(
        [keyless]
    )
    both = [ColumnType(name, PRICE.type, False, at) for at, name in enumerate(("I d", "I_d"), 2)]
    table = only(described(stream(TableSchema.of("T", [ID, *both])), GOOGLESQL, sinks()))
    assert table["problems"]["files"] == ["the columns I d and I_d of table T would both be called I_d in Avro"]


def test_what_keeps_a_stream_out_of_a_sink_is_shown_below_the_stream_and_once() -> None:
    names = ("a.b_c", "a_b.c", "lake.x_y", "Lake.X_Y")
    tables = [TableSchema.of(name, [ID]) for name in names]
    watched = replace(stream(*tables, TableSchema.of("K", [PRICE])), value_capture_type="OLD_AND_NEW_VALUES")
    report = described(watched, GOOGLESQL, sinks())
    problems = report["problems"]
    assert isinstance(problems, dict)
    assert problems.keys() == {"bigquery", "tables"}
    capture, names_of_tables = problems["bigquery"]
    assert capture.startswith("merge needs whole rows, and change stream Everything captures OLD_AND_NEW_VALUES: ALTER")
    assert names_of_tables.startswith("the tables a.b_c and a_b.c would both be ")
    both = ["tables Lake.X_Y and lake.x_y would both be lake_x_y", "tables a.b_c and a_b.c would both be a_b_c"]
    assert problems["tables"] == both
    _, *lines = streams_text([report]).splitlines()
    assert lines[:2] == [f"  bigquery: {capture}", f"  bigquery: {names_of_tables}"]
    assert lines[2:5] == [*(f"  tables: {line}" for line in both), "  a.b_c"]


def test_a_stream_that_every_sink_can_deliver_has_no_problems() -> None:
    assert "problems" not in described(SHOP, GOOGLESQL, sinks())


def test_what_a_stream_omits_is_shown_with_its_options() -> None:
    given = {"retention_period": "24h", "value_capture_type": "NEW_ROW", "exclude_ttl_deletes": "true"}
    report = described(replace(SHOP, options=given), GOOGLESQL, {})
    assert report["options"] == given
    line, *_ = streams_text([report]).splitlines()
    assert line == "Everything  googlesql  NEW_ROW  retention 24h  IMMUTABLE_KEY_RANGE  exclude_ttl_deletes=true"


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: f"{entry.code}-{entry.annotation}")
def test_every_type_is_described_in_every_sink(entry: TypeEntry) -> None:
    for node in (entry.type_object, {"code": "ARRAY", "array_element_type": entry.type_object}):
        text = orjson.dumps(node, option=orjson.OPT_SORT_KEYS).decode()
        table = only(described(stream(TableSchema.of("T", [ID, ColumnType("C", text, False, 2)])), GOOGLESQL, sinks()))
        _, column = table["columns"]
        assert column["sinks"].keys() == {"jsonl", "avro", "bigquery", "spanner", "tables"}
        assert all(column["sinks"].values())
        assert unified_text(unified_type(text))


def test_a_database_without_change_streams_is_said_to_have_none() -> None:
    assert streams_text([]) == "no change streams"


def test_a_stream_that_watches_nothing_says_so() -> None:
    (_, line) = streams_text([described(stream(), GOOGLESQL, sinks())]).splitlines()
    assert line == "  watches no table: nothing is recorded"
