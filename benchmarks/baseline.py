"""What the reader is compared with: google-cloud-spanner's rows, made into dicts, and Arrow's ``from_pylist``.

It is the way that Google's documentation shows and most readers in Python take. It reads one partition whose token it
knows, and does nothing of what a reader has to do beside: no graph of partitions, no watermark, no order, no envelope.
"""

from collections.abc import Iterator
from functools import cache

import orjson
import pyarrow as pa
import pyarrow.ipc
from google.cloud.spanner_v1 import param_types
from google.cloud.spanner_v1.database import Database

from benchmarks.messages import START, Replay, Span
from connector.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.timestamps import format_rfc3339
from emulator import connect

_FLUSH_ROWS = 5000
_NAMES = (
    "commit_timestamp", "record_sequence", "server_transaction_id", "is_last", "table_name", "column_types", "mods",
    "mod_type", "value_capture_type", "records", "partitions", "transaction_tag", "is_system",
)  # fmt: skip


def to_arrow(host: str, replay: Replay, span: Span, _folder: str) -> int:
    """Reads the span of the first partition; returns how many rows it made."""
    return sum(batch.num_rows for batch in _batches(host, replay, span))


def to_file(host: str, replay: Replay, span: Span, folder: str) -> int:
    """Reads the span of the first partition into an Arrow file; returns how many rows it has."""
    batches = _batches(host, replay, span)
    first = next(batches)
    rows = int(first.num_rows)
    with pa.OSFile(f"{folder}/events.arrow", "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _batches(host: str, replay: Replay, span: Span) -> Iterator[pa.RecordBatch]:
    dialect = GOOGLESQL if replay.dialect == "googlesql" else POSTGRESQL
    values = format_rfc3339(START), format_rfc3339(span.end), replay.tokens[0], 1000
    kinds = param_types.TIMESTAMP, param_types.TIMESTAMP, param_types.STRING, param_types.INT64
    events: list[dict[str, object]] = []
    with _database(host).snapshot() as snapshot:
        rows = snapshot.execute_sql(
            dialect.query("Everything", IMMUTABLE),
            params=dict(zip(dialect.parameters, values, strict=True)),
            param_types=dict(zip(dialect.parameters, kinds, strict=True)),
        )
        for row in rows:
            events += _dicts(row[0])
            if len(events) >= _FLUSH_ROWS:
                yield pa.RecordBatch.from_pylist(events)
                events = []
    if events:
        yield pa.RecordBatch.from_pylist(events)


@cache
def _database(host: str) -> Database:
    database: Database = connect(host, "p").instance("instance").database("d")
    return database


def _dicts(change: object) -> list[dict[str, object]]:
    if isinstance(change, list):
        records = [dict(zip(_NAMES, data, strict=True)) for (data_records, _, _) in change for data in data_records]
        mods = [(record, mod[0], mod[1]) for record in records for mod in record["mods"]]
    else:
        assert isinstance(change, dict)
        record = change["data_change_record"]
        mods = [(record, mod["keys"], mod["new_values"]) for mod in record["mods"]]
    return [
        {
            "commit_timestamp": str(record["commit_timestamp"]),
            "record_sequence": record["record_sequence"],
            "server_transaction_id": record["server_transaction_id"],
            "mod_index": index,
            "table": record["table_name"],
            "mod_type": record["mod_type"],
            "value_capture_type": record["value_capture_type"],
            "payload": orjson.dumps({**keys, **values}).decode(),
        }
        for index, (record, keys, values) in enumerate(mods)
    ]
