"""Parses a request's message as far as the answer needs it.

The wire format of protocol buffers can be read without a schema. Field 1 of every request is the resource it is about,
a database or a session; field 3 of google.spanner.v1.ExecuteSqlRequest is the statement, and field 4 a
google.protobuf.Struct of its parameters, where the partition token and the bounds are strings or null.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from connector.core.timestamps import parse

_RESOURCE, _SQL, _PARAMS = 1, 3, 4
_START, _END, _TOKEN = ("start_timestamp", "p1"), ("end_timestamp", "p2"), ("partition_token", "p3")
"""The names of the parameters in the two dialects."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request: a query of a partition (None is the initial query), or a request about a session."""

    resource: str
    sql: bytes
    partition_token: str | None
    start: int
    end: int
    """The query's end in nanoseconds since 1970, inclusive; 0 without one."""

    @property
    def is_query(self) -> bool:
        """True if it has a statement."""
        return bool(self.sql)

    @classmethod
    def of(cls, message: bytes) -> "Request":
        """Parses a request's message."""
        fields = dict(_fields(message))
        given = dict(_parameters(fields.get(_PARAMS, b"")))
        start, end, token = (
            next((given[name] for name in names if name in given), "") for names in (_START, _END, _TOKEN)
        )
        resource = fields.get(_RESOURCE, b"").decode()
        return cls(resource, fields.get(_SQL, b""), token or None, *(parse(at) if at else 0 for at in (start, end)))


def _parameters(struct: bytes) -> Iterator[tuple[str, str]]:
    """Yields the strings of a google.protobuf.Struct by name; null is an empty string."""
    for _, entry in _fields(struct):
        name, value = (dict(_fields(entry)).get(part, b"") for part in (1, 2))
        yield name.decode(), dict(_fields(value)).get(3, b"").decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the length-delimited fields by number; others are skipped."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 2:
            length, at = _varint(message, at)
            yield key >> 3, message[at : at + length]
            at += length
        elif kind == 0:
            _, at = _varint(message, at)
        else:
            at += 8 if kind == 1 else 4


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
