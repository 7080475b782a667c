"""The rows of a span come once each, whatever parts are asked for; what cannot be compared is named."""

from hypothesis import given
from hypothesis import strategies as st

from connector.proof.audit.rows import ComparableRows
from connector.proof.audit.spans import CommitSpan
from connector.proof.audit.spool_rows import AuditedEpoch, SpanRows
from tests.connector.builders import AT
from tests.connector.proof.audit.comparable import rows, transaction
from tests.property.effort import effort

LENGTH = 10
"""Nanoseconds of an epoch."""


def epochs_of(times: list[int], damaged: set[int]) -> list[AuditedEpoch]:
    """Five epochs with a transaction at each of these nanoseconds."""
    made = []
    for number in range(5):
        low = AT - 1 + number * LENGTH
        inside = [at for at in times if low < AT + at <= low + LENGTH]
        records = [one for at in inside for one in transaction(f"tx{at}", at=at)]
        made.append(AuditedEpoch(low, low + LENGTH, None if number in damaged else (rows(records),)))
    return made


@effort(200)
@given(
    st.sets(st.integers(0, 49)),
    st.sets(st.integers(0, 4)),
    st.integers(0, 49),
    st.lists(st.integers(0, 49)),
    st.integers(0, 49),
)
def test_parts_hold_each_row_of_the_span_once(
    times: set[int], damaged: set[int], start: int, cuts: list[int], end: int
) -> None:
    span = CommitSpan(AT + start, AT + max(start, end))
    reading = SpanRows(iter(epochs_of(sorted(times), damaged)), span)
    low, found = span.start - 1, []
    for high in sorted({*(AT + cut for cut in cuts if span.start <= AT + cut < span.end), span.end}):
        part = reading.upto(high)
        whole = rows([one for at in sorted(times) if low < AT + at <= high for one in transaction(f"tx{at}", at=at)])
        for first, last in part.left_out:
            whole = whole.without(first, last)
        assert part.rows.times.tolist() == whole.times.tolist()
        found += part.rows.times.tolist()
        low = high
    assert found == sorted(found)


def test_a_part_after_the_last_epoch_is_empty() -> None:
    reading = SpanRows(iter(epochs_of([3], set())), CommitSpan(AT, AT + 100))
    assert len(reading.upto(AT + 60).rows) == 2
    assert len(reading.upto(AT + 100).rows) == 0


def test_rows_know_how_many_transactions_they_are() -> None:
    assert ComparableRows.none().transactions == 0
    assert rows([*transaction("a"), *transaction("b"), *transaction("b", at=1)]).transactions == 3
