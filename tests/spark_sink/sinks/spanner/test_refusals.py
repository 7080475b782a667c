"""Refusals of Spanner: which rows become dead letters, and which words of a refusal decide it."""

import pytest
from tenacity import stop_after_attempt

import spark_sink.sinks.spanner.writing.mutations
from connector.config.address import DatabaseAddress
from connector.errors import UnreachableError
from connector.spanner.blocking import BlockingClient
from spark_sink.sinks.spanner.writing import retried_calls
from spark_sink.sinks.spanner.writing.transactions import SinkTransactions
from tests.integration.servers import MakeDatabase
from tests.retried import noted_causes, still_retried
from tests.spark_sink.sinks.spanner.applying import Replica
from tests.spark_sink.sinks.spanner.changes import NAMES, change, column
from tests.spark_sink.spools import SpoolMaker


@pytest.fixture(params=["rows", "transactions"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_key_that_reads_like_a_lost_session_is_a_key(database: MakeDatabase, spool: SpoolMaker, mode: str) -> None:
    sample = database()
    sample.run_ddl("CREATE TABLE P (Path STRING(MAX) NOT NULL, V STRING(MAX)) PRIMARY KEY (Path)")
    columns = (column("Path", 1, of_key=True, kind="STRING"), column("V", 2, kind="STRING"))
    replica = Replica(sample, spool, mode=mode)
    path = {"Path": "/users/1/sessions/42"}
    spool.seal(change(1, "P", path, {"V": "x"}, "UPDATE", columns=columns, capture="NEW_VALUES"))
    replica.apply()
    assert list(replica.rejected()) == ["P"]


def test_a_value_that_reads_like_a_lost_transaction_is_a_value(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    sample = database()
    sample.run_ddl(
        "CREATE TABLE S (Id INT64 NOT NULL, V STRING(MAX)) PRIMARY KEY (Id)", "CREATE UNIQUE INDEX SByV ON S (V)"
    )
    replica = Replica(sample, spool, mode=mode)
    same = {"V": "the transaction was closed"}
    spool.seal(change(1, "S", {"Id": "1"}, same, columns=NAMES), change(2, "S", {"Id": "2"}, same, columns=NAMES))
    replica.apply()
    assert len(replica.rejected()["S"]) == 1
    assert len(replica.rows("S", "Id", "V")) == 1


def test_a_key_that_is_too_long_is_a_dead_letter_in_both_modes(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    sample = database()
    sample.run_ddl("CREATE TABLE K (Id STRING(MAX) NOT NULL, V STRING(3)) PRIMARY KEY (Id)")
    columns = (column("Id", 1, of_key=True, kind="STRING"), column("V", 2, kind="STRING"))
    replica = Replica(sample, spool, mode=mode)
    spool.seal(
        change(1, "K", {"Id": "k" * 9000}, {"V": "a"}, columns=columns),
        change(2, "K", {"Id": "k"}, {"V": "b"}, columns=columns),
    )
    replica.apply()
    assert replica.rows("K", "Id", "V") == [("k", "b")]
    assert len(replica.rejected()["K"]) == 1


@pytest.mark.long
def test_rows_of_several_commits_may_exchange_unique_values(
    database: MakeDatabase, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of them can be written before the others."""
    monkeypatch.setattr(spark_sink.sinks.spanner.writing.mutations, "CELLS", 20)
    sample = database()
    sample.run_ddl(
        "CREATE TABLE S (Id INT64 NOT NULL, V STRING(MAX)) PRIMARY KEY (Id)", "CREATE UNIQUE INDEX SByV ON S (V)"
    )
    replica = Replica(sample, spool, mode="rows")
    rows = 40
    for at in (1, 2):
        kind = "INSERT" if at == 1 else "UPDATE"
        spool.seal(
            *(
                change(at, "S", {"Id": str(n)}, {"V": f"{n if at == 1 else rows - n}"}, kind, columns=NAMES, place=n)
                for n in range(1, rows)
            )
        )
        replica.apply(first=at)
    assert [row[1] for row in replica.rows("S", "Id", "V")] == [str(rows - n) for n in range(1, rows)]
    assert replica.rejected() == {}


def test_a_transaction_that_is_done_again_names_the_database_and_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retried_calls, "stop_after_delay", lambda _: stop_after_attempt(3))
    causes = noted_causes(monkeypatch)
    nobody = "127.0.0.1:1"
    client = BlockingClient(DatabaseAddress("p", "i", "replica", None, nobody))
    with SinkTransactions(client, "", "SELECT 1", {}) as own, pytest.raises(UnreachableError):
        own.run(lambda _: ())
    where = "cannot write projects/p/instances/i/databases/replica: Spanner does not answer at 127.0.0.1:1 (UNAVAILABLE"
    assert causes
    assert all(cause.startswith(where) for cause in causes)
    assert still_retried() == []
