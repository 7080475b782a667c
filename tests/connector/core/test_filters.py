"""The filter of the records that become events."""

from connector.core.changes import Changes
from connector.core.filters import RecordFilter
from tests.connector.builders import record


def test_without_patterns_every_table_is_kept() -> None:
    assert RecordFilter().keeps("Anything")


def test_include_and_exclude_are_shell_patterns() -> None:
    chosen = RecordFilter(include=["Sing*", "shop.*"], exclude=["*_tmp"])
    assert [name for name in ("Singers", "Sing_tmp", "shop.Orders", "Albums") if chosen.keeps(name)] == [
        "Singers",
        "shop.Orders",
    ]


def test_patterns_that_match_no_table_are_reported() -> None:
    assert RecordFilter(include=["Singers", "Albms"], exclude=["x*"]).unmatched(["Singers", "Albums"]) == [
        "Albms",
        "x*",
    ]


def test_records_of_excluded_tables_and_tags_are_dropped() -> None:
    records = [record(table_name=name, transaction_tag=tag) for name in ("A", "B") for tag in ("", "app=x", "loop=y")]
    kept = RecordFilter(exclude=["B"], skip_transaction_tags=["loop="])(Changes.of(records))
    assert kept.records() == tuple(records[:2])


def test_a_filter_that_leaves_out_nothing_copies_nothing() -> None:
    changes = Changes.of([record()])
    assert RecordFilter()(changes) is changes
    assert len(RecordFilter(exclude=["*"])(changes)) == 0
