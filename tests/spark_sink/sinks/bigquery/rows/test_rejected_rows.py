"""Rows that BigQuery cannot hold are rejected, each with its reason, and the others are built."""

import json

import numpy as np
import pyarrow as pa
import pytest

from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.rows.builder import LARGEST, check_whole_rows
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, bigquery_table
from tests.connector.builders import column
from tests.spark_sink.sinks.bigquery.rows.built import (
    BYTES,
    DATE,
    FLOAT64,
    INT64,
    NOW,
    NUMERIC,
    PG_NUMERIC,
    STRING,
    TIMESTAMP,
    WIDE,
    array_of,
    builder_of,
    change,
    decoded,
    enveloped,
    of_column,
)


@pytest.mark.parametrize(
    ("type_json", "text", "reason"),
    [
        (INT64, '"secret"', "column v of table Singers holds a value that does not fit its type"),
        (INT64, '"9223372036854775808"', "column v of table Singers"),
        (DATE, '"secret"', "column v of table Singers"),
        (TIMESTAMP, '"secret"', "column v of table Singers"),
        (BYTES, '"secret!"', "column v of table Singers"),
        (FLOAT64, '"secret"', "column v of table Singers"),
        (STRING, '["secret"]', "column v of table Singers"),
        (array_of(INT64), '["secret"]', "column v of table Singers"),
        (array_of(STRING), '"secret"', "column v of table Singers"),
        (array_of(STRING), '{"secret":1}', "column v of table Singers"),
        (NUMERIC, '"NaN"', "column v has a number that BigQuery's NUMERIC cannot hold"),
        (NUMERIC, '"0.1234567891"', "column v has a number that BigQuery's NUMERIC cannot hold"),
        (NUMERIC, f'"1{"0" * 29}"', "column v has a number that BigQuery's NUMERIC cannot hold"),
        (array_of(NUMERIC), '["1","secret"]', "column v has a number that BigQuery's NUMERIC cannot hold"),
        (array_of(INT64), '["1",null,"2"]', "column v has a NULL inside an array, which BigQuery's REPEATED"),
        (array_of(TIMESTAMP), "[null]", "columns cannot hold: set sink.arrays: json"),
        (array_of('{"code":"TYPE_OF_TOMORROW"}'), '["secret",null]', "set sink.arrays: json"),
    ],
)
def test_what_bigquery_cannot_hold_is_rejected_and_the_others_are_built(type_json: str, text: str, reason: str) -> None:
    columns = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    bad = {3, 4, 11}
    payloads = [f'{{"Id":"{n}","v":{text if n in bad else "null"}}}' for n in range(13)]
    builder = builder_of(columns, "merge")
    built = builder.build(enveloped(change(columns, *payloads)), now=NOW)
    assert [refused.index for refused in built.rejected] == [3, 4, 11]
    for refused in built.rejected:
        assert reason in refused.reason
        assert "secret" not in refused.reason
        assert "Avro" not in refused.reason
    assert [row["Id"] for row in decoded(builder, built)] == [n for n in range(13) if n not in bad]
    assert built.indexes.tolist() == [n for n in range(13) if n not in bad]
    assert built.indexes.dtype == np.int64


def test_a_bignumeric_has_38_digits_before_the_point_and_after_it() -> None:
    good, bad = f'"{"9" * 38}.{"9" * 38}"', [f'"{"9" * 40}"', f'"0.{"1" * 39}"', '"NaN"']
    values, refused = of_column(PG_NUMERIC, *bad, good, numeric="bignumeric")
    assert values == [json.loads(good)]
    assert refused == ["column v has a number that BigQuery's BIGNUMERIC cannot hold"] * 3


WRAPPING = (str(2**256 - 1), "5" * 60, "-" + "7" * 77, str(2**128 - 1), "9" * 39)
"""Numbers that Arrow's decimals take, or may take, as other ones."""


@pytest.mark.parametrize("text", WRAPPING)
@pytest.mark.parametrize(("type_json", "kind"), [(PG_NUMERIC, "BIGNUMERIC"), (NUMERIC, "NUMERIC")])
def test_a_number_of_too_many_digits_is_rejected_in_every_mode(type_json: str, kind: str, text: str) -> None:
    why = f"column v has a number that BigQuery's {kind} cannot hold"
    assert of_column(type_json, f'"{text}"', '"1.5"', numeric="bignumeric") == (["1.5"], [why])
    assert of_column(array_of(type_json), f'["1","{text}"]', numeric="bignumeric") == ([], [why])
    columns = (column("Id", "INT64", 1, key=True), ColumnType("v", type_json, False, 2))
    options = BigQueryTableOptions("ds", "merge-load", numeric="bignumeric")
    merger = RowMerger(bigquery_table(TableSchema.of("Singers", columns), options))
    rejected = merger.add(enveloped(change(columns, f'{{"Id":"1","v":"{text}"}}', '{"Id":"2","v":"1.5"}')))
    assert ([index for index, _ in rejected], len(merger)) == ([0], 1)


@pytest.mark.parametrize("payload", ['{"Name":"n"}', '{"Id":null,"Code":"c"}', "{}"])
def test_a_merged_row_without_its_whole_key_is_rejected(payload: str) -> None:
    batch = enveloped(change(WIDE, payload, '{"Id":"7","Code":"c"}'))
    built = builder_of(WIDE, "merge").build(batch, now=NOW)
    assert built.indexes.tolist() == [1]
    assert [one.reason for one in built.rejected] == ["the key column Id is NULL or missing"]
    appended = builder_of(WIDE, "append-only").build(batch, now=NOW)
    assert appended.rejected == ()


def test_a_key_that_would_lose_digits_is_rejected() -> None:
    columns = (ColumnType("T", TIMESTAMP, True, 1),)
    texts = ("05.123456789Z", "05.123456Z", "05.123456000Z", "05.000000001Z", "05Z", "05.1234567+01:00")
    batch = enveloped(change(columns, *(f'{{"T":"2026-01-02T03:04:{text}"}}' for text in texts)))
    built = builder_of(columns, "merge").build(batch, now=NOW)
    assert [refused.index for refused in built.rejected] == [0, 3, 5]
    cannot = "the key column T has digits below a microsecond, which BigQuery's TIMESTAMP cannot hold"
    assert {one.reason for one in built.rejected} == {
        f"{cannot}: set sink.timestamps: text, and another sink.dataset, because a key column keeps its type"
    }
    assert len(builder_of(columns, "merge", timestamps="text").build(batch, now=NOW).rows) == 6
    assert len(builder_of(columns, "append-only").build(batch, now=NOW).rows) == 6


def test_a_key_that_is_not_a_timestamp_is_rejected() -> None:
    columns = (ColumnType("T", TIMESTAMP, True, 1),)
    batch = enveloped(change(columns, '{"T":"secret"}', '{"T":"2026-01-02T03:04:05Z"}'))
    (refused,) = builder_of(columns, "merge").build(batch, now=NOW).rejected
    assert refused.reason == "the key column T has a text that is not a valid timestamp"


@pytest.mark.parametrize("payload", [None, "", "null", "[1]", "5", '{"Id":"1"', '{"Id":"1"},{"Id":"2"}'])
def test_a_payload_that_is_not_an_object_is_rejected(payload: str | None) -> None:
    columns = (column("Id", "INT64", 1, key=True),)
    batch = enveloped(change(columns, '{"Id":"1"}', '{"Id":"2"}', '{"Id":"3"}'))
    at = batch.schema.get_field_index("payload")
    payloads = ['{"Id":"1"}', payload, '{"Id":"3"}']
    builder = builder_of(columns)
    built = builder.build(batch.set_column(at, "payload", pa.array(payloads, pa.string())), now=NOW)
    assert [refused.index for refused in built.rejected] == [1]
    assert "the row of table Singers" in built.rejected[0].reason
    assert [row["Id"] for row in decoded(builder, built)] == [1, 3]


def test_payloads_that_are_objects_only_together_are_rejected() -> None:
    columns = (column("Id", "INT64", 1, key=True), column("Name", "STRING", 2))
    batch = enveloped(change(columns, "{}", "{}"))
    at = batch.schema.get_field_index("payload")
    halves = pa.array(['{"Id":"1"', '"Name":"n"}'])
    assert len(builder_of(columns).build(batch.set_column(at, "payload", halves), now=NOW).rejected) == 2


def test_a_column_that_the_table_does_not_have_is_not_lost_silently() -> None:
    columns = (column("Id", "INT64", 1, key=True),)
    batch = enveloped(change(columns, '{"Id":"1"}', '{"Id":"2","New":"secret"}'))
    (refused,) = builder_of(columns).build(batch, now=NOW).rejected
    assert refused.index == 1
    assert "column New, which the schema does not know, of table Singers" in refused.reason
    assert "secret" not in refused.reason


def test_a_row_that_is_too_large_is_rejected() -> None:
    columns = (column("Id", "INT64", 1, key=True), column("s", "STRING", 2))
    builder = builder_of(columns, "merge")
    small = builder.build(enveloped(change(columns, '{"Id":"1","s":""}')), now=NOW)
    room = LARGEST - len(small.rows[0].as_py()) - 3  # the length takes three bytes more
    payloads = [f'{{"Id":"1","s":"{"x" * length}"}}' for length in (1, room, room + 1, 24_000_000, 2)]
    built = builder.build(enveloped(change(columns, *payloads)), now=NOW)
    assert built.indexes.tolist() == [0, 1, 4]
    assert len(built.rows[1].as_py()) == LARGEST
    assert [(one.index, one.reason) for one in built.rejected] == [
        (number, "the row is too large for BigQuery: it has more than 19,500,000 bytes") for number in (2, 3)
    ]


def test_a_merged_event_without_its_sequence_number_is_rejected() -> None:
    batch = enveloped(change(WIDE, '{"Id":"7","Code":"c"}'))
    at = batch.schema.get_field_index("change_sequence_number")
    batch = batch.set_column(at, "change_sequence_number", pa.nulls(1, pa.string()))
    (refused,) = builder_of(WIDE, "merge").build(batch, now=NOW).rejected
    assert refused.reason == "the event has no change_sequence_number"


@pytest.mark.parametrize("captured", ["OLD_AND_NEW_VALUES", "NEW_VALUES", None])
def test_updates_that_hold_only_what_changed_are_never_merged(captured: str | None) -> None:
    full = '{"Id":"7","Code":"c"}'
    inserts = change(WIDE, full, value_capture_type=captured or "")
    batch = enveloped(inserts, change(WIDE, full, mod_type="UPDATE", value_capture_type=captured or ""))
    if captured is None:
        batch = without_capture_type(batch)
    check_whole_rows(batch.slice(0, 1))
    for check in (check_whole_rows, lambda rows: builder_of(WIDE, "merge").build(rows, now=NOW)):
        with pytest.raises(SinkError) as caught:
            check(batch)
        assert str(caught.value) == (
            "table Singers has an update without the columns that did not change, which would be NULL: merge needs"
            f" whole rows, and change stream Everything captures {captured}: ALTER CHANGE STREAM Everything SET OPTIONS"
            " (value_capture_type = 'NEW_ROW') (PostgreSQL: ALTER CHANGE STREAM \"Everything\" SET"
            " (value_capture_type = 'NEW_ROW')), or take mode merge-load, or set source.complete_rows"
        )
    assert builder_of(WIDE, "append-only").build(batch, now=NOW).rejected == ()


def without_capture_type(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = [
        {**row, "source_metadata": {**row["source_metadata"], "value_capture_type": None}} for row in batch.to_pylist()
    ]
    return pa.RecordBatch.from_pylist(rows, batch.schema)


@pytest.mark.parametrize("captured", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_updates_of_whole_rows_are_merged(captured: str) -> None:
    batch = enveloped(change(WIDE, '{"Id":"7","Code":"c"}', mod_type="UPDATE", value_capture_type=captured))
    assert len(builder_of(WIDE, "merge").build(batch, now=NOW).rows) == 1
