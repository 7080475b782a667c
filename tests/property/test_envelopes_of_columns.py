"""The envelope that is built from columns equals the envelope that is built row by row."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from connector.core.changes import Changes
from connector.core.records import DataChangeRecord, sequence_number
from connector.core.schemas import SchemaRegistry
from connector.core.timestamps import format_rfc3339, parse
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder, Source
from tests.property.effort import effort
from tests.property.some_records import records

SOURCE = Source("project", "instance", "database", "Everything", "public")
EPOCH = 7


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Timestamps as integers, because Python's datetimes have microseconds and end in 9999."""
    plain = pa.schema([f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in SCHEMA])
    found: list[dict[str, Any]] = pa.table(batch.columns, SCHEMA).cast(plain).to_pylist()
    return found


def plainly(some: list[DataChangeRecord], registry: SchemaRegistry) -> Iterator[dict[str, Any]]:
    for one in some:
        schema, key = registry.observe(one.table_name, one.column_types)
        for index, mod in enumerate(one.mods):
            at = one.commit_timestamp
            sequence = min(sequence_number(one.record_sequence), 2**63 - 1)
            has_old = bool(orjson.loads(mod.old_values))
            yield {
                "stream_name": "projects/project/locations/global/streams/Everything",
                "read_method": "spanner-cdc",
                "object": one.table_name,
                "schema_key": key,
                "uuid": uuid(one, index),
                "read_timestamp": one.read_timestamp // 1000,
                "source_timestamp": at // 1000,
                "sort_keys": [str(at // 10**6), str(at), one.record_sequence, str(index)],
                "change_sequence_number": f"{at:016X}/{sequence:016X}/{index:016X}",
                "source_metadata": metadata(one, index, list(schema.primary_keys)),
                "payload": spliced(mod.keys, mod.old_values if one.mod_type == "DELETE" else mod.new_values),
                "before": spliced(mod.keys, mod.old_values) if has_old else None,
                "epoch": EPOCH,
            }


def metadata(one: DataChangeRecord, index: int, primary_keys: list[str]) -> dict[str, Any]:
    schema, _, table = one.table_name.rpartition(".")
    return {
        "commit_timestamp": format_rfc3339(one.commit_timestamp),
        "snapshot": False,
        "project_id": "project",
        "instance_id": "instance",
        "database_id": "database",
        "change_stream_name": "Everything",
        "schema": schema or "public",
        "database": "database",
        "table": table,
        "server_transaction_id": one.server_transaction_id,
        "record_sequence": one.record_sequence,
        "mod_index": index,
        "transaction_tag": one.transaction_tag,
        "system_transaction": one.is_system_transaction,
        "number_of_records_in_transaction": one.number_of_records_in_transaction,
        "number_of_partitions_in_transaction": one.number_of_partitions_in_transaction,
        "is_last_record_in_transaction_in_partition": one.is_last_record_in_transaction_in_partition,
        "value_capture_type": one.value_capture_type,
        "mod_type": one.mod_type,
        "change_type": one.mod_type,
        "primary_keys": primary_keys,
        "is_deleted": one.mod_type == "DELETE",
    }


def uuid(one: DataChangeRecord, index: int) -> str:
    name = f"{SOURCE.database_name}\0{SOURCE.change_stream}\0{one.server_transaction_id}\0{one.record_sequence}"
    number = int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
    number = number & ~(0xF << 76) | 0x8 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=number ^ index))


def spliced(keys: str, values: str) -> str:
    if not orjson.loads(values):
        return keys
    return f"{keys[:-1]},{values[1:]}" if orjson.loads(keys) else values


LAST = parse("2262-01-01T00:00:00Z") - 1
timestamps = st.builds(lambda at, digits: at - at % 10 ** (9 - digits), st.integers(0, LAST), st.integers(0, 9))


@effort(250)
@given(st.lists(st.tuples(records, st.none() | timestamps), max_size=6), st.lists(records, max_size=4), st.booleans())
def test_rows_of_columns_are_the_rows_of_single_records(
    drawn: list[tuple[DataChangeRecord, int | None]], more: list[DataChangeRecord], deletes: bool
) -> None:
    some = [one if at is None else replace(one, commit_timestamp=at) for one, at in drawn]
    if deletes:
        some = [replace(one, mod_type="DELETE") for one in some]
    builder = EnvelopeBuilder(SOURCE, stream_name=None, read_method="spanner-cdc")
    registry, plain = SchemaRegistry(), SchemaRegistry()
    cut = Changes.joined([Changes.of(more), Changes.of(some), Changes.of(more)]).part(len(more), len(more) + len(some))
    for changes, wanted in ((cut, some), (Changes.of(more), more)):
        batch = builder.build(changes, registry, EPOCH)
        assert batch.schema == SCHEMA
        batch.validate(full=True)
        assert rows_of(batch) == list(plainly(wanted, plain))
        assert registry.keys == plain.keys
