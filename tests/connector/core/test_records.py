from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.records import ChildPartition, ChildPartitionsRecord, sequence_number
from tests.connector.builders import record


@pytest.mark.parametrize(("text", "number"), [("00000010", 10), ("9", 9), ("", 0), ("a", 0), ("-1", 0), ("1.5", 0)])
def test_a_record_sequence_is_read_as_a_number_where_it_is_one(text: str, number: int) -> None:
    assert sequence_number(text) == number


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 200)), unique=True))
def test_records_sort_by_commit_transaction_and_sequence(some: list[tuple[int, str, int]]) -> None:
    records = [record(commit_timestamp=at, server_transaction_id=tx, record_sequence=str(n)) for at, tx, n in some]
    told = [
        (r.commit_timestamp, r.server_transaction_id, int(r.record_sequence))
        for r in sorted(records, key=lambda r: r.order)
    ]
    assert told == sorted(some)


def test_sequences_that_are_no_numbers_sort_as_text() -> None:
    records = [record(record_sequence=text) for text in ("b", "a", "c")]
    ordered = sorted(records, key=lambda r: r.order)
    assert all(one.record_sequence < other.record_sequence for one, other in pairwise(ordered))


def test_a_child_partitions_record_without_children_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="names no child partitions"):
        ChildPartitionsRecord(1, "0", ())


def test_a_child_partition_without_a_token_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="empty token"):
        ChildPartition("", frozenset({"parent"}))
