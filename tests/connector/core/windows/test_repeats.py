"""Records of one partition that two shares have read are taken from the lesser share."""

import numpy as np

from connector.core.changes import Changes
from connector.core.records import DataChangeRecord
from connector.core.windows import without_repeats
from tests.connector.builders import AT, record


def kept(*records: tuple[int, DataChangeRecord]) -> list[DataChangeRecord]:
    changes = Changes.of([one for _, one in records])
    return list(without_repeats(changes, np.array([share for share, _ in records], np.int64)).records())


def test_a_record_that_a_lesser_share_has_is_dropped_whenever_it_was_read() -> None:
    first, again = record(read_timestamp=1), record(read_timestamp=2)
    assert kept((0, first), (2, again), (3, again)) == [first]


def test_a_repeat_within_a_share_is_kept() -> None:
    assert kept((1, record()), (1, record())) == [record(), record()]


def test_records_of_other_tables_values_sequences_or_transactions_are_kept() -> None:
    others = [
        record(),
        record(table_name="Other"),
        record(mods=()),
        record(record_sequence="00000009"),
        record(server_transaction_id="zz"),
        record(commit_timestamp=AT + 1),
    ]
    assert kept(*((share, one) for share, one in enumerate(others))) == others


def test_without_records_there_are_no_repeats() -> None:
    assert kept() == []
