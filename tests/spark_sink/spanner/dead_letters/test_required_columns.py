"""Columns that the destination requires, and changes have no value for, where the sink may create tables."""

from pathlib import Path

import pytest

from tests.integration.servers import MakeDatabase
from tests.spark_sink.spanner.dead_letters.pair import TABLES, Pair

pytestmark = pytest.mark.emulator


@pytest.mark.parametrize(
    ("dialect", "mode"), [("googlesql", "rows"), ("googlesql", "transactions"), ("postgresql", "rows")]
)
def test_rows_are_there_though_the_destination_requires_what_the_source_has_dropped_or_set_to_null(
    database: MakeDatabase, dialect: str, mode: str, tmp_path: Path
) -> None:
    source, sample = database(dialect=dialect), database(dialect=dialect)
    source.run_ddl(*TABLES[dialect])
    people = TABLES[dialect][0]
    if dialect == "postgresql":
        gone = people.replace('"Age" bigint', '"Age" bigint NOT NULL, "Gone" varchar NOT NULL')
    else:
        gone = people.replace("Age INT64", "Age INT64 NOT NULL, Gone STRING(MAX) NOT NULL")
    sample.run_ddl(gone, TABLES[dialect][1])
    pair = Pair(source, sample, tmp_path, {"mode": mode, "create_tables": True})
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.commit("INSERT", 2, Name="b", Age=2)
    pair.commit("UPDATE", 2, capture="NEW_VALUES", Age=None)
    pair.seal()
    pair.apply()
    assert pair.replica.rejected() == {}
    assert pair.people() == [(1, "a", 1), (2, "b", None)]
