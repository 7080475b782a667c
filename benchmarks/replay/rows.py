"""The responses to a query of a table: any number of typical rows, framed as the service might frame them.

A block of rows is encoded once. Any other block is that one with a placeholder in its keys replaced, at the speed of
copying, so that no key comes twice. A statement ends with the number of rows, and the number of those before them.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random

from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

from benchmarks.replay.http2 import Buffer
from benchmarks.replay.messages import Span
from benchmarks.replay.request import Request
from benchmarks.replay.sample import prefixed
from emulator.scripted.wire import field

TABLE = "Accounts"

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
"""Rows whose values differ from each other; those of the next block differ from them by their keys."""

TOGETHER = 200
"""Rows of a message."""

_RENDERED = 16
"""The cached blocks, of 2 MB each."""

_ResultSetMetadata = types.ResultSetMetadata.pb()
_RANGE = re.compile(rb" LIMIT (\d+) OFFSET (\d+)")
_SERIAL = "777000777"
"""Placeholder for a block in its keys."""

_FIRST_SERIAL = 100_000_000
"""The first block's serial, which has as many digits as the placeholder."""


@dataclass(frozen=True, slots=True)
class TableReplay:
    """A table with as many rows as are wanted."""

    @staticmethod
    def sql(rows: int, before: int = 0) -> str:
        """Returns the statement that reads so many rows after so many others: numbers of whole messages."""
        limit, offset = (count // TOGETHER * TOGETHER for count in (rows, before))
        return f"SELECT * FROM {TABLE} LIMIT {limit} OFFSET {offset}"

    @staticmethod
    def row_bytes() -> float:
        """Returns the bytes of a row as it is sent, on average."""
        _, body = _block()
        return len(body) / BLOCK

    def prepare(self, _: Span) -> None:
        """Encodes the rows."""
        _block()

    def respond(self, request: Request) -> Iterator[Buffer]:
        """Yields the messages of a query, with gRPC's prefixes."""
        match = _RANGE.search(request.sql)
        rows, before = (int(number) // TOGETHER for number in match.groups()) if match else (0, 0)
        yield prefixed(field(1, _metadata()))
        each = BLOCK // TOGETHER
        first, stop = before, before + rows
        while first < stop:
            block, at = divmod(first, each)
            last = min(stop - block * each, each)
            ends, body = _rendered(block)
            yield memoryview(body)[ends[at - 1] if at else 0 : ends[last - 1]]
            first = block * each + last


def _metadata() -> bytes:
    described = _ResultSetMetadata()
    for name, code in COLUMNS.items():
        described.row_type.fields.add(name=name).type_.code = getattr(types.TypeCode, code)
    encoded: bytes = described.SerializeToString()
    return encoded


@lru_cache(_RENDERED)
def _rendered(block: int) -> tuple[tuple[int, ...], bytes]:
    """Returns the ends of a block's messages, and their bytes."""
    ends, body = _block()
    return ends, body.replace(_SERIAL.encode(), b"%d" % (_FIRST_SERIAL + block))


@lru_cache
def _block() -> tuple[tuple[int, ...], bytes]:
    random = Random(7)
    rows = [b"".join(field(2, value) for value in _row(random, number)) for number in range(BLOCK)]
    messages = [
        prefixed(b"".join(rows[at : at + TOGETHER]) + field(4, b"token %d" % at)) for at in range(0, BLOCK, TOGETHER)
    ]
    body = b"".join(messages)
    assert body.count(_SERIAL.encode()) == BLOCK, "the placeholder is in a value, too"
    return tuple(accumulate(map(len, messages))), body


def _row(random: Random, number: int) -> list[bytes]:
    owner = "".join(random.choices("abcdefghijklmnop", k=random.randrange(6, 20)))
    values: list[Value] = [
        Value(string_value=f"{_SERIAL}{random.randrange(1000, 9999)}{number:05}"),
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
