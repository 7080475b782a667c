"""Dependencies of tables."""

from collections.abc import Mapping

import pytest

from connector.spanner.relations import Relations


def relations(interleaved: Mapping[str, str], references: Mapping[str, set[str]]) -> Relations:
    of_keys = {table: frozenset(others) for table, others in references.items()}
    return Relations((), interleaved, frozenset(), of_keys, frozenset())


def test_parents_come_first_and_all_else_stays_in_its_order() -> None:
    found = relations({"Albums": "Singers", "Songs": "Albums"}, {"Bands": {"Venues"}})
    tables = ["Albums", "Bands", "Others", "Singers", "Songs", "Venues"]
    assert found.parents_first(tables) == ["Others", "Singers", "Venues", "Albums", "Bands", "Songs"]


def test_the_tables_that_rows_need_are_found_at_any_depth_and_none_that_no_order_is_right_for() -> None:
    found = relations(
        {"Albums": "Singers", "Songs": "Albums"},
        {"Singers": {"Labels"}, "Songs": {"Staff"}, "Staff": {"Staff", "Offices"}},
    )
    assert found.with_parents(["Songs"]) == {"Songs", "Albums", "Singers", "Labels"}
    assert found.with_parents(["Labels", "Others"]) == {"Labels", "Others"}
    assert found.with_parents(["Staff"]) == {"Staff", "Offices"}


@pytest.mark.parametrize(
    ("interleaved", "references", "circular"),
    [
        ({"Albums": "Singers"}, {"Albums": {"Labels"}}, []),
        ({}, {"Employees": {"Employees"}, "Badges": {"Employees"}}, ["Employees"]),
        ({}, {"A": {"B"}, "B": {"C"}, "C": {"A"}, "D": {"A"}}, ["A", "B", "C"]),
        ({"Addresses": "Users"}, {"Users": {"Addresses"}}, ["Addresses", "Users"]),
    ],
)
def test_tables_that_lead_back_to_themselves_are_circular(
    interleaved: dict[str, str], references: dict[str, set[str]], circular: list[str]
) -> None:
    assert relations(interleaved, references).circular() == circular
