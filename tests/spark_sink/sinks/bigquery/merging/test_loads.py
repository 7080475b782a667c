"""Loads of a partitioned table: a MERGE changes no more partitions than BigQuery allows."""

from typing import Any, cast

import orjson
import pyarrow as pa
import pytest

from connector.core.schemas import TableSchema
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.merging.loads import MERGED_PARTITIONS, Loading, from_text
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from tests.connector.builders import column
from tests.spark_sink.sinks.bigquery.rows.built import change, enveloped

KEY, AT, NUMBER = column("Id", "INT64", 1, key=True), column("At", "TIMESTAMP", 2), column("N", "INT64", 3)
COLUMNS = (KEY, AT, NUMBER)


class Loaded:
    """A client that keeps the lines of load jobs, by staging table."""

    def __init__(self) -> None:
        self.lines: dict[str, list[dict[str, Any]]] = {}

    def load(self, _dataset: str, name: str, _fields: object, rows: bytes, **_: str) -> None:
        assert name not in self.lines
        self.lines[name] = [orjson.loads(line) for line in rows.splitlines()]


def loads(partition_by: str, rows: pa.RecordBatch) -> list[list[dict[str, Any]]]:
    """The lines of each load of these rows."""
    options = BigQueryTableOptions("d", "merge-load", partition_by=orjson.dumps({"Singers": partition_by}).decode())
    table = bigquery_table(TableSchema.of("Singers", COLUMNS), options)
    assert table.partition is not None
    loaded = Loaded()
    loading = Loading(cast("BigQueryClient", loaded), table, "name")
    assert loading.write(rows) == []
    return [loaded.lines[load.staging] for load in from_text(loading.finish())]


def hour(number: int) -> str:
    return f"2026-{number // 672 + 1:02}-{number // 24 % 28 + 1:02}T{number % 24:02}:30:00Z"


def test_a_load_has_rows_of_fewer_partitions_than_a_statement_may_change() -> None:
    payloads = [f'{{"Id":"{n}","At":"{hour(n // 2)}","N":"{n}"}}' for n in range(10_000)]
    nulls = ['{"Id":"-1","At":null}', '{"Id":"-2"}']
    found = loads("At,hour", enveloped(change(COLUMNS, *payloads, *nulls)))
    assert [len({(line.get("At") or "")[:13] for line in lines}) for lines in found] == [MERGED_PARTITIONS, 1_101]
    assert sorted(int(line["Id"]) for lines in found for line in lines) == [-2, -1, *range(10_000)]
    first, second = ({line["Id"] for line in lines} for lines in found)
    assert first.isdisjoint(second)


@pytest.mark.parametrize(
    ("partition_by", "number"), [("At,hour", 2), ("At,day", 1), ("N,0,5000,1", 2), ("N,0,50,1", 1)]
)
def test_rows_that_do_not_name_the_column_may_be_of_one_partition_each(partition_by: str, number: int) -> None:
    """A DELETE has its key alone, and an UPDATE may have captured other columns."""
    assert len(loads(partition_by, enveloped(change(COLUMNS, *(f'{{"Id":"{n}"}}' for n in range(5_000)))))) == number


@pytest.mark.parametrize(
    ("partition_by", "partitions"), [("At", 209), ("At,month", 8), ("At,year", 1), ("N,0,5000,1", 5_000)]
)
def test_a_load_is_split_by_what_its_table_is_partitioned_by(partition_by: str, partitions: int) -> None:
    payloads = [f'{{"Id":"{n}","At":"{hour(n)}","N":"{n}"}}' for n in range(5_000)]
    found = loads(partition_by, enveloped(change(COLUMNS, *payloads)))
    assert len(found) == -(-partitions // MERGED_PARTITIONS)


def test_numbers_outside_of_the_ranges_are_of_one_partition() -> None:
    payloads = [f'{{"Id":"{n}","At":"{hour(n)}","N":"{n}"}}' for n in range(5_000)]
    assert len(loads("N,0,3000,1", enveloped(change(COLUMNS, *payloads)))) == 1
