"""Reads the sample of real messages in ``benchmarks/data``.

`benchmarks.capture` recorded it from the official emulator. A file holds messages as they are sent, each
with gRPC's prefix: a zero, and its length in four bytes.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from struct import Struct

from google.cloud.spanner_v1 import types
from google.protobuf.struct_pb2 import Value

DATA = Path(__file__).parents[1] / "data"
PartialResultSet = types.PartialResultSet.pb()
_PREFIX = Struct("!BL")


def prefixed(message: bytes) -> bytes:
    """Returns a message with gRPC's prefix."""
    return _PREFIX.pack(0, len(message)) + message


@dataclass(frozen=True, slots=True)
class Sample:
    """The parts of a dialect's real messages.

    Args:
        metadata: the rows' metadata, from the first message.
        resume_token: the resume token of every message.
        announcement: a row of the initial query that names a partition.
        records: rows with a data change record, by the number of its mods.
    """

    metadata: bytes
    resume_token: bytes
    announcement: Value
    records: dict[int, list[Value]]

    @classmethod
    @cache
    def of(cls, dialect: str) -> "Sample":
        """Returns the sample of a dialect, ``googlesql`` or ``postgresql``."""
        messages = [PartialResultSet.FromString(message) for message in _messages(dialect)]
        rows = list(_rows(messages))
        records: dict[int, list[Value]] = {}
        for row in rows:
            if mods := _mods(row):
                records.setdefault(mods, []).append(row)
        first = messages[0]
        announcement = next(row for row in rows if _tokens(row))
        return cls(first.metadata.SerializeToString(), first.resume_token, announcement, records)


def announced(messages: Iterable[bytes]) -> list[str]:
    """Returns the tokens of the partitions that the messages of an initial query name."""
    return [token for row in _rows(map(PartialResultSet.FromString, messages)) for token in _tokens(row)]


def _messages(dialect: str) -> Iterator[bytes]:
    data, at = (DATA / f"{dialect}.grpc").read_bytes(), 0
    while at < len(data):
        _, length = _PREFIX.unpack_from(data, at)
        at += _PREFIX.size
        yield data[at : at + length]
        at += length


def _rows(messages: Iterable[types.PartialResultSet]) -> Iterator[Value]:
    for message in messages:
        assert not message.chunked_value, "the sample is too small for a value to be cut"
        yield from message.values


def _mods(row: Value) -> int:
    """Returns how many mods a row's data change record has; 0 without one."""
    if row.HasField("string_value"):
        return len(json.loads(row.string_value).get("data_change_record", {}).get("mods", ()))
    data = row.list_value.values[0].list_value.values[0].list_value.values
    return len(data[0].list_value.values[6].list_value.values) if data else 0


def _tokens(row: Value) -> list[str]:
    if row.HasField("string_value"):
        found = json.loads(row.string_value).get("child_partitions_record", {})
        return [child["token"] for child in found.get("child_partitions", ())]
    return [
        child.list_value.values[0].string_value
        for record in row.list_value.values[0].list_value.values[2].list_value.values
        for child in record.list_value.values[2].list_value.values
    ]
