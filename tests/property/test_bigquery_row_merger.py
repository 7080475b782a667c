"""Merged changes make the source's rows, wherever they are split; a merge that is repeated does nothing."""

import json

from hypothesis import event, given
from hypothesis import strategies as st

from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from tests.connector.builders import AT
from tests.property.bigquery_merging import (
    CHANGE,
    HISTORIES,
    SEQUENCE,
    TABLE,
    Change,
    History,
    Merged,
    lines_of,
    parts_of,
    replayed,
    rows_of,
)
from tests.property.effort import effort

# What is promised


@effort(120)
@given(HISTORIES)
def test_merged_changes_are_the_sources_table_wherever_it_is_cut(history: History) -> None:
    table = Merged()
    for batch in parts_of(history):
        for lines in batch:
            table.merge(lines)
    expected = replayed(history.changes)
    event(f"rows: {len(expected)}")
    assert table.rows == expected


@effort(60)
@given(HISTORIES)
def test_a_part_that_is_merged_again_at_once_changes_nothing(history: History) -> None:
    table = Merged()
    for batch in parts_of(history):
        for lines in batch:
            table.merge(lines)
            before = {key: dict(row) for key, row in table.rows.items()}, dict(table.numbers)
            table.merge(lines)
            assert (table.rows, table.numbers) == before


@effort(60)
@given(HISTORIES, st.data())
def test_a_micro_batch_that_is_merged_again_from_any_part_on_ends_as_before(
    history: History, data: st.DataObject
) -> None:
    table = Merged()
    for batch in parts_of(history):
        for lines in batch:
            table.merge(lines)
        before = {key: dict(row) for key, row in table.rows.items()}, dict(table.numbers)
        first = data.draw(st.integers(0, len(batch)))
        for lines in batch[first:]:
            table.merge(lines)
        assert (table.rows, table.numbers) == before


@effort(50)
@given(st.lists(CHANGE, min_size=1, max_size=12), st.data())
def test_merging_gives_the_same_for_rows_at_once_or_in_slices(changes: list[Change], data: st.DataObject) -> None:
    rows = rows_of(changes)
    at = data.draw(st.integers(0, len(changes)))
    merger = RowMerger(TABLE)
    assert merger.add(rows.slice(0, at)) == []
    assert lines_of(merger, rows.slice(at)) == lines_of(RowMerger(TABLE), rows)
    assert len(merger) == len({change.key for change in changes})


@effort(50)
@given(st.lists(CHANGE, min_size=1, max_size=8))
def test_of_each_row_there_is_one_line_which_has_the_last_changes_number_and_uuid(changes: list[Change]) -> None:
    rows = rows_of(changes)
    last = {change.key: number for number, change in enumerate(changes)}
    expected = {
        (rows.column("uuid")[number].as_py(), rows.column(SEQUENCE)[number].as_py()) for number in last.values()
    }
    lines = [json.loads(line) for line in lines_of(RowMerger(TABLE), rows).splitlines()]
    told = [(line["datastream_metadata"]["uuid"], line["datastream_metadata"][SEQUENCE]) for line in lines]
    assert set(told) == expected
    assert len(told) == len(expected)
    assert {line["datastream_metadata"]["source_timestamp"] for line in lines} <= {AT // 1_000_000}
