"""The responses of a replayed change stream: any number of real records, framed as the service might frame them.

Every record is one of the sample's. Its commit timestamp, transaction and keys are placeholders of fixed length, which
are replaced in the encoded bytes. A block is one second of commit time; it is encoded once, and any other second of any
partition is that block with two texts replaced, at the speed of copying. So a replay of any length needs little memory,
and its commit timestamps only increase.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from google.protobuf.struct_pb2 import Value

from benchmarks.replay.http2 import Buffer
from benchmarks.replay.request import Request
from benchmarks.replay.sample import Sample, prefixed
from connector.core.timestamps import SECOND, format_rfc3339, parse
from emulator.scripted.wire import field

FRAMINGS = {"1/msg": (1, 1), "16/msg": (16, 1), "50-mod": (1, 50)}
"""The records of a message and the mods of a record, by framing."""

BLOCK = {1: 20_000, 50: 2_000}
"""Records of a partition in a second of commit time, by the mods of a record."""

START = parse("2026-01-01T00:00:00Z")
"""The start of a replay, in Unix nanoseconds."""

_CLOCK = b"2026-02-01T00:00:00Z"
_SECOND, _FRACTION = "2026-01-01T00:00:00", ".999999"
_SERIAL, _RECORD = "777000777", "88888"
"""Placeholders for a block's partition and second, and for a record's number."""

_RENDERED = 12
"""The cached blocks, of 20 to 40 MB each, so that the rounds of a benchmark render none."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a replay, from its start to ``end`` (nanoseconds since 1970, inclusive), with ``mods`` mods."""

    end: int
    mods: int


@dataclass(frozen=True, slots=True)
class Replay:
    """An endless change stream whose partitions all start at `START`.

    Args:
        dialect: ``googlesql`` or ``postgresql``.
        framing: a key of `FRAMINGS`.
        partitions: the number of partitions.
    """

    dialect: str
    framing: str
    partitions: int = 1

    @property
    def tokens(self) -> tuple[str, ...]:
        """The partitions' tokens."""
        return tuple(f"replayed-{number:03}" for number in range(self.partitions))

    def span(self, mods: int) -> Span:
        """Returns a part of about ``mods`` mods: a number of whole messages of every partition."""
        together, size = FRAMINGS[self.framing]
        messages = max(mods // (self.partitions * together * size), 1)
        block, number = divmod(messages * together - 1, BLOCK[size])
        end = START + block * SECOND + _microsecond(number, BLOCK[size]) * 1000
        return Span(end, messages * together * size * self.partitions)

    def seconds(self, count: int) -> Span:
        """Returns the first ``count`` seconds of commit time; a window that ends there cuts no message in two."""
        _, size = FRAMINGS[self.framing]
        return Span(START + count * SECOND - 1, count * BLOCK[size] * size * self.partitions)

    def prepare(self, span: Span) -> None:
        """Renders the blocks of a span, or as many of its first ones as are cached."""
        blocks = (span.end - START) // SECOND + 1
        for index in range(min(blocks * self.partitions, _RENDERED)):
            block, partition = divmod(index, self.partitions)
            rendered(self.dialect, self.framing, partition, block)

    def respond(self, request: Request) -> Iterator[Buffer]:
        """Yields the response to a query; the clock is past any span."""
        if b"CURRENT_TIMESTAMP" in request.sql:
            return iter([prefixed(field(2, field(3, _CLOCK)))])
        return self.answer(request.partition_token, request.start, request.end)

    def answer(self, token: str | None, start: int, end: int) -> Iterator[Buffer]:
        """Yields the response to a partition's query or to the initial one: messages with gRPC's prefixes."""
        if token is None:
            rows = b"".join(field(2, _announcement(self.dialect, token)) for token in self.tokens)
            return iter([prefixed(field(1, Sample.of(self.dialect).metadata) + rows)])
        return self._partition(self.tokens.index(token), self._messages(start - 1), self._messages(end))

    def _partition(self, number: int, first: int, stop: int) -> Iterator[Buffer]:
        """Yields a partition's messages from ``first`` to ``stop``, exclusive."""
        together, size = FRAMINGS[self.framing]
        metadata = field(1, Sample.of(self.dialect).metadata)
        each = BLOCK[size] // together
        while first < stop:
            block, at = divmod(first, each)
            ends, body = rendered(self.dialect, self.framing, number, block)
            begin = ends[at - 1] if at else 0
            if metadata:  # only the first message has them
                yield prefixed(metadata + body[begin + 5 : ends[at]])
                begin, metadata = ends[at], b""
            last = min(stop - block * each, each)
            yield memoryview(body)[begin : ends[last - 1]]
            first = block * each + last

    def _messages(self, end: int) -> int:
        """Returns how many messages a partition has up to a timestamp."""
        together, size = FRAMINGS[self.framing]
        seconds, nanoseconds = divmod(end - START, SECOND)
        in_second = ((nanoseconds // 1000 + 1) * BLOCK[size] - 1) // 1_000_000 + 1
        return (seconds * BLOCK[size] + in_second) // together


def _microsecond(number: int, count: int) -> int:
    """Returns the microsecond at which a record is committed in its second, of ``count`` records."""
    return number * 1_000_000 // count


@lru_cache(_RENDERED)
def rendered(dialect: str, framing: str, partition: int, block: int) -> tuple[tuple[int, ...], bytes]:
    """Renders a second of a partition: the ends of its messages, and their bytes."""
    ends, body = _block(dialect, framing)
    second = format_rfc3339(START + block * SECOND)[: len(_SECOND)]
    body = body.replace(_SECOND.encode(), second.encode())
    return ends, body.replace(_SERIAL.encode(), b"%03d%06d" % (partition, block))


@lru_cache
def _block(dialect: str, framing: str) -> tuple[tuple[int, ...], bytes]:
    together, mods = FRAMINGS[framing]
    templates = [_template(dialect, row) for row in Sample.of(dialect).records[mods]]
    count = BLOCK[mods]
    rows = [field(2, _numbered(templates[number % len(templates)], number, count)) for number in range(count)]
    token = field(4, Sample.of(dialect).resume_token)
    messages = [prefixed(b"".join(rows[at : at + together]) + token) for at in range(0, count, together)]
    return tuple(accumulate(map(len, messages))), b"".join(messages)


def _numbered(template: bytes, number: int, count: int) -> bytes:
    """Returns the record with that number in its second."""
    fraction = b".%06d" % _microsecond(number, count)
    row = template.replace((_SECOND + _FRACTION).encode(), _SECOND.encode() + fraction)
    return row.replace((_SERIAL + _RECORD).encode(), b"%b%05d" % (_SERIAL.encode(), number))


def _template(dialect: str, row: Value) -> bytes:
    """Returns a sample's row with placeholders for what differs from record to record."""
    transaction = f"{_SERIAL}{_RECORD}MDgzODQ5Nw=="
    if dialect == "postgresql":
        data = json.loads(row.string_value)["data_change_record"]
        keys = [next(iter(mod["keys"].values())) for mod in data["mods"]]
        text = row.string_value.replace(data["commit_timestamp"], f"{_SECOND}{_FRACTION}+00:00")
        known = f'"server_transaction_id":"{data["server_transaction_id"]}"'
        template = Value(string_value=text.replace(known, f'"server_transaction_id":"{transaction}"'))
    else:
        template = Value.FromString(row.SerializeToString())
        cells = template.list_value.values[0].list_value.values[0].list_value.values[0].list_value.values
        cells[0].string_value, cells[2].string_value = f"{_SECOND}{_FRACTION}Z", transaction
        mods = [mod.list_value.values[0].string_value for mod in cells[6].list_value.values]
        keys = [next(iter(json.loads(mod).values())) for mod in mods]
    encoded: bytes = template.SerializeToString()
    for index, key in enumerate(keys):
        encoded = encoded.replace(f'"{key}"'.encode(), f'"1{_SERIAL}{_RECORD}{index:02}"'.encode())
    return encoded


def _announcement(dialect: str, token: str) -> bytes:
    """Returns the sample's row that names a partition, with another token and start."""
    row = Value.FromString(Sample.of(dialect).announcement.SerializeToString())
    start = format_rfc3339(START)
    if dialect == "postgresql":
        node = json.loads(row.string_value)
        record = node["child_partitions_record"]
        record["start_timestamp"] = start.replace("Z", "+00:00")
        record["child_partitions"][0]["token"] = token
        row.string_value = json.dumps(node, separators=(",", ":"))
    else:
        record = row.list_value.values[0].list_value.values[2].list_value.values[0].list_value.values
        record[0].string_value = start
        record[2].list_value.values[0].list_value.values[0].string_value = token
    announcement: bytes = row.SerializeToString()
    return announcement
