"""Changes applied to another database, in both modes and dialects."""

from dataclasses import replace
from typing import Any

import pytest

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from spark_sink.errors import SinkError
from spark_sink.sinks.spanner.changes import changes_of
from spark_sink.sinks.spanner.config import SpannerConfig
from spark_sink.sinks.spanner.source import applied
from spark_sink.sinks.spanner.writing.transactions import SinkTransactions
from spark_sink.sinks.spanner.writing.units import UnitPosition
from spark_sink.sinks.spanner.writing.writer import MOST_CHANGES
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import ARTISTS, Replica
from tests.spark_sink.spools import START, SpoolMaker, record

KEY = ColumnType("Id", '{"code":"INT64"}', True, 1)
NAME = ColumnType("Name", '{"code":"STRING"}', False, 2)
AGE = ColumnType("Age", '{"code":"INT64"}', False, 3)
SONG = ColumnType("Song", '{"code":"INT64"}', True, 2)
TITLE = ColumnType("Title", '{"code":"STRING"}', False, 3)
ALL = (KEY, NAME, AGE)


@pytest.fixture(params=["rows", "transactions"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def replica(database: MakeDatabase, dialect: str, mode: str, spool: SpoolMaker) -> Replica:
    sample = database(dialect=dialect)
    sample.run_ddl(*ARTISTS[dialect])
    return Replica(sample, spool, mode=mode)


def singer(at: int, key: int, mod_type: str = "INSERT", capture: str = "NEW_ROW", **values: object) -> DataChangeRecord:
    made = record(START + at * SECOND, [key], table="Artists", columns=ALL, values=values, mod_type=mod_type)
    return replace(made, value_capture_type=capture)


def song(at: int, key: int, number: int, mod_type: str = "INSERT", sequence: int = 1) -> DataChangeRecord:
    made = record(START + at * SECOND, [key], table="Songs", columns=(KEY, SONG, TITLE), mod_type=mod_type)
    new = "{}" if mod_type == "DELETE" else '{"Title":"t"}'
    return replace(
        made, mods=(Mod(f'{{"Id":"{key}","Song":"{number}"}}', new, "{}"),), record_sequence=f"{sequence:08d}"
    )


@pytest.mark.long(but=2)
def test_rows_are_inserted_updated_and_deleted(replica: Replica, spool: SpoolMaker) -> None:
    spool.seal(singer(1, 1, Name="a", Age="10"), singer(2, 2, Name="b", Age=None), singer(3, 3, Name="c", Age="30"))
    spool.seal(singer(4, 1, "UPDATE", Name="A", Age="11"), singer(5, 2, "DELETE"))
    replica.apply()
    assert replica.rows("Artists", "Id", "Name", "Age", "Upper") == [(1, "A", 11, "A"), (3, "c", 30, "C")]
    assert replica.rejected() == {}


@pytest.mark.long(but=1)
def test_an_update_that_captures_only_changes_leaves_the_other_columns(replica: Replica, spool: SpoolMaker) -> None:
    spool.seal(singer(1, 1, Name="a", Age="10"), singer(2, 2, Name="b", Age="20"))
    spool.seal(singer(3, 1, "UPDATE", "OLD_AND_NEW_VALUES", Age="11"))
    replica.apply(last=1)
    replica.apply(first=2)
    spool.seal(
        singer(4, 2, "UPDATE", "OLD_AND_NEW_VALUES", Name="B"), singer(5, 2, "UPDATE", "OLD_AND_NEW_VALUES", Age=None)
    )
    replica.apply(first=3)
    assert replica.rows("Artists", "Id", "Name", "Age") == [(1, "a", 11), (2, "B", None)]


def test_an_update_of_a_row_that_is_not_there_is_a_dead_letter(replica: Replica, spool: SpoolMaker) -> None:
    """Its reason is Spanner's, with the key; what is logged has no value."""
    spool.seal(singer(1, 1, Name="a", Age="10"), singer(2, 7, "UPDATE", "NEW_VALUES", Age="1"))
    written = replica.apply()
    assert replica.rows("Artists", "Id", "Name", "Age") == [(1, "a", 10)]
    (reasons,) = replica.rejected().values()
    assert len(reasons) == 1
    assert "NOT_FOUND" in reasons[0]
    assert [one.brief for unit in written for one in unit.rejected] == ["Spanner refuses it with NOT_FOUND"]


@pytest.mark.long(but=2)
def test_parents_are_written_first_and_children_deleted_first(replica: Replica, spool: SpoolMaker) -> None:
    """Whatever order the records of a transaction have."""
    first = replace(singer(1, 1, Name="a", Age=None), record_sequence="00000002")
    spool.seal(song(1, 1, 5, sequence=1), first)
    spool.seal(replace(singer(2, 1, "DELETE"), record_sequence="00000001"), song(2, 1, 5, "DELETE", sequence=2))
    replica.apply(last=1)
    assert replica.rows("Songs", "Id", "Song", "Title") == [(1, 5, "t")]
    replica.apply(first=2)
    assert replica.rows("Artists", "Id", "Name") == replica.rows("Songs", "Id", "Song") == []
    assert replica.rejected() == {}


@pytest.mark.long(but=2)
def test_a_unique_value_may_move_from_one_row_to_another(replica: Replica, spool: SpoolMaker) -> None:
    columns = (KEY, NAME)

    def name(at: int, key: int, value: str, mod_type: str) -> DataChangeRecord:
        made = record(
            START + at * SECOND, [key], table="Names", columns=columns, values={"Name": value}, mod_type=mod_type
        )
        return replace(made, value_capture_type="NEW_ROW")

    spool.seal(*(name(1 + key, key, f"name {key}", "INSERT") for key in range(20)))
    replica.apply()
    moves = [name(100 + key, key, f"other {key}", "UPDATE") for key in range(20)]
    moves += [name(200 + key, key, f"name {(key + 1) % 20}", "UPDATE") for key in range(20)]
    spool.seal(*moves)
    replica.apply(first=2)
    assert replica.rows("Names", "Id", "Name") == [(key, f"name {(key + 1) % 20}") for key in range(20)]
    assert replica.rejected() == {}


@pytest.mark.long(but=1)
def test_a_repeated_micro_batch_changes_nothing(replica: Replica, spool: SpoolMaker) -> None:
    spool.seal(singer(1, 1, Name="a", Age="10"))
    spool.seal(singer(2, 1, "DELETE"))
    spool.seal(singer(3, 1, Name="b", Age="20"))
    replica.apply(last=2)
    assert replica.apply(last=2) == []
    replica.apply(first=3)
    assert replica.apply(first=2) == []
    assert replica.rows("Artists", "Id", "Name", "Age") == [(1, "b", 20)]


def test_a_table_that_is_not_there_is_stopped_and_the_others_continue(replica: Replica, spool: SpoolMaker) -> None:
    spool.seal(singer(1, 1, Name="a", Age="10"), record(START + 2 * SECOND, [5], table="Other"))
    written = replica.apply()
    assert replica.rows("Artists", "Id", "Name", "Age") == [(1, "a", 10)]
    assert [one.stopped for one in written if one.stopped] == [{"Other": "the destination has no table Other"}]
    assert list(replica.rejected()) == ["Other"]


@pytest.mark.long(but=2)
def test_a_process_that_another_one_took_over_from_cannot_commit(
    replica: Replica, spool: SpoolMaker, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_CHANGES, mode, 1)
    spool.seal(*(singer(number, number, Name="a", Age=None) for number in range(1, 5)))
    first = applied(replica.partition())
    next(first)
    replica.apply()
    before = replica.rows("Artists", "Id", "Name")
    with pytest.raises(SinkError, match="another process applies the spool"):
        list(first)
    assert replica.rows("Artists", "Id", "Name") == before == [(number, "a") for number in range(1, 5)]


@pytest.mark.long(but=2)
def test_a_destination_that_was_restored_is_not_continued(replica: Replica, spool: SpoolMaker) -> None:
    for number in range(1, 5):
        spool.seal(singer(number, number, Name="a", Age=None))
    replica.apply(last=2)
    with pytest.raises(SpoolError, match=r"has the changes of the epochs before 3 .* continues with epoch 4"):
        replica.apply(first=4)


def test_tables_and_columns_may_have_other_names(database: MakeDatabase, dialect: str, spool: SpoolMaker) -> None:
    sample = database(dialect=dialect)
    sample.run_ddl(*ARTISTS[dialect])
    mapped = {"tables": {"Names": "Artists"}, "columns": {"Names.Label": "Name"}}
    replica = Replica(sample, spool, **mapped)
    columns = (KEY, ColumnType("Label", '{"code":"STRING"}', False, 2))
    spool.seal(record(START, [1, 2], table="Names", columns=columns, values={"Label": "x"}))
    spool.seal(record(START + SECOND, [1], table="Names", columns=columns, values={"Label": "x"}, mod_type="DELETE"))
    replica.apply()
    assert replica.rows("Artists", "Id", "Name") == [(2, "x")]


def test_two_columns_of_the_source_never_become_one(database: MakeDatabase, spool: SpoolMaker, mode: str) -> None:
    """The source has got a column of that name since, and changes have one of them or both."""
    sample = database()
    sample.run_ddl("CREATE TABLE Vocalists (Id INT64, FullName STRING(MAX)) PRIMARY KEY (Id)")
    with sample.database.batch() as batch:
        batch.insert("Vocalists", ("Id", "FullName"), [(1, "a"), (2, "b")])
    replica = Replica(sample, spool, mode=mode, columns={"Vocalists.Name": "FullName"})
    columns = (KEY, NAME, ColumnType("FullName", '{"code":"STRING"}', False, 3))

    def named(at: int, key: int, **values: object) -> DataChangeRecord:
        made = record(START + at * SECOND, [key], table="Vocalists", columns=columns, values=values, mod_type="UPDATE")
        return replace(made, value_capture_type="NEW_VALUES")

    spool.seal(named(1, 1, Name="x", FullName="y"), named(2, 2, Name="z"), named(3, 2, FullName="z"))
    replica.apply()
    assert replica.rows("Vocalists", "Id", "FullName") == [(1, "a"), (2, "b")]
    why = "column FullName of table Vocalists of the destination would have the values of FullName and of Name"
    (reasons,) = replica.rejected().values()
    assert len(reasons) == 3
    assert all(why in reason for reason in reasons)


def test_options_that_give_two_columns_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"several columns would be x of Singers: one column cannot have the values"):
        SpannerConfig.model_validate({"database": "d", "columns": {"Singers.A": "X", "Singers.B": "x"}})
    again = {"Singers.Name": "FullName", "singers.name": "FullName"}
    assert SpannerConfig.model_validate({"database": "d", "columns": again}).columns == again, "created again"


def test_rows_have_their_commit_timestamp_and_sequence_number_by_option(
    database: MakeDatabase, spool: SpoolMaker
) -> None:
    sample = database()
    added = "source_commit_timestamp TIMESTAMP, source_change_sequence_number STRING(MAX)"
    sample.run_ddl(f"CREATE TABLE Marked (Id INT64, Name STRING(MAX), {added}) PRIMARY KEY (Id)")
    replica = Replica(sample, spool, metadata=True)
    spool.seal(record(START, [1], table="Marked"))
    replica.apply()
    ((_, timestamp, number),) = replica.rows("Marked", "Id", "source_commit_timestamp", "source_change_sequence_number")
    assert timestamp.isoformat() == "2026-03-01T10:00:00+00:00"  # type: ignore[attr-defined]
    (change,) = changes_of(spool.spool, replica.partition().manifests, UnitPosition(0, 0))
    assert number == change.sequence


def test_a_table_that_has_columns_for_the_three_sort_keys_has_them_written(
    database: MakeDatabase, spool: SpoolMaker
) -> None:
    sample = database()
    added = "source_commit_timestamp TIMESTAMP, source_change_sequence_number STRING(MAX)"
    added += ", source_record_sequence STRING(MAX), source_mod_index INT64"
    sample.run_ddl(f"CREATE TABLE Sorted (Id INT64, Name STRING(MAX), {added}) PRIMARY KEY (Id)")
    replica = Replica(sample, spool, metadata=True)
    spool.seal(record(START, [1, 2], sequence=7, table="Sorted"))
    replica.apply()
    found = replica.rows("Sorted", "Id", "source_record_sequence", "source_mod_index")
    assert found == [(1, "00000007", 0), (2, "00000007", 1)]


def test_a_transaction_that_cannot_be_applied_is_whole_among_the_dead_letters(
    database: MakeDatabase, spool: SpoolMaker
) -> None:
    sample = database()
    sample.run_ddl(*ARTISTS["googlesql"])
    replica = Replica(sample, spool, mode="transactions")
    good, bad = singer(2, 2, Name="b", Age=None), singer(2, 3, Name=None, Age=None)
    bad = replace(bad, server_transaction_id=good.server_transaction_id, record_sequence="00000001")
    spool.seal(singer(1, 1, Name="a", Age=None), good, bad, singer(3, 4, Name="d", Age=None))
    replica.apply()
    assert replica.rows("Artists", "Id", "Name") == [(1, "a"), (4, "d")]
    assert [len(reasons) for reasons in replica.rejected().values()] == [2]


@pytest.mark.long(but=2)
def test_every_transaction_has_the_tag_by_which_a_stream_back_skips_it(
    replica: Replica, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator's change streams leave it out, so the calls are looked at."""
    sent: list[str] = []
    call = SinkTransactions._call

    def recorded(self: SinkTransactions, method: str, resource: str, request: Any, *args: Any, **named: Any) -> bytes:
        if method.endswith(("/Commit", "/ExecuteSql")):
            sent.append(request.request_options.transaction_tag)
        return call(self, method, resource, request, *args, **named)

    monkeypatch.setattr(SinkTransactions, "_call", recorded)
    spool.seal(singer(1, 1, Name="a", Age="10"))
    replica.apply()
    assert set(sent) == {"spanner-cdc"}
    assert len(sent) >= 4


@pytest.mark.long(but=2)
def test_changes_of_the_bookkeeping_table_are_not_applied(replica: Replica, spool: SpoolMaker) -> None:
    """A stream of the destination that watches all tables reports them."""
    spool.seal(record(START, [1], table="spanner_cdc_progress"), singer(1, 1, Name="a", Age=None))
    replica.apply()
    assert replica.rows("Artists", "Id", "Name") == [(1, "a")]
    assert replica.rejected() == {}


def test_a_table_without_a_key_has_its_row(database: MakeDatabase, spool: SpoolMaker) -> None:
    sample = database()
    sample.run_ddl("CREATE TABLE Setting (Value STRING(MAX)) PRIMARY KEY ()")
    replica = Replica(sample, spool)
    column = ColumnType("Value", '{"code":"STRING"}', False, 1)

    def setting(at: int, value: str | None, mod_type: str) -> DataChangeRecord:
        made = record(START + at * SECOND, [0], table="Setting", columns=(column,), mod_type=mod_type)
        new = "{}" if value is None else f'{{"Value":"{value}"}}'
        return replace(made, value_capture_type="NEW_ROW", mods=(Mod("{}", new, "{}"),))

    spool.seal(setting(1, "a", "INSERT"))
    spool.seal(setting(2, "b", "UPDATE"))
    replica.apply()
    with sample.database.snapshot() as snapshot:
        assert list(snapshot.execute_sql("SELECT Value FROM Setting")) == [["b"]]
    spool.seal(setting(3, None, "DELETE"))
    replica.apply(first=3)
    with sample.database.snapshot() as snapshot:
        assert list(snapshot.execute_sql("SELECT Value FROM Setting")) == []
