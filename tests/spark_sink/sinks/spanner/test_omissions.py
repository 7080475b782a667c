"""A change omits what the source no longer has and the destination cannot take."""

from connector.core.schemas import TableSchema
from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.destination_tables import DestinationTable
from spark_sink.sinks.spanner.source_tables import SourceTable
from spark_sink.sinks.spanner.writing.omissions import Databases, Omission, Omissions
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
