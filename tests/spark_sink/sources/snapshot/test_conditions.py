"""A filter that is pushed selects the same rows in Spanner as in Spark; the others are left to Spark."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from connector.config.address import DatabaseAddress
from connector.core.column_kinds import SpannerType
from connector.core.dialects import GOOGLESQL, POSTGRESQL, Dialect
from connector.core.records import ColumnType
from connector.spanner.snapshot.database import DatabaseNow
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_partition
from emulator import Emulator
from spark_sink.sources.snapshot.conditions import MOST_CHARACTERS, MOST_VALUES, Conditions, comparable
from spark_sink.sources.snapshot.options import SnapshotOptions
from tests.integration.servers import emulator
from tests.spark_sink.sources.snapshot.samples import UNUSUAL, WHEN, sample_databases

__all__ = ["emulator"]

Row = dict[str, Any]
LATER = WHEN + timedelta(microseconds=1)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
ID, INT64, TEXT, TIME, DAY, FLAG, FLOAT = (
    ("Id",), ("Int64Value",), ("StringValue",), ("TimestampValue",), ("DateValue",), ("BoolValue",), ("Float64Value",),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A filter, and whether Spark's filter is true for a row."""

    filter: Filter
    holds: Callable[[Row], bool]


def compared(of: type[Filter], column: tuple[str], value: Any, holds: Callable[[Any], bool]) -> Case:
    """A comparison, which is true for no NULL."""
    (name,) = column
    return Case(of(column, value), lambda row: row[name] is not None and holds(row[name]))  # type: ignore[call-arg]


PUSHED = [
    compared(EqualTo, ID, UNUSUAL, lambda v: v == UNUSUAL),
    compared(EqualTo, INT64, 2**62, lambda v: v == 2**62),
    compared(EqualTo, INT64, -(2**63), lambda v: v == -(2**63)),
    compared(LessThan, INT64, 0, lambda v: v < 0),
    compared(LessThanOrEqual, INT64, 0, lambda v: v <= 0),
    compared(GreaterThan, INT64, 0, lambda v: v > 0),
    compared(GreaterThanOrEqual, INT64, 0, lambda v: v >= 0),
    compared(EqualTo, FLAG, True, lambda v: v),
    compared(EqualTo, DAY, date(2024, 2, 29), lambda v: v == date(2024, 2, 29)),
    compared(GreaterThan, DAY, date(2000, 1, 1), lambda v: v > date(2000, 1, 1)),
    compared(EqualTo, TIME, WHEN, lambda v: v == WHEN),
    compared(LessThan, TIME, WHEN, lambda v: v < WHEN),
    compared(LessThanOrEqual, TIME, WHEN, lambda v: v <= WHEN),
    compared(GreaterThan, TIME, WHEN, lambda v: v > WHEN),
    compared(GreaterThanOrEqual, TIME, WHEN, lambda v: v >= WHEN),
    compared(GreaterThan, TIME, LATER, lambda v: v > LATER),
    compared(In, INT64, (0, 2**62), lambda v: v in (0, 2**62)),
    compared(In, ID, (UNUSUAL, "zzz"), lambda v: v in (UNUSUAL, "zzz")),
    Case(IsNull(INT64), lambda row: row["Int64Value"] is None),
    Case(IsNull(("Float64Array",)), lambda row: row["Float64Array"] is None),
    Case(IsNotNull(FLOAT), lambda row: row["Float64Value"] is not None),
    Case(EqualNullSafe(INT64, 0), lambda row: row["Int64Value"] == 0),
    Case(Not(EqualNullSafe(INT64, 0)), lambda row: row["Int64Value"] != 0),
    Case(Not(EqualTo(INT64, 0)), lambda row: row["Int64Value"] not in (None, 0)),
    Case(Not(LessThanOrEqual(TIME, WHEN)), lambda row: (row["TimestampValue"] or WHEN) > WHEN),
    Case(Not(In(INT64, (0, 1))), lambda row: row["Int64Value"] not in (None, 0, 1)),
]  # fmt: skip
ONLY_GOOGLESQL = [
    compared(LessThan, TEXT, "back\\slash'", lambda v: v < "back\\slash'"),
    compared(EqualTo, ID, "back\\slash", lambda v: v == "back\\slash"),
    compared(EqualTo, ("NumericValue",), Decimal("3.14"), lambda v: v == Decimal("3.14")),
    compared(LessThan, ("NumericValue",), Decimal("-0.000000001"), lambda v: v < Decimal("-0.000000001")),
]
LEFT = [
    EqualTo(FLOAT, 0.0),
    GreaterThan(FLOAT, 0.0),
    EqualTo(INT64, None),
    In(INT64, (1, None)),
    In(INT64, ()),
    EqualTo(("a", "b"), 1),
    EqualTo(("Missing",), 1),
    IsNull(("Missing",)),
    EqualTo(("Int64Array",), 1),
    EqualTo(("JsonValue",), "{}"),
    EqualTo(("BytesValue",), b""),
    EqualTo(ID, "a\0b"),
    EqualTo(TIME, datetime(2024, 1, 1)),  # noqa: DTZ001
    GreaterThan(TIME, LAST),
    Not(EqualTo(FLOAT, 0.0)),
    StringContains(ID, "a"),
]


@dataclass(frozen=True)
class Table:
    """A table with a few hundred rows, all columns of which are known."""

    options: SnapshotOptions
    dialect: Dialect
    snapshot: Snapshot
    conditions: Conditions
    rows: list[Row]

    def selected(self, condition: str) -> list[str]:
        """The keys of the rows that a condition selects."""
        query = TableQuery(self.options.table, ("Id",), condition)
        return sorted(row["Id"] for row in rows_of(self.options, self.snapshot, query, self.dialect))


def rows_of(options: SnapshotOptions, snapshot: Snapshot, query: TableQuery, dialect: Dialect) -> list[Row]:
    return [
        row
        for partition in snapshot.partitions(query, dialect)
        for block in read_partition(options.address, partition)
        for row in block.typed().to_pylist()
    ]


@pytest.fixture(scope="module", params=["googlesql", "postgresql"])
def table(request: pytest.FixtureRequest, emulator: Emulator) -> Iterator[Table]:
    for sample in sample_databases(emulator, request.param):
        options = SnapshotOptions(
            DatabaseAddress(sample.project, sample.instance, sample.database_id, emulator_host=sample.host), "AllTypes"
        )
        now = asyncio.run(DatabaseNow.of(options.address))
        with Snapshot.open(options.address, now.timestamp) as snapshot:
            query = TableQuery("AllTypes")
            columns = snapshot.columns(query, now.dialect)
            conditions = Conditions(now.dialect, {column.name: SpannerType.parse(column.type) for column in columns})
            yield Table(options, now.dialect, snapshot, conditions, rows_of(options, snapshot, query, now.dialect))


@pytest.mark.long(but=1)
@pytest.mark.emulator
def test_a_pushed_filter_selects_the_rows_that_spark_selects(table: Table) -> None:
    cases = PUSHED + (ONLY_GOOGLESQL if table.dialect is GOOGLESQL else [])
    for case in cases:
        sql = table.conditions.sql(case.filter)
        assert sql is not None, case.filter
        expected = sorted(row["Id"] for row in table.rows if case.holds(row))
        assert table.selected(sql) == expected, case.filter
        assert 0 < len(expected) < len(table.rows), case.filter


@pytest.mark.emulator
def test_several_filters_are_pushed_together(table: Table) -> None:
    both = " AND ".join(str(table.conditions.sql(one)) for one in (IsNotNull(INT64), LessThan(INT64, 0)))
    assert table.selected(both) == sorted(
        row["Id"] for row in table.rows if row["Int64Value"] is not None and row["Int64Value"] < 0
    )


@pytest.mark.parametrize("dialect", [GOOGLESQL, POSTGRESQL], ids=lambda dialect: dialect.name)
def test_what_spanner_may_decide_otherwise_is_left_to_spark(dialect: Dialect) -> None:
    kinds = {"Id": "STRING", "Int64Value": "INT64", "Float64Value": "FLOAT64", "TimestampValue": "TIMESTAMP",
             "JsonValue": "JSON", "BytesValue": "BYTES"}  # fmt: skip
    columns = {name: SpannerType.parse(f'{{"code":"{code}"}}') for name, code in kinds.items()}
    columns["Int64Array"] = SpannerType.parse('{"array_element_type":{"code":"INT64"},"code":"ARRAY"}')
    conditions = Conditions(dialect, columns)
    assert [one for one in LEFT if conditions.sql(one) is not None] == []
    in_order = LessThan(ID, "a"), EqualTo(ID, "a\\b")
    assert [conditions.sql(one) is None for one in in_order] == [dialect is POSTGRESQL] * 2


def test_conditions_of_postgresqls_oid_are_left_to_spark() -> None:
    types = {"Id": '{"code":"INT64"}', "Oid": '{"code":"INT64","type_annotation":"PG_OID"}'}
    columns = [ColumnType(name, kind, is_primary_key=False, ordinal_position=1) for name, kind in types.items()]
    conditions = Conditions(POSTGRESQL, comparable(columns))
    assert conditions.sql(EqualTo(("Id",), 5)) == "\"Id\" = CAST('5' AS bigint)"
    assert conditions.sql(EqualTo(("Oid",), 5)) is None


@pytest.mark.parametrize("dialect", [GOOGLESQL, POSTGRESQL], ids=lambda dialect: dialect.name)
def test_filters_of_more_values_or_text_than_a_statement_may_have_are_left_to_spark(dialect: Dialect) -> None:
    columns = {name: SpannerType.parse(f'{{"code":"{code}"}}') for name, code in (("N", "INT64"), ("Id", "STRING"))}
    conditions = Conditions(dialect, columns)
    few, many = In(("N",), tuple(range(MOST_VALUES - 1))), In(("N",), tuple(range(MOST_VALUES + 1)))
    one, other, long = EqualTo(("N",), 1), EqualTo(("N",), 2), EqualTo(ID, "a" * MOST_CHARACTERS)
    assert conditions.pushed([]) == ("", [])
    assert conditions.pushed([many, Not(many), long, one]) == (conditions.sql(one), [many, Not(many), long])
    assert conditions.pushed([few, one, other]) == (f"{conditions.sql(few)} AND {conditions.sql(one)}", [other])
    texts = [EqualTo(ID, letter * (MOST_CHARACTERS // 2)) for letter in "ab"]
    assert conditions.pushed(texts) == (conditions.sql(texts[0]), texts[1:])
