"""Names what cannot be written of an event: its table and column, its commit and its transaction, and no value of it.

Converters raise an error without any of these, so that naming costs nothing where nothing fails.
"""

from collections.abc import Callable
from operator import itemgetter

import pyarrow as pa

from connector.errors import EventError

_NEXT = (
    "Nothing was skipped: the next run meets it again. To continue without this table, exclude it"
    " (source.tables.exclude). Please report it with the column's type."
)


def of_column(error: EventError, column: str) -> EventError:
    """The error with the name of the column that it is about."""
    return EventError(f"column {column}: {error.message}", hint=error.hint)


def of_event(error: EventError, *, table: str, commit_timestamp: str, transaction: str, stream: str = "") -> EventError:
    """The error with the name of the event that it is about, and what to do."""
    return EventError(
        f"table {table}: {error.message} (committed at {commit_timestamp}, server_transaction_id {transaction}"
        f"{f', change stream {stream}' if stream else ''})",
        hint=error.hint or _NEXT,
        reason=error.reason,
    )


def of_row(error: EventError, batch: pa.RecordBatch, row: int) -> EventError:
    """As :func:`of_event`, for a row of the envelope's columns."""
    wanted = itemgetter("commit_timestamp", "server_transaction_id", "change_stream_name")
    at, transaction, stream = wanted(batch.column("source_metadata")[row].as_py())
    table = batch.column("object")[row].as_py()
    return of_event(error, table=table, commit_timestamp=at, transaction=transaction, stream=stream)


def of_batch(error: EventError, batch: pa.RecordBatch, convert: Callable[[str, str], object]) -> EventError:
    """As :func:`of_row`, for the first row that ``convert`` rejects, which takes a payload and its schema key."""
    texts, keys = batch.column("payload"), batch.column("schema_key")
    for row in range(batch.num_rows):
        try:
            convert(texts[row].as_py(), keys[row].as_py())
        except EventError as found:
            return of_row(found, batch, row)
    return error
