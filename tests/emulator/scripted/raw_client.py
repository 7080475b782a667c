"""A plain gRPC client of a scripted server."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.cloud.spanner_v1 import types

from emulator import ScriptedServer
from tests.emulator.scripted.scripted_stream import Asked

_SERVICE = "/google.spanner.v1.Spanner/"
_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_PartialResultSet = types.PartialResultSet.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()
_Session = types.Session.pb()


class RawClient:
    """One connection and one session; `stream` and `call` raise grpc.RpcError."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.channel = grpc.insecure_channel(
            server.host, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        )
        self.session = self.create_session(server.database)

    def create_session(self, database: str) -> str:
        request = _CreateSessionRequest(database=database)
        return str(_Session.FromString(self.call("CreateSession", request.SerializeToString())).name)

    def call(self, method: str, request: bytes) -> bytes:
        answer: bytes = self.channel.unary_unary(_SERVICE + method)(request, timeout=300)
        return answer

    def request(self, sql: str, parameters: dict[str, str | None] | None = None) -> types.ExecuteSqlRequest:
        request: types.ExecuteSqlRequest = _ExecuteSqlRequest(session=self.session, sql=sql)
        request.transaction.single_use.read_only.strong = True
        for name, value in (parameters or {}).items():
            if value is None:
                request.params.fields[name].null_value = 0
            else:
                request.params.fields[name].string_value = value
        return request

    def query(self, token: str | None = None, start: float = 0.0, end: float | None = None) -> types.ExecuteSqlRequest:
        """Builds a change stream query; times are seconds after the origin."""
        asked = Asked(self.server.engine.scenario, token, start, end)
        return self.request(asked.sql, asked.parameters)

    def stream(self, request: types.ExecuteSqlRequest) -> grpc.Call:
        """Returns the messages of a streaming statement as an iterator."""
        return self.channel.unary_stream(
            f"{_SERVICE}ExecuteStreamingSql",
            request_serializer=_ExecuteSqlRequest.SerializeToString,
            response_deserializer=_PartialResultSet.FromString,
        )(request, timeout=300)

    def read(
        self, token: str | None = None, start: float = 0.0, end: float | None = None
    ) -> tuple[int, grpc.StatusCode, str]:
        """Returns how many messages a query returns, its code and its details."""
        count, call = 0, self.stream(self.query(token, start, end))
        try:
            for _ in call:
                count += 1
        except grpc.RpcError as error:
            return count, error.code(), error.details()
        return count, call.code(), call.details()


@contextmanager
def connected(server: ScriptedServer) -> Iterator[RawClient]:
    client = RawClient(server)
    try:
        yield client
    finally:
        client.channel.close()
