"""Columns that the destination requires, or has with another type, where a change has no such value."""

from pathlib import Path

import pytest

from spark_sink.sinks.spanner.destination_tables import awaited_destination
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import target_of
from tests.spark_sink.sinks.spanner.dead_letters.pair import TABLES, Pair

pytestmark = pytest.mark.emulator


@pytest.mark.long(but=1)
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


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("dialect", "mode"), [("googlesql", "rows"), ("googlesql", "transactions"), ("postgresql", "rows")]
)
def test_a_column_with_a_default_that_cannot_be_null_there_is_made_nullable_only_for_rows_that_have_null(
    database: MakeDatabase, dialect: str, mode: str, tmp_path: Path
) -> None:
    source, sample = database(dialect=dialect), database(dialect=dialect)
    source.run_ddl(*TABLES[dialect])
    people = TABLES[dialect][0]
    if dialect == "postgresql":
        people = people.replace('"Age" bigint', '"Age" bigint NOT NULL DEFAULT 7, "Own" varchar NOT NULL DEFAULT \'x\'')
    else:
        own = "Age INT64 NOT NULL DEFAULT (7), Own STRING(MAX) NOT NULL DEFAULT ('x')"
        people = people.replace("Age INT64", own)
    sample.run_ddl(people, TABLES[dialect][1])
    pair = Pair(source, sample, tmp_path, {"mode": mode, "create_tables": True})
    pair.commit("INSERT", 1, Name="a", Age=None)
    pair.seal()
    pair.apply()
    assert pair.replica.rejected() == {}
    assert pair.replica.rows("People", "Id", "Age", "Own") == [(1, None, "x")]
    there = awaited_destination(target_of(sample)).tables["People"]
    assert there.not_null == {"Id", "Own"}
    if dialect == "googlesql":  # the emulator drops the default of a PostgreSQL column with NOT NULL
        with sample.database.batch() as batch:
            batch.insert("People", ("Id",), [(2,)])
        assert pair.replica.rows("People", "Id", "Age") == [(1, None), (2, 7)]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("create_tables", [True, False])
@pytest.mark.parametrize("mode", ["rows", "transactions"])
def test_a_column_with_another_type_is_named_unless_the_user_has_made_one_that_takes_the_values(
    database: MakeDatabase, mode: str, tmp_path: Path, *, create_tables: bool
) -> None:
    """Nothing in the spool shows that the source's column had that type before."""
    source, sample = database(), database()
    source.run_ddl(*TABLES["googlesql"])
    people = TABLES["googlesql"][0].replace("Name STRING(MAX), Age INT64", "Name BOOL, Age STRING(MAX)")
    sample.run_ddl(people, TABLES["googlesql"][1])
    pair = Pair(source, sample, tmp_path, {"mode": mode, "create_tables": create_tables})
    pair.commit("INSERT", 1, Age=1)
    pair.commit("INSERT", 2, Name="b")
    pair.seal()
    pair.apply()
    names = ["Age", "Name"] if create_tables else ["Name"]
    assert [why.split(" with ")[0][-5:].split()[-1] for why in pair.replica.rejected()["People"]] == names
    assert pair.people() == ([] if create_tables else [(1, None, "1")])
