"""Creation of tables and columns in the destination, from the source's DDL."""

from collections.abc import Mapping
from typing import Any

import pytest

from connector.config.address import DatabaseAddress
from connector.config.sections import SourceConfig
from connector.config.sinks import WatchedStream
from connector.core.dialects import GOOGLESQL, POSTGRESQL
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from emulator import SampleDatabase
from spark_sink.errors import SinkError
from spark_sink.sinks.spanner import creation as creating_module
from spark_sink.sinks.spanner.config import SpannerConfig
from spark_sink.sinks.spanner.creation import (
    Creation,
    altering,
    create_missing,
    creating,
    make_nullable,
    prepare,
    relaxing,
)
from spark_sink.sinks.spanner.destination_tables import awaited_destination
from spark_sink.sinks.spanner.sink_type import SpannerSink
from spark_sink.sinks.spanner.writing.planning import METADATA, METADATA_TYPES, MOD_INDEX
from spark_sink.sinks.spanner.writing.progress import IDENTITY, TABLE, VIEW
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import ARTISTS, Replica, target_of
from tests.spark_sink.sinks.spanner.changes import change, column
from tests.spark_sink.spools import SpoolMaker


def columns_of(sample: SampleDatabase, table: str) -> list[str]:
    with sample.database.snapshot() as snapshot:
        found = snapshot.execute_sql(
            f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' ORDER BY ordinal_position"
        )
        return [name for (name,) in found]


def errors_of(source: SampleDatabase, sink: dict[str, Any], tables: Mapping[str, tuple[ColumnType, ...]]) -> list[str]:
    """The errors that ``check`` reports of a destination."""
    names = {"project": source.project, "instance": source.instance, "database": source.database_id}
    of_source = SourceConfig.model_validate({**names, "change_stream": "S", "emulator_host": source.host})
    watched = [
        TableSchema.of(name, columns, [column.name for column in columns if column.is_primary_key])
        for name, columns in tables.items()
    ]
    stream = WatchedStream("S", "NEW_ROW", source.dialect, "", tuple(watched))
    return SpannerSink(SpannerConfig).destination_errors(SpannerConfig.model_validate(sink), of_source, stream)


def test_tables_are_created_without_policies_that_delete_old_rows() -> None:
    """Otherwise the destination would delete a row that the source has written again."""
    policy = ", ROW DELETION POLICY (OLDER_THAN(At, INTERVAL 30 DAY))"
    googlesql = f"CREATE TABLE T (\n  Id INT64,\n  At TIMESTAMP,\n) PRIMARY KEY(Id){policy}"
    postgresql = "CREATE TABLE \"P\" (id bigint PRIMARY KEY, at timestamptz) TTL INTERVAL '30 days' ON at"
    assert creating([googlesql, postgresql], {"T", "P"}, []) == {
        "T": ["CREATE TABLE T (\n  Id INT64,\n  At TIMESTAMP,\n) PRIMARY KEY(Id)"],
        "P": ['CREATE TABLE "P" (id bigint PRIMARY KEY, at timestamptz)'],
    }


def test_foreign_keys_follow_once_their_tables_are_there_and_others_are_left_out() -> None:
    """None deletes rows, because the stream reports them, and a row may refer to another one by then."""
    first = (
        "CREATE TABLE A (\n  Id INT64,\n  B INT64,\n  X INT64,\n  CONSTRAINT FK_B FOREIGN KEY(B) REFERENCES s.B(Id)"
        " ON DELETE CASCADE,\n  FOREIGN KEY(X) REFERENCES Unwatched(Id),\n) PRIMARY KEY(Id)"
    )
    second = 'CREATE TABLE s.B (Id INT64, CONSTRAINT c FOREIGN KEY (Id) REFERENCES "There"("Id")) PRIMARY KEY(Id)'
    found = creating([first, "CREATE SCHEMA s", second], {"A", "s.B"}, ['CREATE TABLE "There" ("Id" bigint)'])
    assert found == {
        "SCHEMA: s": ["CREATE SCHEMA s"],
        "A": ["CREATE TABLE A (\n  Id INT64,\n  B INT64,\n  X INT64,\n) PRIMARY KEY(Id)"],
        "s.B": ["CREATE TABLE s.B (Id INT64) PRIMARY KEY(Id)"],
        "A: CONSTRAINT FK_B FOREIGN KEY(B) REFERENCES s.B(Id)": [
            "ALTER TABLE A ADD CONSTRAINT FK_B FOREIGN KEY(B) REFERENCES s.B(Id)"
        ],
        's.B: CONSTRAINT c FOREIGN KEY (Id) REFERENCES "There"("Id")': [
            'ALTER TABLE s.B ADD CONSTRAINT c FOREIGN KEY (Id) REFERENCES "There"("Id")'
        ],
    }


@pytest.mark.parametrize("names", [("A", "B", "Z"), ("Z", "A", "B"), ("A", "Z", "B")])
def test_a_refused_table_keeps_no_foreign_key_of_others_from_being_made_and_only_it_is_named(
    database: MakeDatabase, names: tuple[str, str, str], caplog: pytest.LogCaptureFixture
) -> None:
    source, replica = database(), database()
    one, other, third = names
    source.run_ddl(
        f"CREATE TABLE {one} (Id INT64, Other INT64) PRIMARY KEY (Id)",
        f"CREATE TABLE {other} (Id INT64, Other INT64, FOREIGN KEY (Other) REFERENCES {one} (Id)) PRIMARY KEY (Id)",
        f"CREATE TABLE {third} (Id INT64) PRIMARY KEY (Id)",
        f"ALTER TABLE {one} ADD CONSTRAINT Back FOREIGN KEY (Other) REFERENCES {other} (Id)",
    )
    replica.run_ddl(
        "CREATE TABLE Taken (Id INT64) PRIMARY KEY (Id)", "CREATE INDEX Z ON Taken (Id)"
    )  # Spanner's names of tables and indexes are one
    tables = {name: {"Id"} for name in names}
    with caplog.at_level("WARNING"):
        assert create_missing(tables, target_of(source), target_of(replica)) == sorted({*names} - {"Z"})
    refused = 1 if third == "Z" else 3  # the table, and the foreign keys from it and to it
    assert len(caplog.records) == refused, [record.__dict__ for record in caplog.records]
    relations = awaited_destination(target_of(replica)).relations
    assert relations.references == {
        name: frozenset({to}) for name, to in ((one, other), (other, one)) if "Z" not in (name, to)
    }


def test_nothing_is_interleaved_in_a_table_that_has_a_former_key_in_the_destination(
    database: MakeDatabase, dialect: str
) -> None:
    """It is to be dropped there, with the rows of what is interleaved in it."""
    source, replica = database(dialect=dialect), database(dialect=dialect)
    if dialect == "googlesql":
        former = "CREATE TABLE p (a INT64) PRIMARY KEY (a)"
        newest = "CREATE TABLE p (a INT64, b INT64) PRIMARY KEY (a, b)"
        child = "CREATE TABLE c (a INT64, b INT64, d INT64) PRIMARY KEY (a, b, d), INTERLEAVE IN PARENT p"
    else:
        former = "CREATE TABLE p (a bigint PRIMARY KEY)"
        newest = "CREATE TABLE p (a bigint, b bigint, PRIMARY KEY (a, b))"
        child = "CREATE TABLE c (a bigint, b bigint, d bigint, PRIMARY KEY (a, b, d)) INTERLEAVE IN PARENT p"
    source.run_ddl(newest, child)
    replica.run_ddl(former)
    tables: dict[str, set[str]] = {"p": {"a"}, "c": {"a"}}
    assert create_missing(tables, target_of(source), target_of(replica)) == []
    replica.run_ddl("DROP TABLE p")
    assert create_missing(tables, target_of(source), target_of(replica)) == ["c", "p"]


def test_what_was_created_again_in_another_spelling_is_not_created_and_gets_what_it_lacks(
    database: MakeDatabase,
) -> None:
    source, replica = database(), database()
    source.run_ddl("CREATE TABLE parts (id INT64 NOT NULL, name STRING(MAX), size INT64) PRIMARY KEY (id)")
    replica.run_ddl("CREATE TABLE Parts (Id INT64 NOT NULL, Name STRING(MAX) NOT NULL) PRIMARY KEY (Id)")
    tables = {"parts": {"id", "name", "size"}}
    assert create_missing(tables, target_of(source), target_of(replica)) == ["Parts.size"]
    make_nullable({"parts": {"Name"}}, target_of(replica))
    assert columns_of(replica, "Parts") == ["Id", "Name", "size"]
    assert "Name" not in awaited_destination(target_of(replica)).tables["Parts"].required


def test_a_table_whose_parent_the_sink_does_not_create_is_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent has another name there, or is excluded: an empty one would reject every row of the child."""
    source = [
        "CREATE TABLE Singers (Id INT64) PRIMARY KEY (Id)",
        "CREATE TABLE Albums (Id INT64, A INT64) PRIMARY KEY (Id, A), INTERLEAVE IN PARENT Singers",
        "CREATE TABLE Songs (Id INT64, A INT64, S INT64) PRIMARY KEY (Id, A, S), INTERLEAVE IN PARENT Albums",
    ]
    address = DatabaseAddress("p", "i", "d", None, None)
    renamed, excluded = Creation(address, (), (), ("Singers",)), Creation(address, (), ("Singers",), ())
    for creation in (renamed, excluded):
        monkeypatch.setattr(creating_module, "_WARNED", set())
        with caplog.at_level("WARNING"):
            assert creating(source, ["Albums", "Songs"], [], (), creation.creates) == {}
            assert creating(source, ["Songs"], [], (), creation.creates) == {}
        assert len(caplog.records) == 2, "each once"
        caplog.clear()
        assert [*creating(source, ["Songs"], source[:1], (), creation.creates)] == ["Albums", "Songs"]
    assert [*creating(source, ["Songs"], [], (), Creation(address, (), (), ()).creates)] == [
        "Singers",
        "Albums",
        "Songs",
    ]


def test_a_table_whose_rows_need_no_parent_is_created_with_an_empty_one() -> None:
    source = [
        "CREATE TABLE Singers (Id INT64) PRIMARY KEY (Id)",
        "CREATE TABLE Albums (Id INT64, A INT64) PRIMARY KEY (Id, A), INTERLEAVE IN Singers",
    ]
    renamed = Creation(DatabaseAddress("p", "i", "d", None, None), (), (), ("singers",))
    assert [*creating(source, ["Albums"], [], (), renamed.creates)] == ["Singers", "Albums"]


def test_columns_are_added_with_the_types_of_the_source() -> None:
    types = {("s.T", "New"): "STRING(MAX)"}
    columns = {"s.T": {"New", "Gone"}}
    assert altering("ADD COLUMN", types, columns, GOOGLESQL) == {
        "s.T.New": ["ALTER TABLE `s`.`T` ADD COLUMN `New` STRING(MAX)"]
    }
    assert altering("ADD COLUMN", types, columns, POSTGRESQL) == {
        "s.T.New": ['ALTER TABLE "s"."T" ADD COLUMN "New" STRING(MAX)']
    }


def test_columns_are_made_nullable_with_the_types_that_they_have() -> None:
    types = {("s.T", "A"): "STRING(MAX)"}
    columns = {"s.T": {"A", "Gone"}}
    assert relaxing(types, columns, GOOGLESQL) == {"s.T.A": ["ALTER TABLE `s`.`T` ALTER COLUMN `A` STRING(MAX)"]}
    assert relaxing(types, columns, POSTGRESQL) == {"s.T.A": ['ALTER TABLE "s"."T" ALTER COLUMN "A" DROP NOT NULL']}


@pytest.mark.long(but=1)
def test_tables_that_refer_to_each_other_and_to_sequences_are_created_and_widened(
    database: MakeDatabase, dialect: str
) -> None:
    source, replica = database(dialect=dialect), database(dialect=dialect)
    if dialect == "googlesql":
        source.run_ddl(
            "CREATE SEQUENCE Numbers OPTIONS (sequence_kind = 'bit_reversed_positive')",
            "CREATE TABLE X (Id INT64 NOT NULL DEFAULT (GET_NEXT_SEQUENCE_VALUE(SEQUENCE Numbers)), Y INT64)"
            " PRIMARY KEY (Id)",
            "CREATE TABLE Y (Id INT64, X INT64, Old INT64, FOREIGN KEY (X) REFERENCES X (Id)) PRIMARY KEY (Id)",
            "ALTER TABLE X ADD FOREIGN KEY (Y) REFERENCES Y (Id)",
        )
        tables, added = (
            {"X": {"Id", "Y"}, "Y": {"Id", "X", "Old"}, "Gone": {"Id"}},
            "ALTER TABLE Y ADD COLUMN Added DATE",
        )
    else:
        source.run_ddl(
            "CREATE TABLE x (id bigint PRIMARY KEY, y bigint)",
            "CREATE TABLE y (id bigint PRIMARY KEY, x bigint, old bigint, FOREIGN KEY (x) REFERENCES x (id))",
            "ALTER TABLE x ADD FOREIGN KEY (y) REFERENCES y (id)",
        )
        tables, added = (
            {"x": {"id", "y"}, "y": {"id", "x", "old"}, "gone": {"id"}},
            "ALTER TABLE y ADD COLUMN added date",
        )
    _, second, gone = tables
    addresses = target_of(source), target_of(replica)
    assert create_missing(tables, *addresses) == sorted({*tables} - {gone})
    assert create_missing(tables, *addresses) == []
    source.run_ddl(added)
    new = added.split()[5]
    tables[second] |= {new}
    assert create_missing(tables, *addresses) == [f"{second}.{new}"]
    assert new in columns_of(replica, second)


@pytest.mark.long(but=1)
def test_tables_are_created_and_widened_with_the_columns_of_metadata(
    database: MakeDatabase, spool: SpoolMaker, dialect: str
) -> None:
    """The rows were dead letters: the destination had no column source_change_sequence_number."""
    source, replica = database(dialect=dialect), database(dialect=dialect)
    source.run_ddl(*ARTISTS[dialect])
    old = ARTISTS[dialect][2]
    replica.run_ddl(old)
    sink = {"database": replica.database_id, "create_tables": True, "metadata": True}
    columns = (column("Id", 1, of_key=True), column("Name", 2, kind="STRING"))
    songs = (column("Id", 1, of_key=True), column("Song", 2, of_key=True))
    assert errors_of(source, sink, {"Artists": columns, "Songs": songs, "Names": columns}) == []
    spool.seal(
        change(1, "Artists", {"Id": "1"}, {"Name": "a"}, columns=columns),
        change(1, "Songs", {"Id": "1", "Song": "1"}, {}, columns=songs, place=1),
        change(1, "Names", {"Id": "1"}, {"Name": "n"}, columns=columns, place=2),
    )
    applied = Replica(replica, spool, source, **sink)
    tables = {"Artists": {"Id", "Name"}, "Songs": {"Id", "Song"}, "Names": {"Id", "Name"}}
    create_missing(tables, target_of(source), target_of(replica), with_metadata=True)
    assert create_missing(tables, target_of(source), target_of(replica), with_metadata=True) == []
    applied.apply()
    assert applied.rejected() == {}
    assert {*columns_of(replica, "Songs")} >= {*METADATA_TYPES[dialect]}
    assert {*METADATA_TYPES[dialect]} & {*columns_of(replica, "Names")} == {*METADATA}, "what a table must have"
    assert applied.rows("Artists", "Id", "Name", MOD_INDEX) == [(1, "a", 0)]


def test_a_table_with_another_name_needs_the_columns_of_metadata(database: MakeDatabase) -> None:
    source, replica = database(), database()
    source.run_ddl("CREATE TABLE T (Id INT64, V INT64) PRIMARY KEY (Id)")
    replica.run_ddl("CREATE TABLE Other (Id INT64, V INT64) PRIMARY KEY (Id)")
    sink = {"database": replica.database_id, "create_tables": True, "metadata": True, "tables": {"T": "Other"}}
    (error,) = errors_of(source, sink, {"T": (column("Id", 1, of_key=True), column("V", 2))})
    assert error.startswith("sink.database: table Other of the destination has no column source_change_sequence_number")


def test_the_bookkeeping_table_of_an_older_version_is_widened_and_gets_its_view(
    database: MakeDatabase, dialect: str
) -> None:
    replica = database(dialect=dialect)
    prepare(target_of(replica))
    added = (IDENTITY, "complete_up_to", "complete_up_to_text", "cut", "incomplete")
    replica.run_ddl(f"DROP VIEW {VIEW}", *(f"ALTER TABLE {TABLE} DROP COLUMN {column}" for column in added))
    prepare(target_of(replica))
    assert {*columns_of(replica, TABLE)} >= {*added}
    with replica.database.snapshot() as snapshot:
        assert list(snapshot.execute_sql(f"SELECT epoch, complete_up_to FROM {VIEW}")) == []


def test_a_view_of_progress_that_is_missing_is_created_at_the_next_start(database: MakeDatabase, dialect: str) -> None:
    replica = database(dialect=dialect)
    prepare(target_of(replica))
    replica.run_ddl(f"DROP VIEW {VIEW}")
    prepare(target_of(replica))
    with replica.database.snapshot() as snapshot:
        assert list(snapshot.execute_sql(f"SELECT epoch, complete_up_to FROM {VIEW}")) == []


def test_a_view_of_progress_that_is_refused_stops_the_start(database: MakeDatabase) -> None:
    """It was swallowed: the table was there, and no later start looked for the view."""
    replica = database()
    replica.run_ddl(f"CREATE TABLE {VIEW} (Id INT64) PRIMARY KEY (Id)")
    for _ in range(2):
        with pytest.raises(SinkError, match="refuses a change of its tables"):
            prepare(target_of(replica))
    replica.run_ddl(f"DROP TABLE {VIEW}")
    prepare(target_of(replica))
    assert VIEW in awaited_destination(target_of(replica)).views
