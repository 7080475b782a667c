"""The baseline that the reader is compared with: google-cloud-spanner's rows as dicts, and Arrow's ``from_pylist``.

Google's documentation shows this way, and most readers in Python use it. It reads one partition whose token it knows,
without the other work of a reader: no graph of partitions, no watermark, no order. There are two kinds: with a few
plain columns, and with all columns of the envelope, like the reader.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial

import orjson
import pyarrow as pa
import pyarrow.ipc
from google.cloud.spanner_v1 import param_types
from google.cloud.spanner_v1.database import Database

from benchmarks.measure.envelope_dicts import envelope
from benchmarks.replay.messages import START, Replay, Span
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import SCHEMA
from emulator import connect

_FLUSH_ROWS = 5000
_NAMES = (
    "commit_timestamp", "record_sequence", "server_transaction_id", "is_last_record_in_transaction_in_partition",
    "table_name", "column_types", "mods", "mod_type", "value_capture_type", "number_of_records_in_transaction",
    "number_of_partitions_in_transaction", "transaction_tag", "is_system_transaction",
)  # fmt: skip

Mod = tuple[dict[str, object], int, dict[str, object], dict[str, object]]
"""A record's fields, and a mod of it: its index, its keys, its new values."""

ToEvent = Callable[[dict[str, object], int, dict[str, object], dict[str, object]], dict[str, object]]


def to_arrow(host: str, replay: Replay, span: Span, _folder: str) -> int:
    """Reads the span of the first partition into a few plain columns; returns how many rows."""
    return sum(batch.num_rows for batch in _batches(host, replay, span, _plain, pa.RecordBatch.from_pylist))


def to_envelopes(host: str, replay: Replay, span: Span, _folder: str) -> int:
    """Reads the span of the first partition into the envelope's columns; returns how many rows."""
    to_batch = partial(pa.RecordBatch.from_pylist, schema=SCHEMA)
    return sum(batch.num_rows for batch in _batches(host, replay, span, envelope, to_batch))


def to_file(host: str, replay: Replay, span: Span, folder: str) -> int:
    """Reads the span of the first partition into an Arrow file; returns how many rows it has."""
    batches = _batches(host, replay, span, _plain, pa.RecordBatch.from_pylist)
    first = next(batches)
    rows = int(first.num_rows)
    with pa.OSFile(f"{folder}/events.arrow", "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _batches(
    host: str,
    replay: Replay,
    span: Span,
    to_event: ToEvent,
    to_batch: Callable[[list[dict[str, object]]], pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
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
            events += [to_event(*mod) for mod in _mods(row[0])]
            if len(events) >= _FLUSH_ROWS:
                yield to_batch(events)
                events = []
    if events:
        yield to_batch(events)


@cache
def _database(host: str) -> Database:
    database: Database = connect(host, "p").instance("instance").database("d")
    return database


def _mods(change: object) -> Iterator[Mod]:
    if isinstance(change, list):
        for data_records, _, _ in change:
            for data in data_records:
                record = dict(zip(_NAMES, data, strict=True))
                for index, (keys, new_values, _) in enumerate(record["mods"]):
                    yield record, index, keys, new_values
    else:
        assert isinstance(change, dict)
        record = change["data_change_record"]
        for index, mod in enumerate(record["mods"]):
            yield record, index, mod["keys"], mod["new_values"]


def _plain(
    record: dict[str, object], index: int, keys: dict[str, object], values: dict[str, object]
) -> dict[str, object]:
    return {
        "commit_timestamp": str(record["commit_timestamp"]),
        "record_sequence": record["record_sequence"],
        "server_transaction_id": record["server_transaction_id"],
        "mod_index": index,
        "table": record["table_name"],
        "mod_type": record["mod_type"],
        "value_capture_type": record["value_capture_type"],
        "payload": orjson.dumps({**keys, **values}).decode(),
    }
