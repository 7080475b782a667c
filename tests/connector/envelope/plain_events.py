"""Writes events as JSON lines row by row; tests compare the writer of whole columns with it."""

from collections.abc import Iterator

import orjson
import pyarrow as pa

from connector.core.timestamps import format_rfc3339
from connector.envelope.events import EventWriter


def plain_lines(writer: EventWriter, batch: pa.RecordBatch) -> Iterator[bytes]:
    """One JSON object for each row, each with a line feed at its end."""
    read_at = batch.column("read_timestamp").cast(pa.int64())
    rows = batch.drop_columns(["read_timestamp", "source_timestamp", "before"]).to_pylist()
    for row, read in zip(rows, read_at.to_pylist(), strict=True):
        metadata = row["source_metadata"]
        milliseconds, nanoseconds, sequence, index = row["sort_keys"]
        yield orjson.dumps(
            {
                "stream_name": row["stream_name"],
                "read_method": row["read_method"],
                "object": row["object"],
                "schema_key": row["schema_key"],
                "uuid": row["uuid"],
                "read_timestamp": format_rfc3339(read * 1000),
                "source_timestamp": metadata["commit_timestamp"],
                "sort_keys": [int(milliseconds), int(nanoseconds), sequence, int(index)],
                "source_metadata": {
                    **metadata,
                    "scn": int(nanoseconds),
                    "rs_id": metadata["record_sequence"],
                    "ssn": metadata["mod_index"],
                    "tx_id": metadata["server_transaction_id"],
                },
                "payload": orjson.Fragment(writer.payload(row["payload"], row["schema_key"])),
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )
