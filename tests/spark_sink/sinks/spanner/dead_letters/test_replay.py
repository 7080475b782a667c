"""Dead letters are sent again as what their rows are in the source, so that no earlier change follows a later one."""

from pathlib import Path

import pytest

from connector.errors import VersionRetentionError
from connector.spool.consumers import sink_lock
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.completing.spanner_rows import SpannerRows
from spark_sink.sinks.shared.completing.whole_rows import Found
from spark_sink.sinks.spanner.source import applied
from spark_sink.sinks.spanner.writing.writer import MOST_CHANGES
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.dead_letters.pair import CHILD, TABLES, Pair

WITHOUT_AGE = {
    "googlesql": "CREATE TABLE People (Id INT64 NOT NULL, Name STRING(MAX)) PRIMARY KEY (Id)",
    "postgresql": 'CREATE TABLE "People" ("Id" bigint NOT NULL PRIMARY KEY, "Name" varchar)',
}
ADD_AGE = {
    "googlesql": "ALTER TABLE People ADD COLUMN Age INT64",
    "postgresql": 'ALTER TABLE "People" ADD COLUMN "Age" bigint',
}


@pytest.fixture(params=["rows", "transactions"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pair_of(database: MakeDatabase, folder: Path, *ddl: str, dialect: str = "googlesql", **sink: object) -> Pair:
    """A pair whose destination has these tables."""
    source, replica = database(dialect=dialect), database(dialect=dialect)
    source.run_ddl(*TABLES[dialect])
    if ddl:
        replica.run_ddl(*ddl)
    return Pair(source, replica, folder, sink)


@pytest.fixture
def without_age(database: MakeDatabase, dialect: str, mode: str, tmp_path: Path) -> Pair:
    """A pair whose destination lacks a column."""
    return pair_of(database, tmp_path, WITHOUT_AGE[dialect], dialect=dialect, mode=mode)


@pytest.fixture
def pair(database: MakeDatabase, mode: str, tmp_path: Path) -> Pair:
    return pair_of(database, tmp_path, *TABLES["googlesql"], mode=mode)


@pytest.mark.long(but=1)
def test_a_table_that_got_its_column_has_the_rows_of_the_source_as_of_its_last_epoch(
    without_age: Pair, dialect: str, mode: str
) -> None:
    """A DELETE was applied without the column; by rows, so were the changes before it."""
    pair = without_age
    for key in range(1, 5):
        pair.commit("INSERT", key, Name=f"n{key}", Age=key)
    pair.seal()
    pair.commit("UPDATE", 2, Name="later", Age=22)
    pair.commit("DELETE", 3)
    pair.seal()
    pair.apply()
    rejected = {"rows": 4, "transactions": 5}[mode]
    assert len(pair.replica.rejected()["People"]) == rejected
    pair.commit("UPDATE", 4, Name="not applied yet", Age=44)

    assert pair.replay() == (rejected - 4, 4, 0)
    pair.alter(ADD_AGE[dialect])
    assert pair.replay() == (4, 0, 0)
    assert pair.people() == [(1, "n1", 1), (2, "later", 22), (4, "n4", 4)]
    assert pair.replica.rejected() == {}

    pair.seal()
    pair.apply()
    assert pair.people()[-1] == (4, "not applied yet", 44)


def test_an_update_of_a_row_that_was_not_there_writes_the_whole_row(pair: Pair) -> None:
    pair.commit("INSERT", 1, is_streamed=False, Name="before the stream", Age=10)
    pair.commit("UPDATE", 1, capture="NEW_VALUES", Age=11)
    pair.seal()
    pair.apply()
    assert pair.people() == []
    assert pair.replay() == (1, 0, 0)
    assert pair.people() == [(1, "before the stream", 11)]


@pytest.mark.long(but=1)
def test_a_later_change_that_was_applied_stays(pair: Pair) -> None:
    pair.alter("CREATE UNIQUE INDEX ByName ON People (Name)")
    with pair.sample.database.batch() as batch:
        batch.insert("People", ["Id", "Name"], [[99, "taken"]])
    pair.commit("INSERT", 1, Name="taken", Age=1)
    pair.seal()
    pair.apply()
    assert len(pair.replica.rejected()["People"]) == 1
    pair.commit("UPDATE", 1, Name="free", Age=2)
    pair.seal()
    pair.apply()
    assert pair.people() == [(1, "free", 2), (99, "taken", None)]
    assert pair.replay() == (1, 0, 0)
    assert pair.people() == [(1, "free", 2), (99, "taken", None)]


@pytest.mark.long
def test_a_row_that_was_deleted_is_deleted_once_nothing_holds_it(database: MakeDatabase, tmp_path: Path) -> None:
    child = "CREATE TABLE Own (Id INT64 NOT NULL, N INT64 NOT NULL) PRIMARY KEY (Id, N), INTERLEAVE IN PARENT People"
    pair = pair_of(database, tmp_path, *TABLES["googlesql"], child)
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    with pair.sample.database.batch() as batch:
        batch.insert("Own", ["Id", "N"], [[1, 1]])
    pair.commit("DELETE", 1)
    pair.seal()
    pair.apply()
    assert pair.replay() == (0, 1, 0)
    pair.sample.database.run_in_transaction(
        lambda transaction: transaction.execute_update("DELETE FROM Own WHERE TRUE")
    )
    assert pair.replay() == (1, 0, 0)
    assert pair.people() == []


@pytest.mark.long(but=1)
def test_a_child_is_accepted_in_the_same_replay_as_its_parent(
    database: MakeDatabase, tmp_path: Path, mode: str
) -> None:
    """In the source it may come first; files are sent in the order of their changes."""
    child = (
        "CREATE TABLE Children (Id INT64 NOT NULL, Parent INT64, FOREIGN KEY (Parent) REFERENCES People (Id))"
        " PRIMARY KEY (Id)"
    )
    pair = pair_of(database, tmp_path, WITHOUT_AGE["googlesql"], child, mode=mode)
    pair.commit("INSERT", 5, "Children", columns=CHILD, Parent=1)
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    assert set(pair.replica.rejected()) == {"Children", "People"}
    pair.alter(ADD_AGE["googlesql"])
    assert pair.replay() == (2, 0, 0)
    assert pair.replica.rows("Children", "Id", "Parent") == [(5, 1)]


def test_rows_keep_the_metadata_of_their_last_change(database: MakeDatabase, tmp_path: Path) -> None:
    table = (
        "CREATE TABLE People (Id INT64 NOT NULL, Name STRING(MAX), Age INT64, source_commit_timestamp TIMESTAMP,"
        " source_change_sequence_number STRING(MAX)) PRIMARY KEY (Id)"
    )
    pair = pair_of(database, tmp_path, table, "CREATE UNIQUE INDEX ByName ON People (Name)", metadata=True)
    with pair.sample.database.batch() as batch:
        batch.insert("People", ["Id", "Name"], [[99, "taken"]])
    pair.commit("INSERT", 1, Name="taken", Age=1)
    pair.commit("INSERT", 2, Name="other", Age=2)
    pair.seal()
    pair.apply()
    pair.commit("UPDATE", 1, Name="free", Age=2)
    pair.seal()
    pair.apply()
    metadata = pair.replica.rows("People", "Id", "source_commit_timestamp", "source_change_sequence_number")
    assert pair.replay() == (1, 0, 0)
    assert pair.replica.rows("People", "Id", "source_commit_timestamp", "source_change_sequence_number") == metadata


@pytest.mark.long(but=1)
def test_they_wait_for_a_micro_batch_that_the_sink_will_repeat(pair: Pair) -> None:
    pair.alter("DROP TABLE People")
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    pair.commit("INSERT", 2, Name="b", Age=2)
    pair.seal()
    pair.replica.apply(first=2)  # it was killed before its micro-batch was recorded
    pair.alter(TABLES["googlesql"][0])
    assert pair.replay() == (1, 0, 1)
    assert pair.people() == [(1, "a", 1)]


@pytest.mark.long(but=1)
def test_they_wait_while_a_micro_batch_is_applied_in_part(
    pair: Pair, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No timestamp of the source has the state of the destination then."""
    pair.alter("DROP TABLE People")
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    pair.alter(TABLES["googlesql"][0])
    pair.commit("INSERT", 2, Name="b", Age=2)
    pair.commit("INSERT", 3, Name="c", Age=3)
    pair.seal()
    monkeypatch.setitem(MOST_CHANGES, mode, 1)
    applying = applied(pair.replica.partition(first=2))
    for _ in range({"rows": 2, "transactions": 1}[mode]):  # by rows, the position follows what is reported
        next(applying)
    del applying  # as if the process had ended
    assert pair.replay() == (0, 0, 1)
    pair.apply()
    assert pair.replay() == (1, 0, 0)
    assert pair.people() == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]


@pytest.mark.long
def test_the_command_is_refused_while_the_sink_runs_and_replays_when_it_does_not(
    database: MakeDatabase, tmp_path: Path
) -> None:
    pair = pair_of(database, tmp_path)
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    pair.alter(TABLES["googlesql"][0])
    with pair.spool.spool.storage.locked(sink_lock("spanner"), "taken"):
        done = pair.command()
    assert done.code != 0
    assert "dead letters cannot be replayed while the sink runs, or another replay does: stop it" in done.err
    done = pair.command()
    assert done.code == 0, done.err
    assert done.out == b"1 dead letter accepted, 0 rejected again\n"
    assert pair.people() == [(1, "a", 1)]


@pytest.mark.long(but=1)
def test_rows_that_the_source_no_longer_keeps_are_one_line_with_what_helps(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator keeps all."""

    def expired(*_: object) -> Found:
        raise VersionRetentionError("the version is too old")

    pair.alter("DROP TABLE People")
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    monkeypatch.setattr(SpannerRows, "rows", expired)
    with pytest.raises(SinkError, match=r"no longer keeps its rows as of .*Run the sink until it has applied"):
        pair.replay()
    assert len(pair.replica.rejected()["People"]) == 1


@pytest.mark.long(but=1)
def test_a_column_that_only_the_destination_has_and_requires_is_named_until_it_is_dropped_there(
    database: MakeDatabase, mode: str, tmp_path: Path
) -> None:
    people = TABLES["googlesql"][0].replace("Age INT64", "Age INT64, Gone STRING(MAX) NOT NULL")
    pair = pair_of(database, tmp_path, people, mode=mode)
    pair.commit("INSERT", 1, Name="a", Age=1)
    pair.seal()
    pair.apply()
    assert pair.replay() == (0, 1, 0)
    (why,) = pair.replica.rejected()["People"]
    assert why.startswith("table People of the destination requires column Gone, which the change does not have")
    pair.alter("ALTER TABLE People DROP COLUMN Gone")
    assert pair.replay() == (1, 0, 0)
    assert pair.people() == [(1, "a", 1)]
