"""A MERGE reads only what its keys can meet: conditions with constants, which every row of a load meets."""

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.merging.bounds import bound_of, bounded
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.merging.statements import merge_statement
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTableOptions, bigquery_table
from tests.spark_sink.sinks.bigquery.deliveries.runs import SinkRun, configured
from tests.spark_sink.spools import START, SpoolMaker, record


def table_of(partition_by: str = "", **keys: str) -> BigQueryTable:
    columns = [
        ColumnType(name, f'{{"code":"{code}"}}', True, place) for place, (name, code) in enumerate(keys.items(), 1)
    ]
    other = ColumnType("Placed", '{"code":"DATE"}', False, 9)
    schema = TableSchema("Orders", (*columns, other), tuple(keys))
    return bigquery_table(schema, BigQueryTableOptions("d", "merge-load", partition_by=partition_by))


def bound(code: str, *values: object) -> str:
    column = table_of(Id=code).columns[0]
    return bound_of(column, {orjson.dumps(value) for value in values})


def test_few_keys_are_listed_in_their_order_and_many_come_to_a_range() -> None:
    assert bound("INT64", "10", "9", "-1") == "t.`Id` IN (-1, 9, 10)"
    assert bound("INT64", *(str(number) for number in range(-5, 996))) == "t.`Id` BETWEEN -5 AND 995"


def test_many_texts_bound_nothing_for_a_collation_may_order_them_in_another_way() -> None:
    assert bound("STRING", *(f"k{number:04d}" for number in range(501))) == ""
    assert bound("STRING", *(f"{number:03d}" + "x" * 150 for number in range(200))) == "", "too long for a list"


@pytest.mark.parametrize(
    ("code", "values", "wanted"),
    [
        ("STRING", ["b", "ä"], "t.`Id` IN ('b', 'ä')"),
        ("DATE", ["2026-02-01", "0001-01-01"], "t.`Id` IN (DATE '0001-01-01', DATE '2026-02-01')"),
        (
            "TIMESTAMP",
            ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"],
            "t.`Id` IN (TIMESTAMP '2026-01-01T00:00:00.000000Z', TIMESTAMP '2026-01-01T00:00:00.500000Z')",
        ),
        ("NUMERIC", ["0.000000001", "-3"], "t.`Id` IN (NUMERIC '-3', NUMERIC '0.000000001')"),
    ],
)
def test_keys_of_each_type_are_constants_of_sql(code: str, values: list[str], wanted: str) -> None:
    assert bound(code, *values) == wanted


@pytest.mark.parametrize("text", ["it's", 'say "so"', "back\\slash", "tick`", "new\nline", "x" * 201])
def test_a_key_that_sql_might_read_otherwise_bounds_nothing(text: str) -> None:
    assert bound("STRING", "a", text) == ""


def test_a_key_that_is_null_bounds_nothing() -> None:
    assert bound("INT64", "1", None) == ""


def test_keys_of_other_types_bound_nothing() -> None:
    assert bound("BOOL", True) == ""


def test_bounds_name_the_target_as_the_statement_does() -> None:
    table = table_of(t="INT64")
    assert bound_of(table.columns[0], {b'"3"'}, "t_") == "t_.`t` IN (3)"


def test_only_the_first_clustered_column_and_a_partitioned_one_of_the_key_bound_a_merge() -> None:
    assert bounded(table_of(Id="INT64", Line="INT64")) == ["Id"]
    assert bounded(table_of('{"Orders":"Day"}', Id="INT64", Day="DATE")) == ["Id", "Day"]
    assert bounded(table_of('{"Orders":"Placed"}', Id="INT64")) == ["Id"], "another column's value may have changed"


def test_the_statement_holds_what_bounds_the_keys_of_its_load() -> None:
    table = table_of(Id="INT64", Line="INT64")
    merger = RowMerger(table)
    metadata = pa.StructArray.from_arrays([pa.array(["INSERT", "DELETE"])], ["mod_type"])
    rows = pa.RecordBatch.from_arrays(
        [
            metadata,
            pa.array([0, 0], pa.timestamp("us", "UTC")),
            pa.array(["u1", "u2"]),
            pa.array(["1", "2"]),
            pa.array(['{"Id":"7","Line":"1"}', '{"Id":"3","Line":"2"}']),
        ],
        ["source_metadata", "source_timestamp", "uuid", "change_sequence_number", "payload"],
    )
    assert merger.add(rows) == []
    assert merger.bounds() == "t.`Id` IN (3, 7)"
    statement = merge_statement(table, "p.d.Orders", "p.d.staging", merger.bounds())
    assert " ON t.`Id` = s.`Id` AND t.`Line` = s.`Line` AND t.`Id` IN (3, 7) WHEN MATCHED" in statement


@pytest.mark.parametrize("prunes", [True, False])
def test_keys_stand_in_statements_only_if_tables_are_pruned_by_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prunes: bool
) -> None:
    statements: list[str] = []
    merge = BigQueryClient.query

    def seen(self: BigQueryClient, sql: str, dataset: str, name: str, **named: Any) -> None:
        statements.append(sql)
        merge(self, sql, dataset, name, **named)

    monkeypatch.setattr(BigQueryClient, "query", seen)
    maker = SpoolMaker(tmp_path / "spool")
    maker.seal(record(START + 1, [4711]))
    with BigQueryDouble.started(count_jobs=True) as double:
        options = {"dataset": "d", "mode": "merge-load", "project": double.project, "location": "US"}
        servers = {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint}
        with SinkRun(configured(maker.path, **options, **servers, prune_by_keys=prunes)) as sink:
            sink.only_what_is_sealed()
            assert sink.run()
    assert [" IN (4711)" in statement for statement in statements] == [prunes]
    assert ["4711" in statement for statement in statements] == [prunes]
