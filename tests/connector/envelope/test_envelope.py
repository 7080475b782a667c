from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.records import DataChangeRecord, Mod
from connector.core.schemas import SchemaRegistry
from connector.core.text_columns import change_sequence_numbers, splice
from connector.envelope.envelope import (
    SCHEMA,
    SOURCE_METADATA,
    EnvelopeBuilder,
    Source,
)
from tests.connector.builders import AT, COLUMNS, column, record

SOURCE = Source("project", "instance", "database", "Everything", "public")


def built(*records: DataChangeRecord, epoch: int = 7, source: Source = SOURCE, **options: Any) -> list[dict[str, Any]]:
    options = {"stream_name": None, "read_method": "spanner-cdc"} | options
    batch = EnvelopeBuilder(source, **options).build(Changes.of(records), SchemaRegistry(), epoch)
    assert batch.schema == SCHEMA
    # Nanoseconds would need pandas; the two timestamps are microseconds, compared as integers.
    plain = pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in SCHEMA])
    rows: list[dict[str, Any]] = pa.table(batch.columns, SCHEMA).cast(plain).to_pylist()
    return rows


def one(**changed: Any) -> dict[str, Any]:
    (row,) = built(record(**changed))
    return row


def test_every_column_of_the_contract_is_there_in_order_with_its_type() -> None:
    found = [(field.name, str(field.type)) for field in SCHEMA if field.name != "source_metadata"]
    assert found == [
        ("stream_name", "string"),
        ("read_method", "string"),
        ("object", "string"),
        ("schema_key", "string"),
        ("uuid", "string"),
        ("read_timestamp", "timestamp[us, tz=UTC]"),
        ("source_timestamp", "timestamp[us, tz=UTC]"),
        ("sort_keys", "list<element: string>"),
        ("change_sequence_number", "string"),
        ("payload", "string"),
        ("before", "string"),
        ("epoch", "int64"),
    ]
    assert SCHEMA.names.index("source_metadata") == 9
    assert all(field.nullable for field in SCHEMA)


def test_every_field_of_the_source_metadata_is_there_with_its_type() -> None:
    counts = {"mod_index", "number_of_records_in_transaction", "number_of_partitions_in_transaction"}
    flags = {"snapshot", "system_transaction", "is_last_record_in_transaction_in_partition", "is_deleted"}
    texts = {
        "commit_timestamp", "project_id", "instance_id", "database_id", "change_stream_name", "schema", "database",
        "table", "server_transaction_id", "record_sequence", "transaction_tag", "value_capture_type", "mod_type",
        "change_type",
    }  # fmt: skip
    found = {field.name: str(field.type) for field in SOURCE_METADATA}
    expected = dict.fromkeys(counts, "int64") | dict.fromkeys(flags, "bool") | dict.fromkeys(texts, "string")
    assert found == {**expected, "primary_keys": "list<element: string>"}


def test_an_insert_has_a_value_in_every_column() -> None:
    registry = SchemaRegistry()
    _, key = registry.observe("Singers", COLUMNS)
    row = one(transaction_tag="app=x", is_system_transaction=True, number_of_partitions_in_transaction=2)
    uuid = row.pop("uuid")
    assert UUID(uuid).version == 8
    assert row == {
        "stream_name": "projects/project/locations/global/streams/Everything",
        "read_method": "spanner-cdc",
        "object": "Singers",
        "schema_key": key,
        "read_timestamp": (AT + 1_000_000) // 1000,
        "source_timestamp": AT // 1000,
        "sort_keys": [str(AT // 1_000_000), str(AT), "00000001", "0"],
        "change_sequence_number": f"{AT:016X}/{1:016X}/{0:016X}",
        "source_metadata": {
            "commit_timestamp": "2026-01-02T03:04:05.123456789Z",
            "snapshot": False,
            "project_id": "project",
            "instance_id": "instance",
            "database_id": "database",
            "change_stream_name": "Everything",
            "schema": "public",
            "database": "database",
            "table": "Singers",
            "server_transaction_id": "tx",
            "record_sequence": "00000001",
            "mod_index": 0,
            "transaction_tag": "app=x",
            "system_transaction": True,
            "number_of_records_in_transaction": 1,
            "number_of_partitions_in_transaction": 2,
            "is_last_record_in_transaction_in_partition": True,
            "value_capture_type": "OLD_AND_NEW_VALUES",
            "mod_type": "INSERT",
            "change_type": "INSERT",
            "primary_keys": ["Id"],
            "is_deleted": False,
        },
        "payload": '{"Id":"1","Name":"a"}',
        "before": None,
        "epoch": 7,
    }


def test_the_stream_name_and_the_read_method_are_as_configured() -> None:
    (row,) = built(record(), stream_name="mine", read_method="other")
    assert (row["stream_name"], row["read_method"]) == ("mine", "other")


def test_a_table_of_a_named_schema_has_both_names() -> None:
    row = one(table_name="music.Singers")
    assert row["object"] == "music.Singers"
    assert (row["source_metadata"]["schema"], row["source_metadata"]["table"]) == ("music", "Singers")


def test_a_google_sql_database_names_its_default_schema_by_its_id() -> None:
    (row,) = built(record(), source=Source("p", "i", "db", "s", "db"))
    assert row["source_metadata"]["schema"] == "db"


def test_each_mod_is_one_row_in_order() -> None:
    mods = tuple(Mod(f'{{"Id":"{n}"}}', f'{{"Name":"{n}"}}', "{}") for n in range(3))
    rows = built(record(mods=mods), record(record_sequence="00000002"))
    assert [row["payload"] for row in rows[:3]] == [f'{{"Id":"{n}","Name":"{n}"}}' for n in range(3)]
    assert [row["source_metadata"]["mod_index"] for row in rows] == [0, 1, 2, 0]
    assert [row["sort_keys"][2:] for row in rows] == [
        ["00000001", "0"],
        ["00000001", "1"],
        ["00000001", "2"],
        ["00000002", "0"],
    ]


def test_no_records_have_no_rows() -> None:
    assert built() == []


def test_a_record_without_mods_has_no_row() -> None:
    assert built(record(mods=())) == []


def test_the_uuid_is_the_same_on_every_replay_whatever_the_epoch_and_the_time_of_reading() -> None:
    (first,) = built(record(), epoch=1)
    (again,) = built(record(read_timestamp=AT + 99, is_last_record_in_transaction_in_partition=False), epoch=2)
    assert first["uuid"] == again["uuid"]


def test_the_uuid_depends_on_database_stream_transaction_record_and_mod() -> None:
    mods = tuple(Mod(f'{{"Id":"{n}"}}', "{}", "{}") for n in range(300))
    rows = built(
        record(mods=mods), record(record_sequence="00000002", mods=mods), record(server_transaction_id="tx2", mods=mods)
    )
    for part in ("project", "instance", "database", "change_stream"):
        names = {name: getattr(SOURCE, name) for name in ("project", "instance", "database", "change_stream")}
        rows += built(record(), source=Source(**(names | {part: "another"}), default_schema="public"))
    assert len({row["uuid"] for row in rows}) == len(rows) == 904
    assert all(UUID(row["uuid"]).version == 8 and str(UUID(row["uuid"])) == row["uuid"] for row in rows)


def test_names_with_equal_concatenations_have_different_uuids() -> None:
    rows = built(
        record(server_transaction_id="a1", record_sequence="1"), record(server_transaction_id="a", record_sequence="11")
    )
    assert rows[0]["uuid"] != rows[1]["uuid"]


positions = st.tuples(st.integers(0, 2**62), st.integers(0, 2**40), st.integers(0, 2**31))


@given(st.lists(positions, min_size=2, max_size=20, unique=True))
def test_change_sequence_numbers_sort_as_text_in_commit_order(some: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*sorted(some), strict=True)]
    texts = change_sequence_numbers(*columns).to_pylist()
    assert all(one < other for one, other in pairwise(texts))
    assert {len(text) for text in texts} == {50}


def test_the_change_sequence_number_has_the_record_sequence_as_a_number() -> None:
    first, second = (one(record_sequence=text)["change_sequence_number"] for text in ("9", "00000010"))
    assert first < second


def spliced(keys: str, values: str) -> str:
    (whole,) = splice(pa.array([keys]), pa.array([values])).to_pylist()
    assert isinstance(whole, str)
    return whole


texts = st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.none() | st.floats(allow_nan=False), max_size=4)


@given(texts, texts)
def test_a_spliced_object_has_the_members_of_both_byte_for_byte(keys: dict[str, Any], values: dict[str, Any]) -> None:
    first, second = orjson.dumps(keys).decode(), orjson.dumps(values).decode()
    whole = spliced(first, second)
    inner = [text for text in (first[1:-1], second[1:-1]) if text]
    assert whole == "{" + ",".join(inner) + "}"


@pytest.mark.parametrize(
    ("keys", "values", "whole"),
    [
        ('{"Id":"1"}', "{}", '{"Id":"1"}'),
        ('{"Id":"1"}', "{ }", '{"Id":"1"}'),
        ("{}", '{"a":1}', '{"a":1}'),
        ('{"Id" : "1"}', '{ "a":  1.50, "b":"\\u00e9"}', '{"Id" : "1", "a":  1.50, "b":"\\u00e9"}'),
        ('{"Id":"1"}', '{"a":"}{"}', '{"Id":"1","a":"}{"}'),
    ],
)
def test_values_are_copied_byte_for_byte(keys: str, values: str, whole: str) -> None:
    assert spliced(keys, values) == whole


def test_an_update_has_new_values_in_the_payload_and_keys_with_old_ones_before() -> None:
    row = one(mod_type="UPDATE", mods=(Mod('{"Id":"1"}', '{"Name":"b"}', '{"Name":"a"}'),))
    assert (row["payload"], row["before"]) == ('{"Id":"1","Name":"b"}', '{"Id":"1","Name":"a"}')
    assert row["source_metadata"]["change_type"] == "UPDATE"


def test_an_update_without_old_values_has_null_before() -> None:
    row = one(mod_type="UPDATE", mods=(Mod('{"Id":"1"}', '{"Name":"b"}', "{}"),))
    assert row["before"] is None


def test_an_old_value_that_was_null_is_captured_and_not_missing() -> None:
    row = one(mod_type="UPDATE", mods=(Mod('{"Id":"1"}', '{"Name":"b"}', '{"Name":null}'),))
    assert row["before"] == '{"Id":"1","Name":null}'


def test_a_delete_has_its_keys_and_the_old_values() -> None:
    row = one(mod_type="DELETE", mods=(Mod('{"Id":"1"}', "{}", '{"Name":"a"}'),))
    assert row["payload"] == row["before"] == '{"Id":"1","Name":"a"}'
    assert row["source_metadata"]["is_deleted"]
    assert row["source_metadata"]["mod_type"] == "DELETE"


def test_a_delete_without_old_values_has_its_keys() -> None:
    row = one(mod_type="DELETE", mods=(Mod('{"Id":"1"}', "{}", "{}"),))
    assert (row["payload"], row["before"]) == ('{"Id":"1"}', None)


def test_an_insert_of_keys_alone_is_an_insert() -> None:
    row = one(mods=(Mod('{"Id":"1"}', "{}", "{}"),))
    assert (row["payload"], row["source_metadata"]["mod_type"]) == ('{"Id":"1"}', "INSERT")
    assert not row["source_metadata"]["is_deleted"]


def test_a_schema_change_within_a_batch_changes_the_schema_key() -> None:
    rows = built(record(), record(column_types=(*COLUMNS, column("Age", "INT64", 3))), record())
    assert rows[0]["schema_key"] != rows[1]["schema_key"] == rows[2]["schema_key"]


def test_primary_keys_are_in_the_order_of_the_key() -> None:
    keys = (column("B", ordinal=2, key=True), column("A", ordinal=1, key=True), column("C", ordinal=3))
    assert one(column_types=keys)["source_metadata"]["primary_keys"] == ["A", "B"]
