"""Reads the rows of a partition, or rows by key, as blocks; used where rows are processed, such as in Spark's tasks."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
import orjson
import pyarrow as pa
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue

from connector.config.address import DatabaseAddress
from connector.core.health.retries import Cause
from connector.core.masking.rules import ColumnRules
from connector.core.message_classes import message_classes
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import ConfigurationError, StreamError, UnreachableError
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import STREAMING_SQL, set_options
from connector.spanner.errors import CallAction, CallError, retried, snapshot_error
from connector.spanner.snapshot.partitions import SnapshotPartition
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.result_rows import ResultRows
from connector.spanner.snapshot.row_block import RowBlock
from connector.telemetry.retrying import Attempts

MOST_HELD = 32 * 1024 * 1024
"""Bytes of messages that wait for a resume token, at most. Rows beyond it are yielded, and cannot be resumed."""

PATIENCE = 300.0
"""Seconds for which transient errors are retried without any progress, from the first of them on."""

_STREAMING_READ = "/google.spanner.v1.Spanner/StreamingRead"
_KEYS_AT_ONCE = 2_000
_LONGEST_PAUSE = 10.0
_KEPT = 4
"""Connections that are kept for later readings; more than one only if a process reads several databases."""

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_ReadRequest = types.ReadRequest.pb()
_ResumeToken = message_classes({"Message": {"resume_token": (4, "repeated bytes")}})["Message"]
"""A google.spanner.v1.PartialResultSet without anything but its resume token."""

_Request = types.ExecuteSqlRequest | types.ReadRequest


def read_partition(
    address: DatabaseAddress,
    partition: SnapshotPartition,
    *,
    table: str = "",
    rpc_priority: str = "medium",
    data_boost: bool = False,
) -> Iterator[RowBlock]:
    """Yields the rows of a partition, each once, in blocks; memory does not depend on how many there are.

    A transient error is retried with backoff from the last resume token. Rows after that token are not yielded before
    the next token has arrived.

    Args:
        address: the database, with the rules for columns that are excluded or hashed.
        partition: what to read.
        table: the table's name; needed if the address has rules for columns.
        rpc_priority: low, medium or high.
        data_boost: whether Spanner reads with Data Boost's own resources.

    Raises:
        SnapshotLostError: the session, the transaction or the token is gone: the table must be partitioned again.
        VersionRetentionError: the database no longer keeps the versions of the timestamp.
        UnreachableError: transient errors have lasted too long, or rows cannot be resumed: read the partition again.
        SpannerCdcError: another error, as one clear line.
        ValueError: the address has rules, and the table is not named.
    """
    if address.columns is not None and not table:
        raise ValueError("rules for columns need the name of the table")
    request = _ExecuteSqlRequest(
        session=partition.session,
        sql=partition.sql,
        partition_token=partition.token,
        data_boost_enabled=data_boost,
    )
    request.transaction.id = partition.transaction
    set_options(request, rpc_priority, address)
    with _connected(address) as client:
        what = f"a partition of {f'table {table} in ' if table else ''}{client.database}"
        reading = _Reading(client, STREAMING_SQL, request, what, table=table, rules=address.columns)
        yield from reading.blocks()


def read_keys(
    address: DatabaseAddress,
    query: TableQuery,
    keys: pa.Array,
    key_columns: Sequence[str],
    timestamp: int | None,
    *,
    rpc_priority: str = "medium",
) -> Iterator[RowBlock]:
    """Yields the rows with these keys as of a timestamp, in blocks; keys without a row are omitted.

    The connection and its session are kept for later calls in this process.

    Args:
        address: the database.
        query: the table and the wanted columns; with the key's, to tell the rows apart. It must have no condition.
        keys: the texts of JSON objects with the key's columns, as in a change record; repeated ones count once.
        key_columns: the columns of the table's key, in the order of the key.
        timestamp: Unix nanoseconds; None for what is committed when Spanner reads.
        rpc_priority: low, medium or high.

    Raises:
        VersionRetentionError: the database no longer keeps the versions of the timestamp.
        UnreachableError: transient errors have lasted too long.
        ConfigurationError: a column of the key is hashed, so that its values cannot be looked up.
        SpannerCdcError: another error, as one clear line, for instance a column or a table that does not exist.
    """
    if query.condition:
        raise ValueError("rows are read by key, without a condition")
    rules = address.columns
    if rules is not None and (hashed := rules.hashed_key(query.table, key_columns)):
        raise ConfigurationError(
            [f"source.columns.hash: {query.table}.{hashed}, a column of the key, is hashed: no row can be looked up"]
        )
    different = keys.unique().to_pylist()
    what = f"table {query.table} as of {'now' if timestamp is None else format_rfc3339(timestamp)}"
    with _connected(address) as client:
        for first in range(0, len(different), _KEYS_AT_ONCE):
            request = _ReadRequest(table=query.table, columns=query.columns)
            read_only = request.transaction.single_use.read_only
            if timestamp is None:
                read_only.strong = True
            else:
                read_only.read_timestamp.seconds, read_only.read_timestamp.nanos = divmod(timestamp, SECOND)
            set_options(request, rpc_priority, address)
            for text in different[first : first + _KEYS_AT_ONCE]:
                request.key_set.keys.append(_key(text, key_columns))
            reading = _Reading(
                client, _STREAMING_READ, request, what, owns_session=True, table=query.table, rules=rules
            )
            yield from reading.blocks()


@dataclass(slots=True)
class _Reading:
    """One result, which is requested again after transient errors.

    ``owns_session`` says that the session is the client's, so that another one does as well.
    """

    client: BlockingClient
    method: str
    request: _Request
    what: str
    owns_session: bool = False
    table: str = ""
    rules: ColumnRules | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _rows: ResultRows = field(init=False)
    _held: list[bytes] = field(default_factory=list)
    _held_bytes: int = 0
    _tried: Attempts | None = None
    _resumable: bool = True
    """True if no row was yielded that comes after the last resume token."""

    def __post_init__(self) -> None:
        self._rows = ResultRows(self.what, table=self.table, rules=self.rules)

    def blocks(self) -> Iterator[RowBlock]:
        """Yields the blocks of the result."""
        try:
            yield from self._resumed()
        finally:
            self._works()

    def _resumed(self) -> Iterator[RowBlock]:
        pause, since = 0.1, None  # the first error since the last progress: an attempt may take long before it
        while True:
            token = self.request.resume_token
            try:
                yield from self._received()
                break
            except grpc.RpcError as error:
                found = self.client.failed(error)
                if since is None or self.request.resume_token != token:
                    pause, since = 0.1, self.clock()
                self._check(found, waited=self.clock() - since)
                self._tried = self._tried or Attempts(self._cause, self.what)
                self._tried.failed(error)
                self._held, self._held_bytes = [], 0
                self.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - not a secret
                pause = min(pause * 2, _LONGEST_PAUSE)
        yield from self._made(self._rows.rest())

    def _received(self) -> Iterator[RowBlock]:
        """Yields the blocks of one call's messages."""
        if self.owns_session:
            self.request.session = self.client.session()
        session = self.request.session
        with self.client.streaming(self.method, session, self.request.SerializeToString()) as messages:
            for message in messages:
                self._works()
                self._held.append(message)
                self._held_bytes += len(message)
                token = _ResumeToken.FromString(message).resume_token
                if token:
                    self.request.resume_token, self._resumable = token[-1], True
                elif self._held_bytes <= MOST_HELD:
                    continue
                else:
                    self._resumable = False
                yield from self._passed_on()
            yield from self._passed_on()

    def _works(self) -> None:
        if self._tried is not None:
            self._tried.over()
            self._tried = None

    def _cause(self, error: BaseException) -> Cause:
        """The cause of a repeated request."""
        assert isinstance(error, grpc.RpcError)
        return retried(self.client.failed(error), self.client.host)

    def _passed_on(self) -> Iterator[RowBlock]:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            yield from self._made(self._rows.add(held))

    def _made(self, blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
        try:
            yield from blocks
        except (DecodeError, ValueError) as error:
            raise StreamError(
                f"a result of {self.what} cannot be read: {type(error).__name__}",
                hint="Read it again; if that does not help, report this line, which has no value of a row.",
            ) from None

    def _check(self, found: CallError, *, waited: float) -> None:
        """Raises the error unless the call can be repeated."""
        lost = found.action is CallAction.NEW_SESSION and found.code is grpc.StatusCode.NOT_FOUND
        if lost and self.owns_session:
            if waited > PATIENCE:
                raise UnreachableError(
                    f"Spanner loses every session in which {self.what} is read ({found})", hint="Read it again later."
                )
            self.client.forget_session()
        elif found.action is CallAction.STOP or lost or waited > PATIENCE:
            raise snapshot_error(found, what=self.what)
        if not self._resumable:
            raise UnreachableError(
                f"a result of {self.what} broke off where it cannot be resumed ({found})", hint="Read it again."
            )


_free: dict[DatabaseAddress, BlockingClient] = {}
"""Connections of this process, each used by one reading at a time and then kept for the next one."""

_free_lock = threading.Lock()


@contextmanager
def _connected(address: DatabaseAddress) -> Iterator[BlockingClient]:
    """A connection to a database, a new one if none is free."""
    with _free_lock:
        client = _free.pop(address, None)
    client = client or BlockingClient(address)
    try:
        yield client
    finally:
        with _free_lock:
            _free.setdefault(address, client)
            unused = [client] if _free[address] is not client else []
            while len(_free) > _KEPT:
                unused.append(_free.pop(next(iter(_free))))
        for one in unused:
            one.close()


def _key(text: str, columns: Sequence[str]) -> ListValue:
    values, found = orjson.loads(text), ListValue()
    found.extend(values[column] for column in columns)
    return found
