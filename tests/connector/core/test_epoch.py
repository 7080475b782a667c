import pytest

from connector.core.changes import Changes
from connector.core.epoch import EpochBuffer, IncompleteTransaction, incomplete_transactions, minute_end
from connector.core.records import DataChangeRecord
from connector.core.timestamps import MINUTE
from tests.connector.builders import record

START = 10 * MINUTE


def at(
    offset: int, transaction: str = "tx", sequence: str = "1", size: int = 10, records: int = 1, partitions: int = 1
) -> DataChangeRecord:
    return record(
        commit_timestamp=START + offset,
        server_transaction_id=transaction,
        record_sequence=sequence,
        size=size,
        number_of_records_in_transaction=records,
        number_of_partitions_in_transaction=partitions,
    )


def buffer_of(*records: DataChangeRecord, to: int, max_bytes: int = 1000) -> EpochBuffer:
    buffer = EpochBuffer(START, max_bytes=max_bytes)
    for one in sorted(records, key=lambda r: r.commit_timestamp):
        assert buffer.add("p", one, progress=START)
    buffer.advance(START + to)
    return buffer


def test_an_epoch_lies_between_the_last_one_and_the_watermark() -> None:
    buffer = buffer_of(at(1), at(5), at(9), to=5)
    epoch = buffer.take()
    assert epoch is not None
    assert (epoch.low, epoch.high) == (START, START + 5)
    assert [r.commit_timestamp - START for r in epoch.records] == [1, 5]
    assert epoch.bytes == 20
    assert buffer.take() is None


def test_without_a_move_of_the_watermark_there_is_no_epoch() -> None:
    assert EpochBuffer(START).take() is None


def test_an_idle_stream_has_an_empty_epoch() -> None:
    epoch = buffer_of(to=7).take()
    assert epoch is not None
    assert (epoch.low, epoch.high, epoch.records, epoch.bytes) == (START, START + 7, (), 0)


def test_records_of_all_partitions_come_in_the_order_of_history() -> None:
    buffer = EpochBuffer(START)
    arriving = [
        ("a", at(2, "t1", "2")),
        ("b", at(1, "t9", "10")),
        ("b", at(1, "t9", "9")),
        ("c", at(2, "t0", "1")),
        ("c", at(2, "t1", "1")),
    ]
    for token, one in arriving:
        buffer.add(token, one, progress=START)
    buffer.advance(START + 2)
    epoch = buffer.take()
    assert epoch is not None
    assert [(r.commit_timestamp - START, r.server_transaction_id, r.record_sequence) for r in epoch.records] == [
        (1, "t9", "9"),
        (1, "t9", "10"),
        (2, "t0", "1"),
        (2, "t1", "1"),
        (2, "t1", "2"),
    ]


def test_an_epoch_is_cut_between_two_commit_timestamps_before_it_is_too_large() -> None:
    buffer = buffer_of(at(1), at(2), at(3), to=5, max_bytes=20)
    epochs = [buffer.take(), buffer.take(), buffer.take()]
    assert [(e.low - START, e.high - START, len(e.records)) for e in epochs if e] == [(0, 2, 2), (2, 5, 1)]


def test_an_epoch_of_exactly_the_limit_is_not_cut() -> None:
    epoch = buffer_of(at(1), at(2), to=5, max_bytes=20).take()
    assert epoch is not None
    assert (epoch.high, len(epoch.records)) == (START + 5, 2)


def test_the_records_of_one_commit_timestamp_stay_together_however_large() -> None:
    buffer = buffer_of(at(1, "a", size=60), at(1, "b", size=60), at(2), to=2, max_bytes=50)
    first, second = buffer.take(), buffer.take()
    assert first is not None
    assert second is not None
    assert (first.bytes, first.high) == (120, START + 1)
    assert (second.bytes, second.low, second.high) == (10, START + 1, START + 2)


def test_a_record_larger_than_an_epoch_is_an_epoch_alone() -> None:
    buffer = buffer_of(at(1, size=60), at(2), to=2, max_bytes=50)
    epoch = buffer.take()
    assert epoch is not None
    assert len(epoch.records) == 1


@pytest.mark.parametrize(
    ("timestamp", "end"), [(0, MINUTE - 1), (MINUTE - 1, MINUTE - 1), (MINUTE, 2 * MINUTE - 1), (-1, -1)]
)
def test_a_minute_ends_with_its_last_nanosecond(timestamp: int, end: int) -> None:
    assert minute_end(timestamp) == end


def test_an_epoch_ends_with_its_minute_and_the_next_starts_with_the_next_minute() -> None:
    last, first = at(MINUTE - 1), at(MINUTE)
    buffer = buffer_of(at(1), last, first, to=MINUTE + 5)
    epochs = [buffer.take(), buffer.take()]
    assert [(e.high - START, e.records[-1]) for e in epochs if e] == [(MINUTE - 1, last), (MINUTE + 5, first)]


def test_minutes_in_which_nothing_happened_are_empty_epochs() -> None:
    buffer = buffer_of(at(2 * MINUTE + 1), to=2 * MINUTE + 1)
    epochs = [buffer.take(), buffer.take(), buffer.take(), buffer.take()]
    assert [len(e.records) for e in epochs if e] == [0, 0, 1]


def test_a_seal_is_overdue_when_an_epoch_is_full() -> None:
    assert not buffer_of(at(1), to=1, max_bytes=11).overdue
    assert buffer_of(at(1), to=1, max_bytes=10).overdue


def test_a_seal_is_overdue_when_a_minute_has_passed() -> None:
    assert not buffer_of(to=MINUTE - 2).overdue
    assert buffer_of(to=MINUTE - 1).overdue


def test_what_a_broken_query_returned_beyond_its_progress_is_discarded() -> None:
    buffer = EpochBuffer(START)
    for one in (at(1), at(2), at(2, "other"), at(3)):
        buffer.add("p", one, progress=START)
    buffer.add("q", at(3, "q"), progress=START)
    buffer.discard("p", beyond=START + 1)
    buffer.discard("nobody", beyond=START)
    assert buffer.bytes == 20
    buffer.advance(START + 3)
    epoch = buffer.take()
    assert epoch is not None
    assert [r.server_transaction_id for r in epoch.records] == ["tx", "q"]


def test_records_returned_again_at_or_before_the_progress_are_dropped() -> None:
    buffer = EpochBuffer(START)
    assert not buffer.add("p", at(5), progress=START + 5)
    assert buffer.add("p", at(6), progress=START + 5)
    assert buffer.bytes == 10


def test_what_was_delivered_before_a_restart_is_dropped() -> None:
    buffer = EpochBuffer(START + 5)
    assert not buffer.add("p", at(5), progress=0)
    assert buffer.add("p", at(6), progress=0)


def test_another_record_at_the_timestamp_of_the_last_is_held() -> None:
    buffer = EpochBuffer(START)
    assert buffer.add("p", at(5, "a"), progress=START)
    assert buffer.add("p", at(5, "b"), progress=START + 4)


def test_bytes_are_counted_until_they_are_taken() -> None:
    buffer = buffer_of(at(1), at(9), to=5)
    assert (buffer.bytes, buffer.ready_bytes) == (20, 10)
    buffer.take()
    assert (buffer.bytes, buffer.ready_bytes) == (10, 0)


def test_discarded_records_are_no_longer_counted() -> None:
    buffer = EpochBuffer(START)
    buffer.add("p", at(1), progress=START)
    assert buffer.bytes == 10
    buffer.discard("p", beyond=START)
    assert buffer.bytes == 0


def test_a_transaction_with_missing_records_is_reported() -> None:
    whole = [at(1, "whole", "1", records=2), at(1, "whole", "2", records=2)]
    missing = at(1, "missing", "1", records=3)
    assert incomplete_transactions(Changes.of([*whole, missing])) == [IncompleteTransaction("missing", START + 1, 3, 1)]


def test_of_some_placements_only_what_no_other_placement_can_have_is_reported() -> None:
    elsewhere = [at(2, "elsewhere", "1", records=3, partitions=2)]
    missing = [at(1, "missing", "1", records=2, partitions=1)]
    twice = [at(3, "twice", partitions=2)] * 2
    found = incomplete_transactions(Changes.of([*missing, *elsewhere, *twice]), of_some_placements=True)
    assert [one.server_transaction_id for one in found] == ["missing", "twice"]


def test_a_transaction_with_a_record_too_many_is_reported() -> None:
    twice = at(1, "twice")
    assert incomplete_transactions(Changes.of([twice, twice])) == [IncompleteTransaction("twice", START + 1, 1, 2)]


def test_complete_transactions_are_not_reported() -> None:
    assert incomplete_transactions(Changes.of([at(1, "a"), at(1, "b")])) == []


def test_nothing_is_overdue_after_sealing_has_ended() -> None:
    buffer = buffer_of(at(1, size=600), at(2, size=600), to=3 * MINUTE)
    assert buffer.overdue
    buffer.seal_before(START + 2)
    epoch = buffer.take()
    assert epoch is not None
    assert (epoch.high, buffer.take(), buffer.overdue) == (START + 1, None, False)
