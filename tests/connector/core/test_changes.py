"""Records as columns against the same records as a list: every operation gives the same records in the same order."""

from bisect import bisect_right

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import COLUMNS, Changes, RecordSchema, sequence_numbers
from connector.core.records import DataChangeRecord, sequence_number
from tests.connector.builders import AT, record
from tests.property.effort import effort
from tests.property.some_records import SEQUENCES, instants, records

LARGEST = 2**63 - 1
Both = tuple[Changes, list[DataChangeRecord]]
lists = st.lists(records, max_size=8)


@st.composite
def both(draw: st.DrawFn) -> Both:
    """Columns that were made, cut, joined, filtered and sorted in any order, and the records that they hold."""
    wanted = draw(lists)
    found = Changes.of(wanted)
    for operation in draw(st.lists(st.sampled_from(("part", "joined", "kept", "in_order")), max_size=4)):
        match operation:
            case "part":
                start, stop = sorted(draw(st.tuples(st.integers(0, len(wanted)), st.integers(0, len(wanted)))))
                found, wanted = found.part(start, stop), wanted[start:stop]
            case "joined":
                more, loose = draw(lists), draw(st.lists(records, max_size=2))
                found = Changes.joined([*loose, found, Changes.of(more), *loose])
                wanted = [*loose, *wanted, *more, *loose]
            case "kept":
                mask = draw(st.lists(st.booleans(), min_size=len(wanted), max_size=len(wanted)))
                found = found.kept(np.array(mask, np.bool_))
                wanted = [one for one, keeps in zip(wanted, mask, strict=True) if keeps]
            case "in_order":
                found, wanted = found.in_order(), sorted(wanted, key=lambda one: one.order)
    return found, wanted


@effort(200)
@given(both())
def test_columns_hold_the_records_whatever_was_done_with_them(pair: Both) -> None:
    found, wanted = pair
    assert found.records() == tuple(wanted)
    assert found.batch.schema == COLUMNS
    assert not any(column.null_count for column in found.batch.columns)
    assert len(found) == len(wanted)


@effort(150)
@given(both())
def test_columns_have_the_same_properties_as_their_records(pair: Both) -> None:
    found, wanted = pair
    assert found.commit_timestamps.tolist() == [one.commit_timestamp for one in wanted]
    assert found.sizes.tolist() == [one.size for one in wanted]
    assert found.size == sum(one.size for one in wanted)
    assert found.mod_counts.tolist() == [len(one.mods) for one in wanted]
    assert found.mods == sum(len(one.mods) for one in wanted)
    if wanted:
        assert (found.first, found.last) == (wanted[0].commit_timestamp, wanted[-1].commit_timestamp)
    for field in COLUMNS:
        if field.name not in ("record_schema", "mods"):
            assert found.column(field.name).to_pylist() == [getattr(one, field.name) for one in wanted]
    schemas = [found.record_schemas[code] for code in found.column("record_schema").to_pylist()]
    assert schemas == [RecordSchema(one.table_name, one.column_types) for one in wanted]


@effort(150)
@given(both())
def test_sorted_columns_are_the_sorted_records(pair: Both) -> None:
    found, wanted = pair
    assert found.in_order().records() == tuple(sorted(wanted, key=lambda one: one.order))


@effort(100)
@given(both(), instants, st.integers(-1, 1))
def test_as_many_have_passed_as_were_committed_by_then(pair: Both, instant: int, step: int) -> None:
    found, wanted = pair
    times = sorted(one.commit_timestamp for one in wanted)
    assert found.in_order().passed(instant + step) == bisect_right(times, instant + step)


@effort(100)
@given(st.lists(st.lists(records, max_size=4), max_size=4))
def test_joined_columns_have_each_record_schema_once(parts: list[list[DataChangeRecord]]) -> None:
    joined = Changes.joined(map(Changes.of, parts))
    assert joined.records() == tuple(one for part in parts for one in part)
    assert len(set(joined.record_schemas)) == len(joined.record_schemas)


@effort(100)
@given(st.lists(st.sampled_from(SEQUENCES) | st.integers(0, 2**80).map(str) | st.text(max_size=3), max_size=9))
def test_record_sequences_are_numbers_of_64_bits_at_most(texts: list[str]) -> None:
    wanted = [min(sequence_number(text), LARGEST) for text in texts]
    assert sequence_numbers(pa.array(texts, pa.string())).tolist() == wanted
    assert sequence_numbers(pa.array(["7", *texts, "x"], pa.string()).slice(1, len(texts))).tolist() == wanted


def test_what_need_not_change_is_not_copied() -> None:
    changes = Changes.of([record(), record(commit_timestamp=AT + 1, table_name="Albums")])
    assert changes.in_order() is changes
    assert changes.part(0) is changes
    assert changes.part(0, 2) is changes
    assert changes.kept(np.array([True, True])) is changes
    assert Changes.joined([changes]) is changes
    part, whole = changes.part(1).column("commit_timestamp"), changes.column("commit_timestamp")
    assert part.buffers()[1].address == whole.buffers()[1].address


def test_equal_record_schemas_are_one_after_joining() -> None:
    """A decoder may have read the same column types from different texts."""
    changes = Changes.of([record(), record(table_name="Albums")])
    twice = Changes(changes.batch, (changes.record_schemas[0], changes.record_schemas[0]))
    joined = Changes.joined([twice, changes])
    assert joined.record_schemas == changes.record_schemas
    assert joined.records() == twice.records() + changes.records()
