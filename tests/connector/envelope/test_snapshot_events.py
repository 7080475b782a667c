"""A row of a snapshot is an event like an INSERT, which sorts before every later change of its row."""

import pyarrow as pa

from connector.core.changes import Changes
from connector.core.records import Mod
from connector.core.schemas import SchemaRegistry, TableSchema
from connector.core.timestamps import parse
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder, Source
from connector.envelope.snapshot_events import SnapshotEnvelope
from tests.connector.builders import column, record

SOURCE = Source("p", "i", "d", "s", "public")
TABLE = TableSchema.of("sales.T", [column("B", "INT64", 2, key=True), column("A", "STRING", 1, key=True)], ["B", "A"])
AT, READ = parse("2026-01-02T03:04:05.123456Z"), parse("2026-01-02T03:04:06Z")
KEYS = pa.array(['{"B":"1","A":"x"}', '{"B":"2","A":"x"}'])
VALUES = pa.array(['{"V":null}', "{}"])


def build(at: int = AT, keys: pa.Array = KEYS, source: Source = SOURCE) -> pa.RecordBatch:
    return SnapshotEnvelope(source, stream_name=None, timestamp=at).build(keys, VALUES, TABLE, "k" * 40, 7, READ)


def test_a_row_has_the_fields_of_an_insert_and_none_of_a_transaction() -> None:
    found = build()
    found.validate(full=True)
    assert found.schema == SCHEMA
    first, second = found.to_pylist()
    metadata = first.pop("source_metadata")
    assert {name: value for name, value in metadata.items() if value is None} == dict.fromkeys(
        (
            "server_transaction_id",
            "transaction_tag",
            "number_of_records_in_transaction",
            "number_of_partitions_in_transaction",
            "is_last_record_in_transaction_in_partition",
        )
    )
    assert (metadata["snapshot"], metadata["is_deleted"], metadata["mod_index"]) == (True, False, 0)
    assert (metadata["change_type"], metadata["mod_type"], metadata["value_capture_type"]) == ("INSERT",) * 2 + (
        "NEW_ROW",
    )
    assert (metadata["schema"], metadata["table"], metadata["primary_keys"]) == ("sales", "T", ["B", "A"])
    assert metadata["commit_timestamp"] == "2026-01-02T03:04:05.123456Z"
    assert (first["payload"], second["payload"]) == ('{"B":"1","A":"x","V":null}', '{"B":"2","A":"x"}')
    assert (first["read_method"], first["object"], first["epoch"]) == ("spanner-backfill", "sales.T", 7)
    assert first["before"] is None
    assert first["sort_keys"] == [str(AT // 10**6), str(AT), "00000000", "0"]


def test_a_row_sorts_before_every_later_change() -> None:
    after = record(commit_timestamp=AT + 1, record_sequence="00000000", mods=(Mod('{"Id":"1"}', "{}", "{}"),))
    registry = SchemaRegistry()
    change = EnvelopeBuilder(SOURCE, stream_name=None, read_method="x").build(Changes.of([after]), registry, 1)
    (row, _), (later,) = (batch.column("change_sequence_number").to_pylist() for batch in (build(), change))
    assert row < later
    assert len(row) == len(later)


def test_a_uuid_depends_on_database_stream_table_key_and_timestamp_alone() -> None:
    same = build().column("uuid").to_pylist()
    assert same == build().column("uuid").to_pylist()
    others = [
        build(at=AT + 1000).column("uuid").to_pylist(),
        build(keys=pa.array(['{"B":"3","A":"x"}', '{"B":"4","A":"x"}'])).column("uuid").to_pylist(),
        build(source=Source("p", "i", "d", "other", "public")).column("uuid").to_pylist(),
    ]
    assert len({*same, *(uuid for some in others for uuid in some)}) == 8
    assert all(uuid[14] == "8" and uuid[19] in "89ab" for uuid in same)
