"""A record that cannot be decoded is named: its table, commit and transaction, its column, and no value of it."""

from base64 import b64encode
from typing import Any

import orjson
import pytest
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import GOOGLESQL, IMMUTABLE, MUTABLE, POSTGRESQL
from connector.spanner.decoding.decoder import Decoder, walk
from connector.spanner.decoding.googlesql import is_known
from connector.spanner.decoding.row_fields import UnknownRecordError

SECRET = "Xq7secret"
AT = "2026-01-02T03:04:05.123456789Z"
TYPES: list[Any] = [["Id", '{"code":"INT64"}', True, "1"]]
MODS = [['{"Id":"1"}', "{}", "{}"]]
NAMED = f"(table T, committed at {AT}, server_transaction_id tx)"
DOCUMENT = {
    "commit_timestamp": AT,
    "record_sequence": "00000001",
    "server_transaction_id": "tx",
    "is_last_record_in_transaction_in_partition": True,
    "table_name": "T",
    "column_types": [{"name": "Id", "type": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1}],
    "mods": [],
    "mod_type": "INSERT",
    "value_capture_type": "NEW_ROW",
    "number_of_records_in_transaction": 1,
    "number_of_partitions_in_transaction": 1,
}
DataChange = types.ChangeStreamRecord.DataChangeRecord
COLUMN = {"name": "Id", "type_": {"code": "INT64"}, "is_primary_key": True, "ordinal_position": 1}


def data_change(**changed: Any) -> list[Any]:
    fields = {
        "commit_timestamp": AT, "record_sequence": "00000001", "server_transaction_id": "tx", "last": True,
        "table": "T", "types": TYPES, "mods": MODS, "mod_type": "UPDATE", "capture": "NEW_ROW",
        "records": "2", "partitions": "1", "tag": "app=x", "system": False,
    }  # fmt: skip
    return list({**fields, **changed}.values())


def googlesql(data: list[Any]) -> Value:
    return ParseDict([[data, [], []]], Value())


def postgresql(**document: Any) -> Value:
    return Value(string_value=orjson.dumps(document).decode())


def mutable(**fields: Any) -> Value:
    record = types.ChangeStreamRecord(
        data_change_record=DataChange(
            **{
                "commit_timestamp": AT, "record_sequence": "1", "server_transaction_id": "tx", "table": "T",
                "column_metadata": [COLUMN], "mod_type": 10, "value_capture_type": 10, **fields,
            }
        )
    )  # fmt: skip
    return Value(string_value=b64encode(types.ChangeStreamRecord.serialize(record)).decode())


def error_of(dialect: Any, mode: str, row: Value) -> str:
    decode = Decoder(walk(dialect, mode), None, is_known)
    with pytest.raises(UnknownRecordError) as caught:
        decode([types.PartialResultSet.pb()(values=[row]).SerializeToString()], 0)
    return str(caught.value)


ROWS = {
    "a payload": (GOOGLESQL, IMMUTABLE, googlesql([data_change(mods=[[f'["{SECRET}"]', "{}", "{}"]])])),
    "a flag": (GOOGLESQL, IMMUTABLE, googlesql([data_change(last=SECRET, mods=MODS)])),
    "a payload of PostgreSQL": (
        POSTGRESQL, IMMUTABLE, postgresql(data_change_record={**DOCUMENT, "mods": [{"keys": [SECRET]}]}),
    ),
    "a flag of PostgreSQL": (
        POSTGRESQL, IMMUTABLE,
        postgresql(data_change_record={**DOCUMENT, "is_last_record_in_transaction_in_partition": SECRET}),
    ),
    "a mod type": (GOOGLESQL, MUTABLE, mutable(mod_type=77)),
    "a value": (GOOGLESQL, MUTABLE, mutable(mods=[{"keys": [{"column_metadata_index": 0}]}])),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_record_that_cannot_be_decoded_is_named_without_its_values(name: str) -> None:
    said = error_of(*ROWS[name])
    assert said.endswith(NAMED)
    assert SECRET not in said


@pytest.mark.parametrize(
    ("dialect", "mode", "row"),
    [
        (GOOGLESQL, IMMUTABLE, googlesql([data_change(types=[*TYPES, ["Odd", SECRET, False, "3"]])])),
        (
            POSTGRESQL, IMMUTABLE,
            postgresql(data_change_record={**DOCUMENT, "column_types": [
                {"name": "Odd", "type": SECRET, "is_primary_key": False, "ordinal_position": 1}
            ]}),
        ),
        (GOOGLESQL, MUTABLE, mutable(column_metadata=[{"name": "Odd"}], mods=[{"keys": [{}]}])),
    ],
    ids=["googlesql", "postgresql", "mutable"],
)  # fmt: skip
def test_the_column_is_named_whose_type_or_value_cannot_be_decoded(dialect: Any, mode: str, row: Value) -> None:
    said = error_of(dialect, mode, row)
    assert said.startswith("column Odd: ")
    assert said.endswith(NAMED)
    assert SECRET not in said


@pytest.mark.parametrize("table", [f"{SECRET} and more", '{"a":1}', ["T"]])
def test_what_does_not_look_like_a_name_is_not_shown(table: Any) -> None:
    said = error_of(GOOGLESQL, IMMUTABLE, googlesql([data_change(table=table, last=SECRET, mods=MODS)]))
    assert said.endswith(f"(committed at {AT}, server_transaction_id tx)")
    assert SECRET not in said


def test_a_row_of_no_known_form_is_an_error_without_a_name() -> None:
    said = error_of(GOOGLESQL, IMMUTABLE, ParseDict([[SECRET]], Value()))
    assert SECRET not in said
