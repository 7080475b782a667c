"""Reads a past range of a change stream once more, by queries whose end is in the past (a bounded re-read).

It is simple on purpose: one partition after the other, without retries, so that it ends within its time or with an
error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import grpc
from google.cloud.spanner_v1 import types

from connector.core.timestamps import format_rfc3339
from connector.proxies import DIRECT_CHANNEL
from emulator.demo.plain_stream import PlainMod, PlainRecords, PlainStreamError, plain_records
from emulator.workload.tables import Dialect

SECONDS = 60.0
"""The longest time that a re-read may take."""

_SERVICE = "/google.spanner.v1.Spanner/"
_HEARTBEAT = "10000"
_QUERIES: dict[Dialect, str] = {
    "googlesql": (
        "SELECT ChangeRecord FROM READ_{}(start_timestamp=>@p1, end_timestamp=>@p2, partition_token=>@p3,"
        " heartbeat_milliseconds=>@p4)"
    ),
    "postgresql": 'SELECT * FROM "spanner"."read_json_{}"($1, $2, $3, $4, null)',
}
_TYPES = {
    "p1": types.TypeCode.TIMESTAMP,
    "p2": types.TypeCode.TIMESTAMP,
    "p3": types.TypeCode.STRING,
    "p4": types.TypeCode.INT64,
}

Reread = Callable[[int, int], list[PlainMod]]
"""Reads the mods between two commit timestamps, both inclusive, once more; raises RereadError."""


class RereadError(Exception):
    """The range could not be read; the message is one line that says why."""


def rereader(host: str, database: str, change_stream: str, dialect: Dialect, *, seconds: float = SECONDS) -> Reread:
    """Returns a function that reads a range of a change stream of an emulator.

    Args:
        host: the emulator's address, "127.0.0.1:9010".
        database: the database's full name, "projects/.../instances/.../databases/...".
        change_stream: its name.
        dialect: the database's dialect.
        seconds: how long a read may take.
    """

    def reread(start: int, end: int) -> list[PlainMod]:
        deadline = time.monotonic() + seconds
        try:
            with grpc.insecure_channel(host, options=DIRECT_CHANNEL) as channel:
                return list(_Rereading(channel, database, change_stream, dialect, deadline).mods(start, end))
        except grpc.RpcError as error:
            raise RereadError(f"the re-read failed: {error.code().name}: {error.details()}") from error
        except PlainStreamError as error:
            raise RereadError(f"the re-read failed: {error}") from error

    return reread


class _Rereading:
    """One re-read, with a session of its own."""

    def __init__(
        self, channel: grpc.Channel, database: str, change_stream: str, dialect: Dialect, deadline: float
    ) -> None:
        self._channel = channel
        self._sql = _QUERIES[dialect].format(change_stream)
        self._deadline = deadline
        request = types.CreateSessionRequest.serialize(types.CreateSessionRequest(database=database))
        call = channel.unary_unary(f"{_SERVICE}CreateSession")
        self._session = str(types.Session.deserialize(call(request, timeout=self._left())).name)

    def mods(self, start: int, end: int) -> Iterator[PlainMod]:
        """Yields every mod from `start` to `end`, both inclusive, partition by partition."""
        waiting: list[tuple[str | None, int]] = [(None, start)]
        seen: set[str | None] = set()
        while waiting:
            token, since = waiting.pop(0)
            if token in seen or since > end:
                continue
            seen.add(token)
            records = self._query(token, since, end)
            yield from records.mods
            waiting += records.children

    def _query(self, token: str | None, start: int, end: int) -> PlainRecords:
        request = types.ExecuteSqlRequest.pb()(session=self._session, sql=self._sql)
        request.transaction.single_use.read_only.strong = True
        for name, value in zip(_TYPES, (format_rfc3339(start), format_rfc3339(end), token, _HEARTBEAT), strict=True):
            request.param_types[name].code = _TYPES[name]
            if value is None:
                request.params.fields[name].null_value = 0
            else:
                request.params.fields[name].string_value = value
        call = self._channel.unary_stream(f"{_SERVICE}ExecuteStreamingSql")
        return plain_records(call(request.SerializeToString(), timeout=self._left()), token or "")

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise RereadError("the re-read took too long")
        return left
