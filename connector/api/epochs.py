"""Epochs, their transactions, and the events of these."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from json import loads
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connector.api.checkpoint import Checkpoint
from connector.core.schemas import TableSchema
from connector.core.timestamps import format_rfc3339
from connector.envelope.envelope import SCHEMA
from connector.envelope.events import EventWriter
from connector.envelope.failing_rows import of_event
from connector.errors import EventError

_ROWS = 1024
"""Rows of a batch that become Python objects at a time."""


@dataclass(frozen=True, slots=True)
class Event:
    """One changed row.

    A column that the change stream did not capture is missing; NULL is None. INT64 and ENUM are int, FLOAT32 and
    FLOAT64 float (NaN and the infinities str), BOOL bool, JSON the value in it, ARRAY a list of these. Every other type
    is a str in Spanner's JSON encoding (https://cloud.google.com/spanner/docs/reference/rest/v1/TypeCode).

    Attributes:
        table: the table's name, ``schema.table`` in a named schema.
        mod_type: ``INSERT``, ``UPDATE`` or ``DELETE``.
        key: the primary key's columns, in the key's order.
        values: the key and the new values; for a DELETE the key and the old values, if they are captured.
        before: the key and the old values, or None if none are captured.
        uuid: identifies the event; the same whenever it is read again.
    """

    table: str
    mod_type: str
    key: dict[str, object]
    values: dict[str, object]
    before: dict[str, object] | None
    uuid: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """A committed transaction: all of its events in the tables that are read, in the order of the transaction.

    Attributes:
        id: Spanner's ``server_transaction_id``.
        commit_timestamp: nanoseconds since 1970.
        tag: the transaction tag, or "".
        is_system: whether Spanner itself committed it, such as deletions by a row deletion policy (TTL).
        events: at least one.
    """

    id: str
    commit_timestamp: int
    tag: str
    is_system: bool
    events: tuple[Event, ...]


class _Row(NamedTuple):
    """A row of a batch that is not converted yet."""

    commit_timestamp: int
    transaction: str
    tag: str
    is_system: bool
    mod_type: str
    primary_keys: list[str]
    table: str
    payload: str
    before: str | None
    schema_key: str
    uuid: str


class EventReader:
    """Makes transactions of the envelope's rows.

    Args:
        schema_of: the schema that a schema key names.
    """

    def __init__(self, schema_of: Callable[[str], TableSchema]) -> None:
        self._writer = EventWriter(schema_of)

    def transactions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Transaction]:
        """The transactions of whole epochs' rows, in commit order.

        Raises:
            EventError: a value is not of its column's type; with its table, column, commit and transaction.
        """
        rows = (row for batch in batches for row in _rows(batch))
        for (at, transaction), group in groupby(rows, key=attrgetter("commit_timestamp", "transaction")):
            of_it = list(group)
            yield Transaction(
                transaction, at, of_it[0].tag, of_it[0].is_system, tuple(self._event(row) for row in of_it)
            )

    def _event(self, row: _Row) -> Event:
        try:
            values = self._values(row.payload, row.schema_key)
            before = None if row.before is None else self._values(row.before, row.schema_key)
        except EventError as error:
            at = format_rfc3339(row.commit_timestamp)
            raise of_event(error, table=row.table, commit_timestamp=at, transaction=row.transaction) from None
        return Event(
            table=row.table,
            mod_type=row.mod_type,
            key={name: values[name] for name in row.primary_keys if name in values},
            values=values,
            before=before,
            uuid=row.uuid,
        )

    def _values(self, text: str, schema_key: str) -> dict[str, object]:
        # Not orjson: a JSON column may hold integers beyond 64 bits, and half of a surrogate pair.
        values: dict[str, object] = loads(self._writer.payload(text, schema_key))
        return values


def _rows(batch: pa.RecordBatch) -> Iterator[_Row]:
    for first in range(0, batch.num_rows, _ROWS):
        rows = batch.slice(first, _ROWS)
        metadata = partial(pc.struct_field, rows.column("source_metadata"))
        columns = (
            pc.list_element(rows.column("sort_keys"), 1).cast(pa.int64()),
            metadata("server_transaction_id"),
            metadata("transaction_tag"),
            metadata("system_transaction"),
            metadata("mod_type"),
            metadata("primary_keys"),
            *(rows.column(name) for name in ("object", "payload", "before", "schema_key", "uuid")),
        )
        yield from map(_Row._make, zip(*(column.to_pylist() for column in columns), strict=True))


@dataclass(frozen=True)
class Epoch:
    """Everything that was committed after ``low`` and up to ``high``, in commit order; transactions are never split.

    Attributes:
        stream: the change stream, ``project/instance/database/change_stream``.
        number: from 1 on, without gaps. Without a spool it continues the checkpoint that reading resumed from.
        identity: distinguishes the epoch from others of its number. In a spool number and identity always stand for
            the same events; without a spool an epoch that is read again may end elsewhere, and then has another
            identity.
        low: exclusive; nanoseconds since 1970.
        high: inclusive; nanoseconds since 1970.
        rows: how many events it has; 0 for an epoch that only moves the checkpoint.
        final: whether ``high`` is the configured ``source.end``.
        gap: why the epoch's events are missing for good; None if they are not.
    """

    stream: str
    number: int
    identity: str
    low: int
    high: int
    rows: int
    final: bool
    gap: str | None
    _open: Callable[[], Iterator[pa.RecordBatch]] = field(repr=False, compare=False)
    _reader: EventReader = field(repr=False, compare=False)

    @property
    def checkpoint(self) -> str:
        """The position after this epoch: store it with the epoch's effects, and resume from it.

        A JSON object on one line, of about 200 characters; treat it as opaque.
        """
        return Checkpoint(self.stream, self.number, self.identity).to_text()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as Arrow record batches, one row an event, in commit order; none if the epoch has no rows.

        The columns are those of a Spark micro-batch (docs/spark.md). A batch of a spool has about 4 MB.

        Raises:
            SpoolError: the spool's file is damaged, or was deleted meanwhile.
        """
        return self._open()

    def table(self) -> pa.Table:
        """The batches as one Arrow table, which may have no rows.

        Raises:
            SpoolError: the spool's file is damaged, or was deleted meanwhile.
        """
        return pa.Table.from_batches(self.batches(), schema=SCHEMA)

    def transactions(self) -> Iterator[Transaction]:
        """The transactions, in commit order; those of one commit timestamp by their ids.

        Raises:
            EventError: a value is not of its column's type; with its table, column, commit and transaction.
            SpoolError: the spool's file is damaged, or was deleted meanwhile.
        """
        return self._reader.transactions(self.batches())
