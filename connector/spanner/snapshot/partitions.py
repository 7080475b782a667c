"""Divides the rows of tables as of one timestamp into partitions, which any process may read.

google-cloud-spanner's batch API makes the partitions. It uses a channel of the connector, so that endpoint, emulator,
credentials and user agent are those of all other calls, and it exports no metrics.
"""

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

import grpc
import orjson
from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.cloud.spanner_v1 import types
from google.cloud.spanner_v1.database import BatchSnapshot

from connector.config.address import DatabaseAddress
from connector.core.dialects import Dialect
from connector.core.masking.rules import ColumnRules
from connector.core.records import ColumnType
from connector.core.timestamps import format_rfc3339
from connector.errors import NoSuchTableError
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import STREAMING_SQL
from connector.spanner.decoding.chunks import ValueAssembler
from connector.spanner.emulators import ChannelClient
from connector.spanner.errors import CallAction, snapshot_error
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.result_rows import columns_of

PATIENCE = 30.0
"""Seconds for which a transient error is retried."""

_VERSION = 1

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class SnapshotPartition:
    """A part of a query's rows. It can be read until its session or the database's old versions are gone.

    Attributes:
        session: the resource name of the session.
        transaction: the id of the read-only transaction.
        sql: the query.
        token: the partition token.
        columns: the columns of the rows. ``is_primary_key`` is always false: a query's result has no key.
    """

    session: str
    transaction: bytes
    sql: str
    token: bytes
    columns: tuple[ColumnType, ...]

    def to_json(self) -> bytes:
        """The partition as JSON; :meth:`from_json` reads it."""
        return orjson.dumps(
            {
                "version": _VERSION,
                "session": self.session,
                "transaction": b64encode(self.transaction).decode(),
                "sql": self.sql,
                "token": b64encode(self.token).decode(),
                "columns": [{"name": column.name, "type": orjson.Fragment(column.type)} for column in self.columns],
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads the result of :meth:`to_json`.

        Raises:
            KeyError, TypeError, ValueError: the content is not such a partition.
        """
        node = orjson.loads(data)
        columns = tuple(
            ColumnType(str(column["name"]), _type_json(column["type"]), is_primary_key=False, ordinal_position=number)
            for number, column in enumerate(node["columns"], 1)
        )
        transaction, token = (b64decode(node[name], validate=True) for name in ("transaction", "token"))
        return cls(str(node["session"]), transaction, str(node["sql"]), token, columns)


class Snapshot:
    """A batch read-only transaction at one timestamp.

    It lasts as long as its multiplexed session, which Spanner keeps for weeks, even if this process ends. It can be
    read as long as the database keeps versions of that age (``version_retention_period``, an hour by default).

    Attributes:
        session: the resource name of the session.
        transaction: the id of the transaction.
    """

    def __init__(
        self,
        client: BlockingClient,
        batch: BatchSnapshot,
        session: str,
        timestamp: int,
        rules: ColumnRules | None = None,
    ) -> None:
        self._client = client
        self._rules = rules
        self._batch = batch
        self._timestamp = timestamp
        self.session = session
        self.transaction: bytes = self._retried(client.database, batch.to_dict)["transaction_id"]

    @classmethod
    def open(cls, address: DatabaseAddress, timestamp: int) -> Self:
        """Begins a transaction at ``timestamp``, Unix nanoseconds.

        Raises:
            UnreachableError: Spanner does not answer; transient errors have been retried for a while.
            VersionRetentionError: the database no longer keeps the versions of that timestamp.
            SpannerCdcError: another error, as one clear line.
        """
        client = BlockingClient(address)
        try:
            session = _retried(f"database {client.database}", client.session, client)
            at = DatetimeWithNanoseconds.from_rfc3339(format_rfc3339(timestamp))
            identity = session.rpartition("/sessions/")[2]
            instance = ChannelClient(client.channel, client.host, address.project).instance(address.instance)
            database = instance.database(address.database, database_role=address.database_role)
            batch = BatchSnapshot(database, read_timestamp=at, session_id=identity)
            return cls(client, batch, session, timestamp, address.columns)
        except BaseException:
            client.close()
            raise

    def columns(self, query: TableQuery, dialect: Dialect) -> tuple[ColumnType, ...]:
        """The columns of a query's rows, as Spanner describes them at the timestamp; see :meth:`open` for errors.

        Those that the address excludes are absent, and those that it hashes are strings.
        """
        request = _ExecuteSqlRequest(session=self.session, sql=f"{query.sql(dialect)} LIMIT 0")
        request.transaction.id = self.transaction

        def described() -> tuple[ColumnType, ...]:
            with self._client.streaming(STREAMING_SQL, self.session, request.SerializeToString()) as messages:
                result = ValueAssembler()
                result.values(list(messages))
            return columns_of(result.metadata or b"")

        found = self._retried(f"table {query.table}", described)
        mask = None if self._rules is None else self._rules.mask(query.table, found)
        return found if mask is None else mask.columns

    def existing(self, table: str, names: Sequence[str], dialect: Dialect) -> tuple[ColumnType, ...]:
        """Those of some columns that a table had at the timestamp, HIDDEN ones too, which ``*`` omits.

        Raises:
            NoSuchTableError: there was no such table.
            SpannerCdcError: as of :meth:`open`.
        """
        with suppress(NoSuchTableError):
            return self.columns(TableQuery(table, tuple(names)), dialect)
        found = {column.name: column for column in self.columns(TableQuery(table), dialect)}
        for name in names:
            if name not in found:
                with suppress(NoSuchTableError):
                    found |= {column.name: column for column in self.columns(TableQuery(table, (name,)), dialect)}
        return tuple(found[name] for name in names if name in found)

    def partitions(self, query: TableQuery, dialect: Dialect, *, data_boost: bool = False) -> list[SnapshotPartition]:
        """The partitions of a query's rows; each row is in exactly one. See :meth:`open` for errors."""
        sql = query.sql(dialect)
        columns = self.columns(query, dialect)

        def found() -> list[bytes]:
            batches = self._batch.generate_query_batches(sql, data_boost_enabled=data_boost)
            return [bytes(batch["partition"]) for batch in batches]

        return [
            SnapshotPartition(self.session, self.transaction, sql, token, columns)
            for token in self._retried(f"table {query.table}", found)
        ]

    def close(self) -> None:
        """Closes the connection of this process; partitions can still be read."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _retried(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        return _retried(f"{what} as of {format_rfc3339(self._timestamp)}", call, self._client)


def _retried(what: str, call: Callable[[], _Answer], client: BlockingClient) -> _Answer:
    """The result of a call; transient errors are retried for a while."""
    deadline, pause = time.monotonic() + PATIENCE, 0.1
    while True:
        try:
            return call()
        except (grpc.RpcError, GoogleAPICallError, RetryError) as error:
            found = client.failed(error)
            if found.action is CallAction.STOP or time.monotonic() + pause > deadline:
                raise snapshot_error(found, what=what) from error
        time.sleep(pause)
        pause = min(pause * 2, 2.0)


def _type_json(node: object) -> str:
    return orjson.dumps(node, option=orjson.OPT_SORT_KEYS).decode()
