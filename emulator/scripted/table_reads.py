"""Serves the rows of a scripted database's tables as of a timestamp: partitioned queries, and reads by key.

A read-only transaction at a timestamp divides a query into partitions, each a part of the rows in the order of the key.
A query of a partition, or of all rows, is a series of serialized google.spanner.v1.PartialResultSet. It is the same
each time, so that a resume token is the number of messages before it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from random import Random

import grpc
import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import MessageToDict

from emulator.scenario.capture import reported_columns
from emulator.scenario.contents_at import contents_at
from emulator.scenario.history import ReportedColumn
from emulator.scripted.fault_plan import FaultInQuery
from emulator.scripted.framing import Frames
from emulator.scripted.row_types import column_type, described
from emulator.scripted.spanner import ENDING, ScriptedSpanner, error_of
from emulator.scripted.stream_query import ScriptedError, invalid
from emulator.scripted.wire import encoded, field, serialized
from emulator.workload.journal import Row
from emulator.workload.tables import Table, quoted

_BeginTransactionRequest = types.BeginTransactionRequest.pb()
_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_PartitionQueryRequest = types.PartitionQueryRequest.pb()
_PartitionResponse = types.PartitionResponse.pb()
_ReadRequest = types.ReadRequest.pb()
_Transaction = types.Transaction.pb()

_NAME = r"[`\"][^`\"]+[`\"]"
_SELECT = re.compile(rf"SELECT (\*|{_NAME}(?:, {_NAME})*) FROM ({_NAME}(?:\.{_NAME})?)( LIMIT 0)?")
_KEPT = 4
"""Timestamps whose contents are kept."""


@dataclass(frozen=True, slots=True)
class _Query:
    """Some columns of a table; ``limit`` is 0 or None."""

    table: Table
    columns: tuple[ReportedColumn, ...]
    limit: int | None = None


class TableReads:
    """Reads of an engine's scenario; `partitions` is how many each query is divided into, and may be changed.

    `reads` counts the queries by partition token, those of all rows by the table's name.
    """

    def __init__(self, engine: ScriptedSpanner, *, partitions: int = 4) -> None:
        self._engine = engine
        self._scenario = engine.scenario
        self.partitions = partitions
        self.reads: Counter[str] = Counter()
        self._transactions: dict[bytes, tuple[str, int]] = {}
        self._numbers = itertools.count(1)
        self._contents_at = lru_cache(_KEPT)(partial(contents_at, engine.scenario))

    def begin(self, request: bytes) -> bytes:
        """Begins a read-only transaction; takes and returns serialized messages, as the other methods do."""
        node = _BeginTransactionRequest.FromString(request)
        timestamp = self._timestamp(node.options.read_only)
        identity = f"snapshot-{next(self._numbers)}".encode()
        self._transactions[identity] = node.session, timestamp
        answer = _Transaction(id=identity)
        answer.read_timestamp.FromNanoseconds(timestamp)
        return serialized(answer)

    def partition_query(self, request: bytes) -> bytes:
        """Divide a query into partitions."""
        node = _PartitionQueryRequest.FromString(request)
        self._engine.check_kept(self._timestamp_of(node.session, node.transaction.id))
        query = self._query(node.sql)
        tokens = [f"{query.table.name}/{number}/{self.partitions}" for number in range(self.partitions)]
        answer = _PartitionResponse(partitions=[{"partition_token": token.encode()} for token in tokens])
        return serialized(answer)

    async def execute(self, request: bytes) -> AsyncGenerator[bytes]:
        """Yields the rows of a query in a transaction, or those of one of its partitions.

        Raises:
            ScriptedError: the call ends with this error.
        """
        node = _ExecuteSqlRequest.FromString(request)
        timestamp = self._timestamp_of(node.session, node.transaction.id)
        query, token = self._query(node.sql), node.partition_token.decode()
        self._engine.check_kept(timestamp)
        rows = self._contents_at(timestamp)[query.table.name]
        if token:
            table, number, count = ([*token.rsplit("/", 2), "", ""])[:3]
            if table != query.table.name:
                raise invalid("Invalid partition token.")
            rows = rows[len(rows) * int(number) // int(count) : len(rows) * (int(number) + 1) // int(count)]
        async for message in self._answer(query, rows, token or query.table.name, node.session, node.resume_token):
            yield message

    async def read(self, request: bytes) -> AsyncGenerator[bytes]:
        """Yields the rows with the keys of a request, each once, in the order of the keys' JSON texts.

        Raises:
            ScriptedError: the call ends with this error.
        """
        node = _ReadRequest.FromString(request)
        timestamp = self._timestamp(node.transaction.single_use.read_only)
        self._engine.check_kept(timestamp)
        table = self._table(node.table)
        query = _Query(table, self._columns(table, node.columns))
        keys = {orjson.dumps([MessageToDict(value) for value in key.values]) for key in node.key_set.keys}
        rows = [
            row
            for row in self._contents_at(timestamp)[table.name]
            if orjson.dumps([row[column.name] for column in table.key]) in keys
        ]
        async for message in self._answer(query, rows, table.name, node.session, node.resume_token):
            yield message

    async def _answer(
        self, query: _Query, rows: Sequence[Row], name: str, session: str, resume_token: bytes
    ) -> AsyncGenerator[bytes]:
        self.reads[name] += 1
        query_fault = self._engine.faults.next(name)
        width = len(query.columns)
        metadata = described((column.name, column_type(column)) for column in query.columns)
        frames = replace(self._engine.framing, tokens=0.0).of_query(metadata, name, columns=width)
        sent = 0
        try:
            for number, message in enumerate(_messages(frames, query, rows), 1):
                if number <= int(resume_token or 0):
                    continue
                self._inject(query_fault, sent, session)
                has_token = not frames.open and self._has_token(name, number)
                yield message + (field(4, str(number).encode()) if has_token else b"")
                sent += 1
            self._inject(query_fault, sent, session)
        finally:
            query_fault.over()

    def _has_token(self, name: str, number: int) -> bool:
        """Draws whether a message has a resume token: a share of them, always the same ones."""
        framing = self._engine.framing
        return framing.tokens >= 1 or Random(f"{framing.seed}/{name}/{number}").random() < framing.tokens  # noqa: S311

    def _inject(self, query_fault: FaultInQuery, sent: int, session: str) -> None:
        """Ends the call with the query's fault if it is due."""
        fault = query_fault.fault
        if fault is None or sent < fault.after or fault.kind not in ENDING:
            return
        query_fault.strike()
        raise error_of(fault, session)

    def _timestamp(self, read_only: types.TransactionOptions.ReadOnly) -> int:
        if read_only.HasField("read_timestamp"):
            return int(read_only.read_timestamp.ToNanoseconds())
        if read_only.strong:
            return self._engine.clock.now()
        raise ScriptedError(grpc.StatusCode.UNIMPLEMENTED, "Only strong reads and reads at a timestamp are scripted.")

    def _timestamp_of(self, session: str, transaction: bytes) -> int:
        """Returns the timestamp of a transaction."""
        owner, timestamp = self._transactions.get(transaction, ("", 0))
        if owner != session:
            raise invalid("Invalid transaction: it is not one of this session.")
        return timestamp

    def _query(self, sql: str) -> _Query:
        match = _SELECT.fullmatch(sql)
        if match is None:
            raise ScriptedError(grpc.StatusCode.UNIMPLEMENTED, f"A statement like this is not scripted: {sql}")
        names, table_name, limit = match.groups()
        dialect = self._scenario.dialect
        for table in self._scenario.tables:
            if quoted(table.name, dialect) == table_name:
                wanted = [] if names == "*" else [name[1:-1] for name in names.split(", ")]
                return _Query(table, self._columns(table, wanted), 0 if limit else None)
        raise invalid(f"Table not found: {table_name}")

    def _table(self, name: str) -> Table:
        for table in self._scenario.tables:
            if table.name == name:
                return table
        raise ScriptedError(grpc.StatusCode.NOT_FOUND, f"Table not found: {name}")

    def _columns(self, table: Table, names: Sequence[str]) -> tuple[ReportedColumn, ...]:
        """Returns the columns with these names in their order, or all."""
        every = [column.name for column in table.columns]
        known: Mapping[str, ReportedColumn] = {
            column.name: column for column in reported_columns(table, self._scenario.dialect, every)
        }
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ScriptedError(grpc.StatusCode.NOT_FOUND, f"Column not found in table {table.name}: {unknown[0]}")
        return tuple(known[name] for name in names or every)


def _messages(frames: Frames, query: _Query, rows: Sequence[Row]) -> Iterator[bytes]:
    at_once = 256
    for first in range(0, 0 if query.limit == 0 else len(rows), at_once):
        some = rows[first : first + at_once]
        yield from frames.messages([encoded(row.get(column.name)) for row in some for column in query.columns])
    yield from frames.end()
