"""The responses to a query of a table: any number of typical rows, framed as the service might frame them.

A block of rows is encoded once and sent as often as a query asks for; its statement ends with the number of rows.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from benchmarks.replay.http2 import Buffer
from benchmarks.replay.messages import Span
from benchmarks.replay.request import Request
from benchmarks.replay.sample import prefixed
from emulator.scripted.wire import field

COLUMNS = {
    "Id": "INT64",
    "Owner": "STRING",
    "Email": "STRING",
    "Balance": "NUMERIC",
    "Score": "FLOAT64",
    "Active": "BOOL",
    "Born": "DATE",
    "UpdatedAt": "TIMESTAMP",
    "Photo": "BYTES",
    "Note": "STRING",
}
"""The columns of the table, by name; the first is its key."""

BLOCK = 10_000
"""Rows that differ from each other."""

TOGETHER = 200
"""Rows of a message."""

_ResultSetMetadata = types.ResultSetMetadata.pb()
_LIMIT = re.compile(rb" LIMIT (\d+)")


@dataclass(frozen=True, slots=True)
class TableReplay:
    """A table with as many rows as are wanted."""

    @staticmethod
    def sql(rows: int) -> str:
        """Returns the statement that reads so many rows: a number of whole messages."""
        return f"SELECT * FROM Accounts LIMIT {rows // TOGETHER * TOGETHER}"

    def prepare(self, _: Span) -> None:
        """Encodes the rows."""
        _block()

    def respond(self, request: Request) -> Iterator[Buffer]:
        """Yields the messages of a query, with gRPC's prefixes."""
        match = _LIMIT.search(request.sql)
        wanted = int(match[1]) // TOGETHER if match else 0
        messages = _block()
        yield prefixed(field(1, _metadata()))
        whole = b"".join(messages)
        for _ in range(wanted // len(messages)):
            yield memoryview(whole)
        yield from messages[: wanted % len(messages)]


def _metadata() -> bytes:
    described = _ResultSetMetadata()
    for name, code in COLUMNS.items():
        described.row_type.fields.add(name=name).type_.code = getattr(types.TypeCode, code)
    encoded: bytes = described.SerializeToString()
    return encoded


@lru_cache
def _block() -> list[bytes]:
    random = Random(7)
    rows = [b"".join(field(2, value) for value in _row(random, number)) for number in range(BLOCK)]
    return [
        prefixed(b"".join(rows[at : at + TOGETHER]) + field(4, b"token %d" % at)) for at in range(0, BLOCK, TOGETHER)
    ]


def _row(random: Random, number: int) -> list[bytes]:
    owner = "".join(random.choices("abcdefghijklmnop", k=random.randrange(6, 20)))
    values: list[Value] = [
        Value(string_value=str(random.getrandbits(62))),
        Value(string_value=owner),
        Value(string_value=f"{owner}@example.com"),
        Value(string_value=f"{random.randrange(10**7)}.{random.randrange(1, 100):02}"),
        Value(number_value=random.random()),
        Value(bool_value=random.random() < 0.5),
        Value(string_value=f"{random.randrange(1940, 2010)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"),
        Value(
            string_value=f"2026-01-{random.randrange(1, 29):02}T12:00:{number % 60:02}.{random.randrange(10**6):06}Z"
        ),
        Value(string_value=base64.b64encode(random.randbytes(24)).decode()),
        Value(null_value=0) if random.random() < 0.3 else Value(string_value=f"note {number}: {owner * 2}"),
    ]
    return [value.SerializeToString() for value in values]
