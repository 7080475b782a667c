"""A change omits what the source no longer has and the destination cannot take."""

from connector.core.schemas import TableSchema
from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.destination_tables import DestinationTable
from spark_sink.sinks.spanner.source_tables import SourceTable
from spark_sink.sinks.spanner.writing.omissions import Databases, Omission, Omissions
from spark_sink.sinks.spanner.writing.planning import WritePlanner
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange
from spark_sink.sinks.spanner.writing.units import Unit, UnitPosition
from tests.spark_sink.sinks.spanner.changes import column

FORMER = TableSchema.of("T", (column("Id", 1, of_key=True), column("A", 2), column("C", 3)))
KEY = {"Id": "INT64"}
NOTHING = Omission(("Id",))


def omission(there: dict[str, str] | None, source: dict[str, str] | None, key: str = "Id") -> Omission:
    """The omission for a change of :data:`FORMER`, with the columns of both tables; None is a missing table."""
    destination = {} if there is None else {"T": DestinationTable(frozenset(there), (key,), 0, types=there)}
    databases = Databases(destination, {} if source is None else {"T": SourceTable(source, (key,))})
    found = Omissions(
        Applying("rows", {}, {}, False), destination, lambda _: FORMER, lambda *_: True, lambda: databases
    )
    return found.of("key", ("Id", "A", "C"))


def test_nothing_is_left_out_of_what_the_destination_can_take() -> None:
    assert omission(KEY | {"A": "INT64", "C": "INT64"}, None) == NOTHING


def test_a_column_that_both_lack_is_left_out_and_one_that_the_source_has_is_not() -> None:
    assert omission(KEY | {"A": "INT64"}, KEY | {"A": "INT64"}) == Omission(("Id",), frozenset("C"))
    assert omission(KEY | {"A": "INT64"}, KEY | {"A": "INT64", "C": "INT64"}) == NOTHING


def test_a_column_that_was_added_again_with_another_type_is_left_out_of_former_changes() -> None:
    newest = KEY | {"A": "INT64", "C": "STRING"}
    assert omission(newest, newest) == Omission(("Id",), frozenset("C"))
    former = KEY | {"A": "INT64", "C": "STRING"}
    assert omission(former, KEY | {"A": "INT64", "C": "INT64"}).conflicts == {"C"}


def test_a_change_of_a_table_that_is_gone_or_has_another_key_is_left_out() -> None:
    assert omission(None, None).is_whole
    assert omission({"Code": "STRING"}, {"Code": "STRING"}, key="Code").is_whole
    assert not omission(None, KEY).is_whole


def test_a_key_of_a_former_type_in_the_destination_is_a_conflict_and_not_a_mere_refusal_of_rows() -> None:
    assert omission({"Id": "STRING"}, KEY).conflicts == {"Id"}
    assert not omission({"Id": "STRING"}, KEY).is_whole


def test_a_table_and_columns_that_were_created_again_in_another_spelling_are_the_ones_that_are_there() -> None:
    """Spanner has no two names that only capitals distinguish."""
    there = {"t": DestinationTable(frozenset({"id", "a", "C"}), ("id",), 0, types={"id": "INT64", "a": "STRING"})}
    source = {"T": SourceTable(KEY | {"A": "INT64", "C": "INT64"}, ("Id",))}
    applying = Applying("rows", {}, {}, False)

    def look() -> Databases:
        return Databases(there, source)

    omissions = Omissions(applying, there, lambda _: FORMER, lambda *_: False, look)
    assert omissions.of("key", ("Id", "A", "C")) == NOTHING._replace(differing=frozenset("A"))
    planner = WritePlanner(applying, there, {"T": ("Id",)}, omissions)
    changes = [
        KeyedChange("T", mod_type, True, payload, "2026-03-01T10:00:00Z", "0", "t", (1, place), "key")
        for place, (mod_type, payload) in enumerate([("INSERT", '{"Id":"1","A":"2"}'), ("DELETE", '{"Id":"2"}')])
    ]
    plan = planner.plan(Unit(UnitPosition(1, 0), UnitPosition(2, 0), [changes]))
    assert plan.rejected == []
    delete, write = (one for level in plan.levels.in_order() for one in level)
    assert (delete.table, delete.columns, delete.values) == ("t", ("id",), ["2"])
    assert (write.table, write.columns, write.values) == ("t", ("id", "a"), ["1", "2"])


def test_changes_of_a_row_with_a_column_in_two_spellings_write_the_newest_value() -> None:
    there = {"T": DestinationTable(frozenset({"Id", "A"}), ("Id",), 0)}
    planner = WritePlanner(Applying("rows", {}, {}, False), there, {"T": ("Id",)})
    changes = [
        KeyedChange("T", "UPDATE", True, payload, "2026-03-01T10:00:00Z", "0", "t", (1, place))
        for place, payload in enumerate(['{"Id":"1","A":"2"}', '{"Id":"1","a":"3"}'])
    ]
    ((write,),) = planner.plan(Unit(UnitPosition(1, 0), UnitPosition(2, 0), [changes])).levels.writes
    assert (write.columns, write.values) == (("Id", "A"), ["1", "3"])
