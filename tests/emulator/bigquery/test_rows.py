import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument
from google.cloud.bigquery import SchemaField
from google.cloud.bigquery_storage_v1.types import AppendRowsRequest, RowError
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from emulator.bigquery.double import BigQueryDouble, StorageCode
from tests.emulator.bigquery.caller import (
    DATASET,
    Caller,
    calling,
    default,
    message,
    request,
    storage_code,
)

ID = SchemaField("id", "INT64", mode="REQUIRED")
NAME = SchemaField("name", "STRING")
PERSON = message(id="int64", name="string")
CHANGE = message(id="int64", name="string", _CHANGE_TYPE="string", _CHANGE_SEQUENCE_NUMBER="string")
INVALID = grpc.StatusCode.INVALID_ARGUMENT.value[0]
EXTRA = StorageCode.SCHEMA_MISMATCH_EXTRA_FIELDS
LITTLE = 1_500_000_000


@pytest.fixture(scope="module")
def module_caller() -> Iterator[Caller]:
    with BigQueryDouble.started() as double, calling(double) as called:
        yield called


@pytest.fixture
def caller(module_caller: Caller) -> Iterator[Caller]:
    yield module_caller
    for table in module_caller.double.tables(DATASET):
        module_caller.double.drop(DATASET, table)


def upsert(identity: int, name: str, sequence: str) -> dict[str, object]:
    return {"id": identity, "name": name, "_CHANGE_TYPE": "UPSERT", "_CHANGE_SEQUENCE_NUMBER": sequence}


def delete(identity: int, sequence: str) -> dict[str, object]:
    return {"id": identity, "_CHANGE_TYPE": "DELETE", "_CHANGE_SEQUENCE_NUMBER": sequence}


def test_missing_fields_of_appended_rows_are_null(caller: Caller) -> None:
    uuid = SchemaField("uuid", "STRING")
    inner = message("Meta", uuid="string", keys=["string"])
    table = caller.make(
        "t",
        ID,
        NAME,
        SchemaField("tags", "STRING", mode="REPEATED"),
        SchemaField(
            "meta", "RECORD", fields=[uuid, SchemaField("n", "INT64"), SchemaField("keys", "STRING", "REPEATED")]
        ),
        SchemaField("all", "RECORD", "REPEATED", fields=[uuid]),
    )
    schema = message(ID="int64", tags=["string"], meta=inner, all=[message("One", uuid="string")])
    rows: list[dict[str, object]] = [
        {"ID": 1, "tags": ["a", "b"], "meta": {"uuid": "u", "keys": ["k"]}, "all": [{"uuid": "v"}, {}]},
        {"ID": 2},
        {"ID": 2},
    ]
    answer = caller.append(default(table), schema, *rows)
    assert not answer.error.code
    assert "offset" not in answer.append_result
    empty: dict[str, object] = {"id": 2, "name": None, "tags": [], "meta": None, "all": []}
    assert caller.rows("t") == [
        {
            "id": 1,
            "name": None,
            "tags": ["a", "b"],
            "meta": {"uuid": "u", "n": None, "keys": ["k"]},
            "all": [{"uuid": "v"}, {"uuid": None}],
        },
        empty,
        empty,
    ]


@pytest.mark.parametrize(
    ("column", "proto", "value", "held"),
    [
        ("BOOL", "bool", True, True),
        ("INT64", "int64", -(2**63), -(2**63)),
        ("INT64", "int32", 5, 5),
        ("FLOAT64", "double", 0.1, 0.1),
        ("FLOAT64", "float", 0.5, 0.5),
        ("FLOAT64", "double", float("inf"), float("inf")),
        ("STRING", "string", "é\x00", "é\x00"),
        ("BYTES", "bytes", b"\x00\xff", b"\x00\xff"),
        ("DATE", "int32", -719162, date(1, 1, 1)),
        ("DATE", "int64", 2932896, date(9999, 12, 31)),
        ("DATE", "string", "2024-02-29", date(2024, 2, 29)),
        ("TIMESTAMP", "int64", -62135596800000000, datetime(1, 1, 1, tzinfo=UTC)),
        ("TIMESTAMP", "int64", 253402300799999999, datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
        ("TIMESTAMP", "string", "2024-01-02T03:04:05.123456Z", datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)),
        ("TIMESTAMP", "string", "2024-01-02 03:04:05 UTC", datetime(2024, 1, 2, 3, 4, 5, 0, UTC)),
        ("NUMERIC", "string", "-" + "9" * 29 + "." + "9" * 9, Decimal("-" + "9" * 29 + "." + "9" * 9)),
        ("NUMERIC", "string", "1.50000000000", Decimal("1.5")),
        ("NUMERIC", "string", "1e3", Decimal(1000)),
        ("NUMERIC", "bytes", LITTLE.to_bytes(5, "little", signed=True), Decimal("1.5")),
        ("BIGNUMERIC", "string", "5" * 38 + "." + "5" * 38, Decimal("5" * 38 + "." + "5" * 38)),
        ("JSON", "string", '{"a": [1, 2.50, null]}', '{"a": [1, 2.50, null]}'),
        ("JSON", "string", "null", "null"),
        ("DATETIME", "string", "2024-01-02T03:04:05", "2024-01-02T03:04:05"),
    ],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_values_are_converted_to_the_columns_type(
    caller: Caller, column: str, proto: str, value: object, held: object, repeated: bool
) -> None:
    table = caller.make("t", SchemaField("v", column, mode="REPEATED" if repeated else "NULLABLE"))
    answer = caller.append(
        default(table), message(v=[proto] if repeated else proto), {"v": [value, value] if repeated else value}
    )
    assert not answer.error.code, answer
    assert caller.rows("t") == [{"v": [held, held] if repeated else held}]


@pytest.mark.parametrize(
    ("column", "proto", "value", "why"),
    [
        ("DATE", "int32", -719163, "outside the years"),
        ("DATE", "int32", 2932897, "outside the years"),
        ("DATE", "string", "2023-02-29", "day"),
        ("DATE", "string", "today", "YYYY-MM-DD"),
        ("TIMESTAMP", "int64", 253402300800000000, "outside the years"),
        ("TIMESTAMP", "int64", -62135596800000001, "outside the years"),
        ("TIMESTAMP", "string", "2024-01-02T03:04:05.123456789Z", "form"),
        ("TIMESTAMP", "string", "0001-01-01T00:00:00+01:00", "outside the years"),
        ("NUMERIC", "string", "NaN", "is not a NUMERIC"),
        ("NUMERIC", "string", "Infinity", "is not a NUMERIC"),
        ("NUMERIC", "string", "1" + "0" * 29, "outside the range"),
        ("NUMERIC", "string", "0.0000000001", "more than 9 decimals"),
        ("NUMERIC", "bytes", b"\x00" * 17, "at most 16 bytes"),
        ("BIGNUMERIC", "string", "6e38", "outside the range"),
        ("JSON", "string", "{bad", "is not JSON"),
        ("JSON", "string", "NaN", "is not JSON"),
        ("JSON", "string", "", "is not JSON"),
    ],
)
def test_an_invalid_value_is_a_row_error(caller: Caller, column: str, proto: str, value: object, why: str) -> None:
    table = caller.make("t", SchemaField("v", column))
    answer = caller.append(default(table), message(v=proto), {"v": value})
    assert answer.error.code == INVALID
    assert [(error.index, error.code) for error in answer.row_errors] == [(0, RowError.RowErrorCode.FIELDS_ERROR)]
    assert why in answer.row_errors[0].message
    assert answer.row_errors[0].message.startswith("v: ")


def test_a_request_with_invalid_rows_applies_nothing_and_names_each(caller: Caller) -> None:
    inner = SchemaField("m", "RECORD", fields=[SchemaField("j", "JSON")])
    table = caller.make("t", ID, inner)
    schema = message(id="int64", m=message("M", j="string"))
    rows: list[dict[str, object]] = [{"id": 1}, {"m": {"j": "1"}}, {"id": 3, "m": {"j": "{"}}, {"id": 4}]
    answer = caller.append(default(table), schema, *rows)
    assert {error.index: error.message for error in answer.row_errors} == {
        1: "id: a required field is missing",
        2: "m.j: the string is not JSON",
    }
    assert "row_errors" in answer.error.message
    assert caller.rows("t") == []


def test_only_the_first_hundred_invalid_rows_are_named(caller: Caller) -> None:
    table = caller.make("t", ID, NAME)
    answer = caller.append(default(table), PERSON, *[{"name": "x"}] * 150)
    assert len(answer.row_errors) == 100


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x12\x01\xff\x08\x01", "name: the string is not UTF-8"),
        (b"\x08\x01\x18\x01", "that is not in the writer's schema"),
        (b"\x08", "not a message of the writer's schema"),
    ],
)
def test_bytes_that_are_not_a_row_are_a_row_error(caller: Caller, raw: bytes, why: str) -> None:
    table = caller.make("t", ID, NAME)
    [answer] = caller.send([request(default(table), PERSON, raw)])
    assert why in answer.row_errors[0].message


def test_a_field_that_the_writers_schema_requires_is_required(caller: Caller) -> None:
    table = caller.make("t", NAME)
    schema = message(name="string")
    schema.field[0].label = FieldDescriptorProto.LABEL_REQUIRED
    [answer] = caller.send([request(default(table), schema, b"")])
    assert "lacks a field that the writer's schema requires" in answer.row_errors[0].message


@pytest.mark.parametrize(
    ("column", "proto"),
    [
        ("BOOL", "int64"), ("INT64", "string"), ("INT64", "uint64"), ("FLOAT64", "int64"), ("STRING", "bytes"),
        ("BYTES", "string"), ("DATE", "uint32"), ("TIMESTAMP", "double"), ("NUMERIC", "double"), ("JSON", "bytes"),
    ],
)  # fmt: skip
def test_incompatible_types_are_rejected(caller: Caller, column: str, proto: str) -> None:
    table = caller.make("t", SchemaField("v", column))
    answer = caller.append(default(table), message(v=proto))  # refused before there is a row
    assert answer.error.code == INVALID
    answer = caller.append(default(table), message(v=proto), {})
    assert f"at v, the proto field type {proto}, BigQuery field type {column}" in answer.error.message
    assert not answer.row_errors


@pytest.mark.parametrize(
    ("schema", "why", "code"),
    [
        (message(id="int64", more="string"), "extra fields in user schema: more", EXTRA),
        (message(id="int64", m=message("M", z="string")), "user schema: m.z", EXTRA),
        (message(name="string"), "The required field id is missing", None),
        (message(id="int64", name=["string"]), "do not agree on being repeated", None),
        (message(id="int64", m="string"), "BigQuery field type STRUCT", None),
        (message(id="int64", name=message("M", z="string")), "proto field type message", None),
        (message(id="int64", _CHANGE_TYPE="string"), "not a valid CHANGE_TYPE in insert mode", None),
        (message(id="int64", _CHANGE_SEQUENCE_NUMBER="string"), "only valid together", None),
        (DescriptorProto(name=""), "Invalid proto schema", None),
    ],
)
def test_a_writers_schema_that_does_not_fit_the_table_is_rejected(
    caller: Caller, schema: DescriptorProto, why: str, code: StorageCode | None
) -> None:
    inner = SchemaField("m", "RECORD", fields=[SchemaField("j", "JSON")])
    table = caller.make("t", ID, NAME, inner)
    [answer] = caller.send([request(default(table), schema, b"")])
    assert answer.error.code == INVALID
    assert why in answer.error.message
    assert storage_code(answer) is code
    assert caller.rows("t") == []


def test_a_request_is_small_and_has_rows_and_at_first_a_schema(caller: Caller) -> None:
    table = caller.make("t", ID, NAME)
    with pytest.raises(InvalidArgument, match="AppendRows request too large"):
        caller.append(default(table), PERSON, {"id": 1, "name": "x" * 20_000_000})
    answers = caller.send(
        [
            request(default(table), PERSON, {"id": 1}, described=False),
            request("", PERSON, {"id": 2}),
            request("", PERSON, {"id": 3}, described=False),
            request("", PERSON),
            AppendRowsRequest(write_stream=default(table), arrow_rows=AppendRowsRequest.ArrowData()),
        ]
    )
    assert [answer.error.message for answer in answers] == [
        "Writer schema is missing: the first request to a stream must have it",
        "",
        "",
        "Rows must be specified",
        "The double supports only rows as protocol buffers, and a request must have some",
    ]
    assert [row["id"] for row in caller.rows("t")] == [2, 3]


def test_a_connection_receives_the_schema_with_new_columns(caller: Caller) -> None:
    table = caller.make("t", ID)
    stream = default(table)
    first_answer = threading.Event()

    def requests() -> Iterator[AppendRowsRequest]:
        yield request(stream, message(id="int64"), {"id": 1})
        assert first_answer.wait(300)  # gRPC takes requests before the earlier ones are answered
        found = caller.tables.get_table(caller.name("t"))
        found.schema = [ID, NAME]
        caller.tables.update_table(found, ["schema"])
        yield request(stream, message(id="int64"), {"id": 2})
        yield request(stream, PERSON, {"id": 3, "name": "c"})

    updated = []
    for answer in caller.write.append_rows(requests(), retry=None):
        updated.append([field.name for field in answer.updated_schema.fields])
        first_answer.set()
    assert updated == [[], ["id", "name"], []]
    assert caller.rows("t")[-2:] == [{"id": 2, "name": None}, {"id": 3, "name": "c"}]


def test_the_change_with_the_highest_number_wins_in_any_order(caller: Caller) -> None:
    table = caller.make("t", ID, NAME, key=["id"])
    stream = default(table)
    caller.append(stream, CHANGE, upsert(1, "b", "0/2"), upsert(1, "a", "0/1"), upsert(2, "x", "5"))
    assert caller.rows("t") == [{"id": 1, "name": "b"}, {"id": 2, "name": "x"}]
    caller.append(stream, CHANGE, upsert(1, "c", "0/A"), upsert(1, "no", "0/9"), upsert(2, "y", "FFF/ABC"))
    caller.append(stream, CHANGE, upsert(2, "no", "ABC"), upsert(2, "no", "FFF/B"))
    assert caller.rows("t") == [{"id": 1, "name": "c"}, {"id": 2, "name": "y"}]


def test_an_older_upsert_does_not_restore_a_deleted_row(caller: Caller) -> None:
    table = caller.make("t", ID, NAME, key=["ID"])
    stream = default(table)
    caller.append(stream, CHANGE, delete(1, "2"), upsert(1, "old", "1"), upsert(2, "kept", "1"))
    assert caller.rows("t") == [{"id": 2, "name": "kept"}]
    caller.append(stream, CHANGE, upsert(1, "new", "3"), delete(2, "2"))
    assert caller.rows("t") == [{"id": 1, "name": "new"}]


def test_a_replay_changes_nothing_and_different_changes_with_one_number_are_conflicts(caller: Caller) -> None:
    table = caller.make("t", ID, NAME, key=["id"])
    changes = [upsert(1, "a", "1"), delete(1, "2"), upsert(2, "b", "1"), upsert(1, "c", "3")]
    for _ in range(2):
        caller.append(default(table), CHANGE, *changes)
    assert caller.rows("t") == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]
    assert caller.double.conflicts(DATASET, "t") == 0
    caller.append(default(table), CHANGE, upsert(1, "other", "3"))
    assert caller.double.conflicts(DATASET, "t") == 1


def test_an_upsert_replaces_the_whole_row(caller: Caller) -> None:
    table = caller.make("t", ID, NAME, SchemaField("n", "INT64"), key=["id"])
    wide = message(id="int64", n="int64", _CHANGE_TYPE="string", _CHANGE_SEQUENCE_NUMBER="string")
    caller.append(default(table), CHANGE, upsert(1, "a", "1"))
    caller.append(default(table), wide, {"id": 1, "n": 5, "_CHANGE_TYPE": "UPSERT", "_CHANGE_SEQUENCE_NUMBER": "2"})
    assert caller.rows("t") == [{"id": 1, "name": None, "n": 5}]


def test_a_composite_key_may_hold_null(caller: Caller) -> None:
    table = caller.make("t", SchemaField("id", "INT64"), NAME, key=["id", "name"])
    row = {"name": "a", "_CHANGE_TYPE": "UPSERT", "_CHANGE_SEQUENCE_NUMBER": "1"}
    caller.append(default(table), CHANGE, row, {**row, "id": 1}, row)
    assert caller.rows("t") == [{"id": None, "name": "a"}, {"id": 1, "name": "a"}]


def test_without_numbers_a_later_request_wins_and_in_one_request_the_first_row(caller: Caller) -> None:
    table = caller.make("t", ID, NAME, key=["id"])
    schema = message(id="int64", name="string", _CHANGE_TYPE="string")
    for names in ("ab", "cd"):
        rows = [{"id": 1, "name": name, "_CHANGE_TYPE": "UPSERT"} for name in names]
        caller.append(default(table), schema, *rows)
    assert caller.rows("t") == [{"id": 1, "name": "c"}]


def test_changes_need_the_default_stream_and_a_table_with_a_key(caller: Caller) -> None:
    plain = caller.make("plain", ID, NAME)
    keyed = caller.make("keyed", ID, NAME, key=["id"])
    for stream in (default(plain), caller.pend(keyed)):
        answer = caller.append(stream, CHANGE, upsert(1, "a", "1"))
        assert "not a valid CHANGE_TYPE in insert mode" in answer.error.message
    keyless = message(name="string", _CHANGE_TYPE="string")
    table = caller.make("t", SchemaField("id", "INT64"), NAME, key=["id"])
    answer = caller.append(default(table), keyless, {"name": "a", "_CHANGE_TYPE": "UPSERT"})
    assert "The primary key column id is missing" in answer.error.message


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"id": 1}, "neither UPSERT nor DELETE"),
        ({"id": 1, "_CHANGE_TYPE": "INSERT"}, "neither UPSERT nor DELETE"),
        (upsert(1, "a", ""), "one to four sections"),
        (upsert(1, "a", "1/2/3/4/5"), "one to four sections"),
        (upsert(1, "a", "12345678901234567"), "one to four sections"),
        (upsert(1, "a", "1/"), "one to four sections"),
        (upsert(1, "a", "0x1"), "one to four sections"),
        (upsert(1, "a", "1\n"), "one to four sections"),
    ],
)
def test_an_invalid_change_is_a_row_error(caller: Caller, row: dict[str, object], why: str) -> None:
    table = caller.make("t", ID, NAME, key=["id"])
    answer = caller.append(default(table), CHANGE, upsert(2, "b", "1"), row)
    assert [(error.index, why in error.message) for error in answer.row_errors] == [(1, True)]
    assert caller.rows("t") == []


def test_a_row_with_an_injected_invalid_value_is_rejected(caller: Caller) -> None:
    table = caller.make("t", ID, NAME)
    caller.double.refuse("name", "poison", "cannot be accepted")
    answer = caller.append(default(table), PERSON, {"id": 1, "name": "a"}, {"id": 2, "name": "poison"})
    assert [(error.index, error.message) for error in answer.row_errors] == [(1, "name: cannot be accepted")]
    assert not caller.append(default(table), PERSON, {"id": 1, "name": "a"}).error.code
