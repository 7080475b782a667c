"""Changes of a table with ``PRIMARY KEY()``, which has at most one row and no key columns, are read and written."""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pytest
from google.protobuf.struct_pb2 import Value

from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.core.text_columns import objects, splice
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.envelope.events import EventWriter
from connector.envelope.opencdc import OpenCdcWriter
from connector.spanner.decoding.decoder import decoder, walk
from connector.spanner.decoding.row_fields import UnknownRecordError
from tests.connector.builders import record
from tests.property.decoding.change_rows import DataChange, Json, Style, googlesql, postgresql, text, value
from tests.property.decoding.framed import field
from tests.property.decoding.row_types import METADATA

SOURCE = Source("project", "instance", "database", "Everything", "public")
V = ColumnType("V", '{"code":"STRING"}', False, 1)


def change(keys: str, new: str = '{"V":"a"}', old: str = "{}") -> DataChange:
    return DataChange(
        commit_timestamp="2026-01-02T03:04:05.123456Z",
        record_sequence="00000000",
        server_transaction_id="tx",
        is_last_record_in_transaction_in_partition=True,
        table=("Keyless", [("V", '{"code":"STRING"}', False, 1)]),
        mods=[(keys, new, old)],
        mod_type="INSERT",
        value_capture_type="NEW_ROW",
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
        transaction_tag="",
        is_system_transaction=False,
    )


def googlesql_rows(one: DataChange, keys: str | None) -> Value:
    row: Any = [googlesql(one)]
    row[0][0][0][6][0][0] = keys
    return value(row)


def postgresql_rows(one: DataChange, keys: str | None) -> Value:
    document = postgresql(one)
    (mod,) = document["data_change_record"]["mods"]
    if keys is None:
        del mod["keys"]
    else:
        mod["keys"] = Json(keys)
    return Value(string_value=text(document, Style()))


Rows = Callable[[DataChange, str | None], Value]
both = pytest.mark.parametrize(("dialect", "rows"), [("googlesql", googlesql_rows), ("postgresql", postgresql_rows)])


def read(dialect: str, row: Value, monkeypatch: pytest.MonkeyPatch) -> list[DataChangeRecord]:
    """Returns a row's record from the row decoder, and from the column decoder."""
    of = GOOGLESQL if dialect == "googlesql" else POSTGRESQL
    monkeypatch.setattr("connector.spanner.decoding.decoder.FEW", 0)
    fast = decoder(of, IMMUTABLE)()
    fast([field(1, METADATA[dialect])], 0)
    (found,) = fast([field(2, row.SerializeToString())], 0)
    assert isinstance(found, Changes)
    (walked,) = walk(of, IMMUTABLE)(row, 0)
    assert isinstance(walked, DataChangeRecord)
    return [walked, *found.records()]


@both
@pytest.mark.parametrize("keys", ["null", "{}", "{ }", None])
def test_keys_that_are_null_empty_or_missing_mean_the_same(
    dialect: str, rows: Rows, keys: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dialect == "googlesql" and keys is None:  # NULL, which the column decoder declines
        (walked,) = walk(GOOGLESQL, IMMUTABLE)(rows(change("{}"), None), 0)
        assert isinstance(walked, DataChangeRecord)
        assert walked.mods == (Mod("{}", '{"V":"a"}', "{}"),)
        return
    for found in read(dialect, rows(change("{}"), keys), monkeypatch):
        assert [json.loads(mod.keys) for mod in found.mods] == [{}]
        assert [mod.new_values for mod in found.mods] == ['{"V":"a"}']


@both
@pytest.mark.parametrize("payload", ["[]", "5", "true", '"x"', '["a"]'])
def test_a_payload_that_is_not_an_object_is_rejected_without_showing_its_text(
    dialect: str, rows: Rows, payload: str
) -> None:
    with pytest.raises(UnknownRecordError, match="new_values is not a JSON object") as raised:
        walk(GOOGLESQL if dialect == "googlesql" else POSTGRESQL, IMMUTABLE)(rows(change("{}", payload), "{}"), 0)
    assert payload not in str(raised.value).replace("5", "")


@pytest.mark.parametrize("payload", ["", "nul", "{", '{"a":1', "x"])
def test_a_payload_that_is_not_json_is_rejected(payload: str) -> None:
    with pytest.raises(UnknownRecordError):
        walk(GOOGLESQL, IMMUTABLE)(googlesql_rows(change("{}", payload), "{}"), 0)


def test_whitespace_around_an_object_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    (walked,) = walk(GOOGLESQL, IMMUTABLE)(googlesql_rows(change("{}", ' {"V":"a"}\n'), " null "), 0)
    assert isinstance(walked, DataChangeRecord)
    assert walked.mods == (Mod("{}", '{"V":"a"}', "{}"),)


def built(*records: DataChangeRecord) -> tuple[pa.RecordBatch, SchemaRegistry]:
    registry = SchemaRegistry()
    builder = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")
    return builder.build(Changes.of(records), registry, 1), registry


MIXED = (
    record(table_name="Keyless", column_types=(V,), mods=(Mod("null", '{"V":"a"}', "null"),)),
    record(record_sequence="2"),
    record(table_name="Keyless", column_types=(V,), mods=(Mod("null", "null", '{"V":"a"}'),), mod_type="DELETE"),
)
"""Records as a decoder of an earlier version may have returned them."""


def test_payloads_of_a_table_without_key_columns_are_json_beside_those_of_others() -> None:
    batch, _ = built(*MIXED)
    rows = sorted(zip(batch.column("object").to_pylist(), batch.column("payload").to_pylist(), strict=True))
    assert rows == [("Keyless", '{"V":"a"}'), ("Keyless", '{"V":"a"}'), ("Singers", '{"Id":"1","Name":"a"}')]
    assert batch.column("before").to_pylist() == [None, None, '{"V":"a"}']


def test_events_and_opencdc_records_of_a_keyless_table_have_no_keys() -> None:
    batch, registry = built(*MIXED)
    events = [orjson.loads(line) for line in EventWriter(registry.by_key).lines(batch)]
    assert [event["source_metadata"]["primary_keys"] for event in events] == [[], ["Id"], []]
    assert [event["payload"] for event in events] == [{"V": "a"}, {"Id": 1, "Name": "a"}, {"V": "a"}]
    assert len({event["uuid"] for event in events}) == 3 - 1  # two of these records have the same sequence
    changes = [orjson.loads(line) for line in OpenCdcWriter(registry.by_key).lines(batch)]
    assert [one["key"] for one in changes] == [{}, {"Id": 1}, {}]
    assert [one["payload"]["after"] for one in changes] == [{"V": "a"}, {"Id": 1, "Name": "a"}, None]


def test_only_objects_are_spliced() -> None:
    odd = pa.array(["null", ' {"a":1} ', '{"b":2}', "{}"], pa.string())
    assert objects(odd).to_pylist() == ["{}", '{"a":1}', '{"b":2}', "{}"]
    assert splice(objects(odd), odd.slice(2).take(pa.array([0, 0, 0, 1]))).to_pylist() == [
        '{"b":2}', '{"a":1,"b":2}', '{"b":2,"b":2}', "{}",
    ]  # fmt: skip
    for wrong in ("[1]", "5", "nul", ""):
        with pytest.raises(ValueError, match=r"object|JSON|data|column"):
            objects(pa.array([wrong], pa.string()))
