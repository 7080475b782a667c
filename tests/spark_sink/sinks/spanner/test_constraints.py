"""Changes of tables whose rows depend on each other: foreign keys, interleaving, unique and generated columns."""

from dataclasses import replace
from typing import Any

import pytest
from google.cloud.spanner_v1.keyset import KeySet

from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND
from connector.errors import SpoolError
from connector.spool.consumers import record as record_consumer
from spark_sink.sinks.spanner.writing.transactions import SinkTransactions
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.applying import Replica
from tests.spark_sink.spools import START, SpoolMaker, record

CUSTOMERS = "CREATE TABLE Customers (Id INT64 NOT NULL, Name STRING(MAX)) PRIMARY KEY (Id)"
ORDERS = (
    "CREATE TABLE Orders (Id INT64 NOT NULL, CustomerId INT64, FOREIGN KEY (CustomerId) REFERENCES Customers (Id){})"
    " PRIMARY KEY (Id)"
)
ITEMS = (
    "CREATE TABLE Items (Id INT64 NOT NULL, Item INT64 NOT NULL) PRIMARY KEY (Id, Item),"
    " INTERLEAVE IN PARENT Orders ON DELETE CASCADE"
)


@pytest.fixture(params=["rows", "transactions"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def column(name: str, place: int, *, of_key: bool = False, kind: str = "INT64") -> ColumnType:
    return ColumnType(name, f'{{"code":"{kind}"}}', of_key, place)


COLUMNS = {
    "Customers": (column("Id", 1, of_key=True), column("Name", 2, kind="STRING")),
    "Orders": (column("Id", 1, of_key=True), column("CustomerId", 2)),
    "Items": (column("Id", 1, of_key=True), column("Item", 2, of_key=True)),
}


def change(
    at: int, table: str, keys: str, values: str = "{}", mod_type: str = "INSERT", place: int = 0, **more: Any
) -> DataChangeRecord:
    """A change of a transaction at a second, at a place in it."""
    made = record(
        START + at * SECOND,
        table=table,
        columns=COLUMNS.get(table, ()),
        mod_type=mod_type,
        sequence=place,
        transaction=f"t{at}",
    )
    return replace(made, value_capture_type="NEW_ROW", mods=(Mod(keys, values, "{}"),), **more)


def shop(database: MakeDatabase, spool: SpoolMaker, mode: str, on_delete: str = "") -> Replica:
    sample = database()
    sample.run_ddl(CUSTOMERS, ORDERS.format(on_delete), ITEMS)
    replica = Replica(sample, spool, mode=mode)
    spool.seal(
        change(1, "Customers", '{"Id":"1"}', '{"Name":"a"}'),
        change(2, "Customers", '{"Id":"2"}', '{"Name":"b"}'),
        change(3, "Orders", '{"Id":"5"}', '{"CustomerId":"1"}'),
        change(4, "Items", '{"Id":"5","Item":"1"}'),
    )
    replica.apply()
    return replica


def test_a_row_that_is_written_again_stays_though_it_could_not_be_deleted_first(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    """While the sink wants to delete it, another row refers to it."""
    replica = shop(database, spool, mode)
    spool.seal(
        change(10, "Orders", '{"Id":"5"}', '{"CustomerId":"2"}', "UPDATE"),
        change(10, "Customers", '{"Id":"1"}', "{}", "DELETE", place=1),
        change(11, "Customers", '{"Id":"1"}', '{"Name":"again"}'),
    )
    replica.apply(first=2)
    assert replica.rows("Customers", "Id", "Name") == [(1, "again"), (2, "b")]
    assert replica.rows("Orders", "Id", "CustomerId") == [(5, 2)]
    assert replica.rejected() == {}


def test_a_row_that_refers_to_another_one_now_is_not_deleted_with_the_old_one(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    replica = shop(database, spool, mode, on_delete=" ON DELETE CASCADE")
    spool.seal(
        change(10, "Orders", '{"Id":"5"}', '{"CustomerId":"2"}', "UPDATE"),
        change(10, "Customers", '{"Id":"1"}', "{}", "DELETE", place=1),
    )
    replica.apply(first=2)
    assert replica.rows("Customers", "Id", "Name") == [(2, "b")]
    assert replica.rows("Orders", "Id", "CustomerId") == [(5, 2)]
    assert replica.rows("Items", "Id", "Item") == [(5, 1)]
    spool.seal(
        change(20, "Orders", '{"Id":"5"}', '{"CustomerId":"1"}', "UPDATE", place=1),
        change(20, "Customers", '{"Id":"1"}', '{"Name":"again"}'),
        change(21, "Customers", '{"Id":"2"}', "{}", "DELETE"),
        change(22, "Customers", '{"Id":"2"}', '{"Name":"again"}'),
    )
    replica.apply(first=3)
    assert replica.rows("Customers", "Id", "Name") == [(1, "again"), (2, "again")]
    assert replica.rows("Items", "Id", "Item") == [(5, 1)]
    assert replica.rejected() == {}


def test_a_row_that_had_to_wait_for_a_unique_value_is_not_deleted_with_the_one_that_it_referred_to(
    database: MakeDatabase, spool: SpoolMaker
) -> None:
    replica = shop(database, spool, "rows", on_delete=" ON DELETE CASCADE")
    replica.sample.run_ddl(
        "ALTER TABLE Orders ADD COLUMN Number INT64", "CREATE UNIQUE NULL_FILTERED INDEX Numbers ON Orders (Number)"
    )
    orders = (*COLUMNS["Orders"], column("Number", 3))

    def order(key: int, number: int, mod_type: str, place: int = 0) -> DataChangeRecord:
        values = f'{{"CustomerId":"2","Number":"{number}"}}'
        at = 10 if mod_type == "INSERT" else 20
        return change(at, "Orders", f'{{"Id":"{key}"}}', values, mod_type, place, column_types=orders)

    spool.seal(order(6, 11, "INSERT"))
    replica.apply(first=2)
    missing = replace(order(7, 13, "UPDATE", place=2), value_capture_type="NEW_VALUES")
    spool.seal(
        order(5, 11, "UPDATE"),
        order(6, 12, "UPDATE", place=1),
        missing,  # so that the commit is divided, and the first row is rejected until the second one is written
        change(20, "Customers", '{"Id":"1"}', "{}", "DELETE", place=3),
    )
    replica.apply(first=3)
    assert replica.rows("Customers", "Id", "Name") == [(2, "b")]
    assert replica.rows("Orders", "Id", "CustomerId", "Number") == [(5, 2, 11), (6, 2, 12)]
    assert replica.rows("Items", "Id", "Item") == [(5, 1)]
    assert [len(reasons) for reasons in replica.rejected().values()] == [1]


A = (column("Id", 1, of_key=True),)
B = (*A, column("BId", 2, of_key=True))
C = (column("CId", 1, of_key=True), column("Id", 2), column("BId", 3))
D = (column("CId", 1, of_key=True), column("DId", 2, of_key=True))


def chain(database: MakeDatabase, spool: SpoolMaker, mode: str, on_delete: str) -> Replica:
    """C refers to B, which is interleaved in A; D is interleaved in C."""
    sample = database()
    sample.run_ddl(
        "CREATE TABLE A (Id INT64 NOT NULL) PRIMARY KEY (Id)",
        "CREATE TABLE B (Id INT64 NOT NULL, BId INT64 NOT NULL) PRIMARY KEY (Id, BId),"
        f" INTERLEAVE IN PARENT A{on_delete}",
        "CREATE TABLE C (CId INT64 NOT NULL, Id INT64, BId INT64,"
        f" FOREIGN KEY (Id, BId) REFERENCES B (Id, BId){on_delete}) PRIMARY KEY (CId)",
        "CREATE TABLE D (CId INT64 NOT NULL, DId INT64 NOT NULL) PRIMARY KEY (CId, DId),"
        " INTERLEAVE IN PARENT C ON DELETE CASCADE",
    )
    spool.seal(
        change(1, "A", '{"Id":"1"}', column_types=A),
        change(2, "A", '{"Id":"2"}', column_types=A),
        change(3, "B", '{"Id":"1","BId":"1"}', column_types=B),
        change(4, "B", '{"Id":"2","BId":"2"}', column_types=B),
        change(5, "C", '{"CId":"9"}', '{"Id":"1","BId":"1"}', column_types=C),
        change(6, "D", '{"CId":"9","DId":"7"}', column_types=D),
    )
    replica = Replica(sample, spool, mode=mode)
    replica.apply()
    return replica


def test_a_row_that_has_moved_is_not_deleted_with_the_grandparent_that_it_had(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    replica = chain(database, spool, mode, " ON DELETE CASCADE")
    spool.seal(
        change(10, "C", '{"CId":"9"}', '{"Id":"2","BId":"2"}', "UPDATE", column_types=C),
        change(11, "A", '{"Id":"1"}', "{}", "DELETE", column_types=A),
        change(11, "B", '{"Id":"1","BId":"1"}', "{}", "DELETE", place=1, column_types=B),
    )
    replica.apply(first=2)
    assert replica.rows("B", "Id", "BId") == [(2, 2)]
    assert replica.rows("C", "CId", "Id") == [(9, 2)]
    assert replica.rows("D", "CId", "DId") == [(9, 7)]
    assert replica.rejected() == {}


def test_a_transaction_deletes_a_row_and_what_it_refers_to_up_to_the_grandparent(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    replica = chain(database, spool, mode, "")
    spool.seal(
        change(10, "D", '{"CId":"9","DId":"7"}', "{}", "DELETE", column_types=D),
        change(10, "C", '{"CId":"9"}', "{}", "DELETE", place=1, column_types=C),
        change(10, "B", '{"Id":"1","BId":"1"}', "{}", "DELETE", place=2, column_types=B),
        change(10, "A", '{"Id":"1"}', "{}", "DELETE", place=3, column_types=A),
    )
    replica.apply(first=2)
    assert [replica.rows(*names) for names in (("A", "Id", "Id"), ("B", "Id", "BId"), ("C", "CId", "Id"))] == [
        [(2, 2)],
        [(2, 2)],
        [],
    ]
    assert replica.rejected() == {}


def test_a_child_and_its_parent_that_refers_to_it_are_written(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    sample = database()
    sample.run_ddl(
        "CREATE TABLE Users (Id INT64 NOT NULL, Address INT64) PRIMARY KEY (Id)",
        "CREATE TABLE Addresses (Id INT64 NOT NULL, Address INT64 NOT NULL) PRIMARY KEY (Id, Address),"
        " INTERLEAVE IN PARENT Users",
        "ALTER TABLE Users ADD FOREIGN KEY (Id, Address) REFERENCES Addresses (Id, Address)",
    )
    replica = Replica(sample, spool, mode=mode)
    users = (column("Id", 1, of_key=True), column("Address", 2))
    addresses = (column("Id", 1, of_key=True), column("Address", 2, of_key=True))
    spool.seal(
        change(1, "Users", '{"Id":"1"}', '{"Address":"7"}', column_types=users),
        change(1, "Addresses", '{"Id":"1","Address":"7"}', place=1, column_types=addresses),
    )
    replica.apply()
    assert replica.rows("Users", "Id", "Address") == replica.rows("Addresses", "Id", "Address") == [(1, 7)]
    assert replica.rejected() == {}


def test_unique_values_are_exchanged_beside_a_row_that_cannot_be_written(
    database: MakeDatabase, spool: SpoolMaker
) -> None:
    sample = database()
    sample.run_ddl(
        "CREATE TABLE Names (Id INT64 NOT NULL, Name STRING(MAX)) PRIMARY KEY (Id)",
        "CREATE UNIQUE INDEX NamesByName ON Names (Name)",
    )
    replica = Replica(sample, spool)
    names = (column("Id", 1, of_key=True), column("Name", 2, kind="STRING"))

    def named(at: int, key: int, name: str, mod_type: str = "UPDATE", **more: Any) -> DataChangeRecord:
        return change(at, "Names", f'{{"Id":"{key}"}}', f'{{"Name":"{name}"}}', mod_type, column_types=names, **more)

    spool.seal(named(1, 1, "a", "INSERT"), named(2, 3, "b", "INSERT"))
    replica.apply()
    missing = replace(named(11, 2, "c"), value_capture_type="NEW_VALUES")
    spool.seal(named(10, 1, "x"), missing, named(12, 3, "a"), named(13, 1, "b"))
    replica.apply(first=2)
    assert replica.rows("Names", "Id", "Name") == [(1, "b"), (3, "a")]
    assert [len(reasons) for reasons in replica.rejected().values()] == [1]


def test_the_rows_that_a_parent_takes_with_it_are_not_deleted_one_by_one_in_a_transaction(
    database: MakeDatabase, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spanner counts such rows as part of the parent's mutation: a transaction may have far more than the limit."""
    replica = shop(database, spool, "transactions")
    tables: list[str] = []
    call = SinkTransactions._call

    def recorded(self: SinkTransactions, method: str, resource: str, request: Any, *args: Any, **named: Any) -> bytes:
        if method.endswith("/Commit"):
            tables.extend(one.delete.table for one in request.mutations if one.HasField("delete"))
        return call(self, method, resource, request, *args, **named)

    monkeypatch.setattr(SinkTransactions, "_call", recorded)
    spool.seal(
        change(10, "Items", '{"Id":"5","Item":"1"}', "{}", "DELETE"),
        change(10, "Orders", '{"Id":"5"}', "{}", "DELETE", place=1),
    )
    replica.apply(first=2)
    assert replica.rows("Orders", "Id", "CustomerId") == replica.rows("Items", "Id", "Item") == []
    assert tables == ["Orders"]


def test_a_key_with_a_generated_column_is_computed_there(database: MakeDatabase, spool: SpoolMaker, mode: str) -> None:
    sample = database()
    sample.run_ddl(
        "CREATE TABLE Sharded (Shard INT64 AS (MOD(Id, 4)) STORED, Id INT64 NOT NULL, Name STRING(MAX))"
        " PRIMARY KEY (Shard, Id)"
    )
    replica = Replica(sample, spool, mode=mode)
    sharded = (column("Shard", 1, of_key=True), column("Id", 2, of_key=True), column("Name", 3, kind="STRING"))

    def row(at: int, key: int, mod_type: str, values: str = "{}") -> DataChangeRecord:
        return change(at, "Sharded", f'{{"Shard":"{key % 4}","Id":"{key}"}}', values, mod_type, column_types=sharded)

    spool.seal(row(1, 6, "INSERT", '{"Name":"a"}'), row(2, 7, "INSERT", '{"Name":"b"}'))
    spool.seal(row(3, 6, "DELETE"), row(4, 7, "UPDATE", '{"Name":"c"}'))
    replica.apply()
    assert replica.rows("Sharded", "Shard", "Id", "Name") == [(3, 7, "c")]
    assert replica.rejected() == {}


def test_an_update_need_not_have_the_columns_that_an_insert_must_have(
    database: MakeDatabase, spool: SpoolMaker, mode: str
) -> None:
    """The change stream watches some columns of a table, of which the destination began with a copy."""
    sample = database()
    sample.run_ddl("CREATE TABLE Watched (Id INT64 NOT NULL, Name STRING(MAX), Other INT64 NOT NULL) PRIMARY KEY (Id)")
    with sample.database.batch() as batch:
        batch.insert("Watched", ("Id", "Name", "Other"), [(1, "a", 10)])
    replica = Replica(sample, spool, mode=mode)
    watched = (column("Id", 1, of_key=True), column("Name", 2, kind="STRING"))
    spool.seal(change(1, "Watched", '{"Id":"1"}', '{"Name":"b"}', "UPDATE", column_types=watched))
    replica.apply()
    assert replica.rows("Watched", "Id", "Name", "Other") == [(1, "b", 10)]


def test_a_destination_without_a_row_of_a_sink_that_has_applied_changes_is_not_continued(
    database: MakeDatabase, spool: SpoolMaker
) -> None:
    """It was restored to a state before the first change, for one."""
    replica = shop(database, spool, "rows")
    record_consumer(spool.spool, "spanner", 1, now=START, at="2026-03-01T10:00:00Z/0123456789abcdef")
    spool.seal(change(10, "Customers", '{"Id":"3"}', '{"Name":"c"}'))
    with replica.sample.database.batch() as batch:
        batch.delete("spanner_cdc_progress", KeySet(all_=True))
    with pytest.raises(SpoolError, match=r"has no row of sink .* though the sink has applied changes"):
        replica.apply(first=2)
    assert replica.rows("Customers", "Id", "Name") == [(1, "a"), (2, "b")]
