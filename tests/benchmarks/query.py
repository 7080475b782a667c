"""Requests to a replay server, as a client of google.spanner.v1 sends them."""

from google.cloud.spanner_v1 import types

from benchmarks.replay.messages import START, Replay, Span
from connector.core.dialects import GOOGLESQL, IMMUTABLE, POSTGRESQL
from connector.core.timestamps import format_rfc3339

STREAMING, CREATE = (f"/google.spanner.v1.Spanner/{name}" for name in ("ExecuteStreamingSql", "CreateSession"))
DATABASE = "projects/p/instances/instance/databases/d"
PartialResultSet = types.PartialResultSet.pb()
Session = types.Session.pb()
_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_CreateSessionRequest = types.CreateSessionRequest.pb()


def answer(replay: Replay, span: Span, token: str | None, start: int = START) -> list[bytes]:
    """Returns the messages of a response, without gRPC's prefixes."""
    body, at = b"".join(replay.answer(token, start, span.end)), 0
    messages = []
    while at < len(body):
        end = at + 5 + int.from_bytes(body[at + 1 : at + 5])
        messages.append(body[at + 5 : end])
        at = end
    return messages


def create_session() -> bytes:
    request: bytes = _CreateSessionRequest(database=DATABASE).SerializeToString()
    return request


def query(replay: Replay, span: Span, token: str | None) -> bytes:
    dialect = GOOGLESQL if replay.dialect == "googlesql" else POSTGRESQL
    request = _ExecuteSqlRequest(session=f"{DATABASE}/sessions/s", sql=dialect.query("Everything", IMMUTABLE))
    values = (format_rfc3339(START), format_rfc3339(span.end), token, "1000")
    for name, value in zip(dialect.parameters, values, strict=True):
        if value is None:
            request.params.fields[name].null_value = 0
        else:
            request.params.fields[name].string_value = value
    encoded: bytes = request.SerializeToString()
    return encoded
