"""Two reads of the same transactions are equal; each way in which they may differ is found, and named."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.records import DataChangeRecord
from connector.proof.audit.comparison import differences
from connector.proof.audit.findings import Finding, Kind, TransactionFinding
from connector.proof.audit.transaction import differing
from tests.connector.builders import AT
from tests.connector.proof.audit.comparable import mod, rows, transaction
from tests.property.effort import effort

Records = list[DataChangeRecord]


def altered(records: Records, **changed: object) -> Records:
    return [*records[:-1], replace(records[-1], **changed)]  # type: ignore[arg-type]


def rewritten(records: Records) -> Records:
    """The same values as other texts: with spaces, and the columns in another order."""
    return [
        replace(one, mods=tuple(replace(m, new_values='{"Age" : "7", "Name" : "a"}') for m in one.mods))
        for one in records
    ]


DAMAGES: dict[str, tuple[Callable[[Records], Records], Kind | None]] = {
    "none": (lambda records: records, None),
    "other text": (rewritten, None),
    "taken out": (lambda _: [], Kind.MISSING),
    "doubled": (lambda records: [*records, *records], Kind.TWICE),
    "a record doubled": (lambda records: [*records, records[0]], Kind.TWICE),
    "a value altered": (lambda records: altered(records, mods=(mod("00", name='"z"'),)), Kind.DIFFERENT),
    "a mod type altered": (lambda records: altered(records, mod_type="UPDATE"), Kind.DIFFERENT),
    "a mod added": (lambda r: altered(r, mods=(*r[-1].mods, mod("new"))), Kind.DIFFERENT),
    "in reverse": (lambda records: list(reversed(records)), None),  # of one record: the same
}


def found_in(expected: Records, found: Records) -> list[Finding]:
    return list(differences(rows(expected), rows(found)))


def only(findings: list[Finding]) -> TransactionFinding:
    (one,) = findings
    assert isinstance(one, TransactionFinding)
    return one


@effort(150)
@given(st.integers(0, 2**32), st.lists(st.tuples(st.sampled_from(sorted(DAMAGES)), st.integers(0, 3)), max_size=12))
def test_each_transaction_that_differs_is_found_once_and_no_other(seed: int, plan: list[tuple[str, int]]) -> None:
    random = Random(seed)
    expected: Records = []
    found: Records = []
    wanted: dict[str, Kind] = {}
    at = 0
    for number, (damage, gap) in enumerate(plan):
        at += gap  # several transactions may have one commit timestamp
        name = f"tx{number:03}"
        one = transaction(name, at=at, records=1 if damage == "in reverse" else random.randint(1, 3))
        change, kind = DAMAGES[damage]
        expected += one
        found += change(one)
        if kind is not None:
            wanted[name] = kind
    if random.random() < 0.5:
        found += transaction("zz", at=at)
        wanted["zz"] = Kind.EXTRA
    findings = found_in(expected, found)
    assert {(one.transaction, one.kind) for one in findings if isinstance(one, TransactionFinding)} == set(
        wanted.items()
    )
    assert len(findings) == len(wanted)


def test_a_missing_transaction_is_named_with_its_tables_and_mods() -> None:
    one = only(found_in([*transaction("a", records=2), *transaction("b", at=5)], transaction("b", at=5)))
    assert (one.kind, one.transaction, one.commit_timestamp) == (Kind.MISSING, "a", AT)
    assert (one.tables, one.count, one.epoch) == (("Singers",), 4, None)


def test_a_mod_that_differs_is_named_with_the_columns_and_without_its_values() -> None:
    committed = transaction("a", records=2)
    held = altered(committed, mods=(mod("10", name='"secret"'), committed[1].mods[1]))
    one = only(found_in(committed, held))
    (difference,) = one.mods
    assert (difference.table, difference.record_sequence, difference.mod_index) == ("Singers", "00000001", 0)
    assert difference.fields == ("payload.Name",)
    assert "secret" not in str(one) + str(one.to_json())


def test_a_column_that_is_missing_differs_from_one_that_is_null() -> None:
    committed = transaction("a", mods=1)
    held = altered(committed, mods=(replace(mod("00"), new_values='{"Name":"a","Age":"7","Tag":null}'),))
    assert only(found_in(committed, held)).mods[0].fields == ("payload.Tag",)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"transaction_tag": "other"}, "transaction_tag"),
        ({"is_system_transaction": True}, "system_transaction"),
        ({"number_of_records_in_transaction": 9}, "number_of_records_in_transaction"),
        ({"value_capture_type": "NEW_ROW"}, "value_capture_type"),
    ],
)
def test_every_field_of_a_record_is_compared(changed: dict[str, object], field: str) -> None:
    committed = transaction("a")
    assert only(found_in(committed, altered(committed, **changed))).mods[0].fields == (field,)


def test_another_transaction_id_is_one_transaction_missing_and_one_extra() -> None:
    committed = transaction("a")
    held = altered(committed, server_transaction_id="b")
    assert [one.kind for one in found_in(committed, held)] == [Kind.MISSING, Kind.EXTRA]


def test_transactions_of_one_timestamp_in_another_order_are_found() -> None:
    a, b, c = transaction("a"), transaction("b"), transaction("c")
    one = only(found_in([*a, *b, *c], [*b, *a, *c]))
    assert (one.kind, one.transaction) == (Kind.ORDER, "b")


def test_records_of_a_transaction_in_another_order_are_found() -> None:
    committed = transaction("a", records=2)
    assert only(found_in(committed, list(reversed(committed)))).kind is Kind.ORDER


def test_when_a_record_was_received_and_the_epochs_number_are_not_compared() -> None:
    committed = transaction("a")
    assert list(differences(rows(committed), rows(altered(committed, read_timestamp=AT), epoch=9))) == []


def test_only_the_first_mods_of_a_large_transaction_are_described() -> None:
    one = only(found_in(transaction("a", mods=50), [*transaction("a", mods=50), *transaction("a", mods=50)]))
    assert (one.kind, one.count, len(one.mods)) == (Kind.TWICE, 50, 10)
    assert str(one).endswith("and 40 more mods")


def test_a_payload_that_is_not_json_is_named_as_a_whole() -> None:
    (row,) = rows(transaction("a", mods=1)).rows(np.zeros(1, np.int64))
    found = differing([row], [{**row, "payload": "{broken"}])
    assert found is not None
    assert found.mods[0].fields == ("payload",)
