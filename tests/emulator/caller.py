"""Sends raw gRPC calls to a Spanner server, official or scripted."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import grpc
from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL, Dialect
from connector.core.records import Record
from connector.core.timestamps import format_rfc3339, parse
from connector.spanner.decoding.chunks import ValueAssembler
from connector.spanner.decoding.decoder import walk
from emulator import SampleDatabase

_SERVICE = "/google.spanner.v1.Spanner/"
_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_PartialResultSet = types.PartialResultSet.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_GetSessionRequest = types.GetSessionRequest.pb()
_DeleteSessionRequest = types.DeleteSessionRequest.pb()
_Session = types.Session.pb()
_Type = types.Type.pb()
_TIMESTAMP, _STRING, _INT64 = types.TypeCode.TIMESTAMP, types.TypeCode.STRING, types.TypeCode.INT64
_SECONDS = 60


@dataclass(frozen=True)
class Asked:
    """A change stream query; a start that is text is sent unchanged."""

    token: str | None
    start: int | str | None
    end: int | None = None
    heartbeat: int | None = 1000
    sql: str | None = None
    """A statement that replaces the query's own, with the same parameters."""


@dataclass(frozen=True)
class Answer:
    """The result of a statement: its messages, and how it ended."""

    dialect: Dialect
    messages: Sequence[types.PartialResultSet]
    code: grpc.StatusCode
    details: str

    @cached_property
    def rows(self) -> list[list[Value]]:
        """The rows."""
        width = max(1, len(self.messages[0].metadata.row_type.fields))
        values = ValueAssembler().values([message.SerializeToString() for message in self.messages])
        cells = [Value.FromString(value) for value in values]
        return [cells[start : start + width] for start in range(0, len(cells), width)]

    @cached_property
    def records(self) -> list[Record]:
        """The records of a change stream query."""
        assert self.code is grpc.StatusCode.OK, self.details
        decode = walk(self.dialect, IMMUTABLE)
        return [record for (value,) in self.rows for record in decode(value, 0)]


class Caller:
    """One connection to a database's server, and one session."""

    def __init__(self, sample: SampleDatabase) -> None:
        self.database = sample.path
        self.dialect = GOOGLESQL if sample.dialect == "googlesql" else POSTGRESQL
        self._stream = sample.change_stream
        self._channel = grpc.insecure_channel(sample.host, options=[("grpc.use_local_subchannel_pool", 1)])
        self.session = self.create_session()

    def close(self) -> None:
        self._channel.close()

    def create_session(self, database: str | None = None) -> str:
        request = _CreateSessionRequest(database=database or self.database)
        request.session.multiplexed = True
        return str(_Session.FromString(self._call("CreateSession", request)).name)

    def get_session(self, name: str) -> str:
        return str(_Session.FromString(self._call("GetSession", _GetSessionRequest(name=name))).name)

    def delete_session(self, name: str) -> None:
        self._call("DeleteSession", _DeleteSessionRequest(name=name))

    def execute_sql(self, asked: Asked) -> bytes:
        """Sends a change stream query by the method that does not stream."""
        return self._call("ExecuteSql", self._query(asked))

    def now(self) -> int:
        """The server's time."""
        return parse(self.run("SELECT CURRENT_TIMESTAMP").rows[0][0].string_value)

    def run(self, sql: str, *, session: str | None = None) -> Answer:
        """Returns a statement's answer."""
        return self._stream_of(self._request(sql, {}, session))

    def query(
        self, token: str | None, start: int | str | None, end: int | None = None, *, heartbeat: int | None = 1000
    ) -> Answer:
        """Returns a change stream query's answer."""
        return self.ask(Asked(token, start, end, heartbeat))

    def ask(self, asked: Asked) -> Answer:
        """Returns a change stream query's answer."""
        return self._stream_of(self._query(asked))

    def stale(self, asked: Asked) -> Answer:
        """Returns the answer to a change stream query that is not a strong read."""
        request = self._query(asked)
        request.transaction.single_use.read_only.exact_staleness.seconds = 1
        return self._stream_of(request)

    def ask_together(self, asked: Iterable[Asked]) -> list[Answer]:
        """Returns the answers to queries that are open at the same time."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(self.ask, asked))

    def _query(self, asked: Asked) -> types.ExecuteSqlRequest:
        start = format_rfc3339(asked.start) if isinstance(asked.start, int) else asked.start
        end = None if asked.end is None else format_rfc3339(asked.end)
        heartbeat = None if asked.heartbeat is None else str(asked.heartbeat)
        given = (
            (start, _TIMESTAMP),
            (end, _TIMESTAMP),
            (asked.token, _STRING),
            (heartbeat, _INT64),
        )
        sql = asked.sql or self.dialect.query(self._stream, IMMUTABLE)
        return self._request(sql, dict(zip(self.dialect.parameters, given, strict=True)), None)

    def _request(
        self, sql: str, parameters: Mapping[str, tuple[str | None, int]], session: str | None
    ) -> types.ExecuteSqlRequest:
        request: types.ExecuteSqlRequest = _ExecuteSqlRequest(session=session or self.session, sql=sql)
        request.transaction.single_use.read_only.strong = True
        for name, (value, code) in parameters.items():
            if value is None:
                request.params.fields[name].null_value = 0
            else:
                request.params.fields[name].string_value = value
            request.param_types[name].CopyFrom(_Type(code=code))
        return request

    def _stream_of(self, request: types.ExecuteSqlRequest) -> Answer:
        call = self._channel.unary_stream(
            f"{_SERVICE}ExecuteStreamingSql",
            request_serializer=_ExecuteSqlRequest.SerializeToString,
            response_deserializer=_PartialResultSet.FromString,
        )(request, timeout=_SECONDS)
        messages = []
        try:
            for message in call:
                messages.append(message)  # noqa: PERF402 - keeps the messages before an error
        except grpc.RpcError as error:
            return Answer(self.dialect, messages, error.code(), error.details())
        return Answer(self.dialect, messages, grpc.StatusCode.OK, "")

    def _call(self, method: str, request: types.ExecuteSqlRequest) -> bytes:
        answer: bytes = self._channel.unary_unary(_SERVICE + method)(request.SerializeToString(), timeout=_SECONDS)
        return answer
