"""Puts rows into messages, in the many ways that google.spanner.v1.PartialResultSet allows.

A message holds any number of rows. Its last value may be cut anywhere, inside a string or a list, and continue in the
next message: see https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#partialresultset. Only the first
message has the metadata; any message may have a resume token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from google.protobuf.struct_pb2 import Value

from emulator.scripted.wire import field

RESUME_TOKEN = b"a resume token that resumes nothing"
_CHUNKED = b"\x18\x01"
_TOKEN = field(4, RESUME_TOKEN)


@dataclass(frozen=True, slots=True)
class Framing:
    """The framing of a server's rows: without a seed always the same, with a seed drawn for each query.

    A message holds `rows` rows, with a seed 1 to `rows`. `chunked` is the share of rows that are cut into chunks,
    `tokens` the share of messages with a resume token, `bare` the share of extra messages without rows.
    """

    seed: int | None = None
    rows: int = 1
    chunked: float = 0.0
    tokens: float = 1.0
    bare: float = 0.0

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows is {self.rows}, but must be 1 or more")

    @classmethod
    def plain(cls, rows: int = 1) -> Framing:
        """Returns a constant framing: `rows` rows in each message, no chunks, a resume token in each."""
        return cls(rows=rows)

    @classmethod
    def drawn(cls, seed: int) -> Framing:
        """Returns a framing drawn from a seed, which may use everything that is allowed."""
        random = Random(seed)  # noqa: S311 - not a secret
        return cls(
            seed,
            rows=random.choice((1, 2, 7, 40)),
            chunked=random.choice((0.0, 0.1, 0.5, 1.0)),
            tokens=random.choice((0.0, 0.3, 1.0)),
            bare=random.choice((0.0, 0.05)),
        )

    def of_query(self, metadata: bytes, name: str, *, columns: int = 1) -> Frames:
        """Returns the frames of a query whose rows have `columns` columns; the same name gives the same draws."""
        framing = self if columns == 1 else replace(self, rows=self.rows * columns)
        return Frames(framing, metadata, Random(f"{self.seed}/{name}"))  # noqa: S311


class Frames:
    """The messages of one query, as bytes.

    `started` rows have been in messages at least in part; `open` says that the last one continues in the next message.
    """

    def __init__(self, framing: Framing, metadata: bytes, random: Random) -> None:
        self._framing = framing
        self._first = field(1, metadata)
        self._random = random
        self.started = 0
        self.open = False

    def messages(self, rows: Sequence[bytes]) -> Iterator[bytes]:
        """Yields the messages of rows, given as Values, several for a row of several columns; no row stays open."""
        framing, at = self._framing, 0
        while at < len(rows):
            if self._hits(framing.bare):
                yield self._message(())
            upto = at + (self._random.randint(1, framing.rows) if framing.seed is not None else framing.rows)
            held = list(rows[at:upto])
            at += len(held)
            self.started += len(held)
            if self._hits(framing.chunked):
                yield from self._chunked(held)
            else:
                yield self._message(held)

    def end(self) -> Iterator[bytes]:
        """Yields what must precede an OK: the metadata, if there was no row."""
        if self._first:
            yield self._message(())

    def _chunked(self, held: list[bytes]) -> Iterator[bytes]:
        """Yields the rows with the last one in chunks; the last chunk shares its message with no other row."""
        *first_parts, last = chunks(Value.FromString(held[-1]), self._random)
        before = held[:-1]
        self.open = True
        for part in first_parts:
            yield self._message((*before, part.SerializeToString()), chunked=True)
            before = []
        self.open = False
        yield self._message((*before, last.SerializeToString()))

    def _message(self, values: Sequence[bytes], *, chunked: bool = False) -> bytes:
        parts = [self._first, *(field(2, value) for value in values)]
        self._first = b""
        if chunked:
            parts.append(_CHUNKED)
        elif self._hits(self._framing.tokens):  # a query cannot be resumed inside a row
            parts.append(_TOKEN)
        return b"".join(parts)

    def _hits(self, share: float) -> bool:
        return share > 0 and (share >= 1 or self._random.random() < share)


def chunks(value: Value, random: Random) -> list[Value]:
    """Cuts a value into 1 to 5 chunks that merge to the same value; only strings and lists can be cut."""
    whole = [value]
    while len(whole) < 5 and (len(whole) == 1 or random.random() < 0.4):
        cut = _cut(whole[-1], random)
        if cut is None:
            break
        whole[-1:] = cut
    return whole


def _cut(value: Value, random: Random) -> tuple[Value, Value] | None:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        content = value.string_value
        at = random.randint(0, len(content))
        return Value(string_value=content[:at]), Value(string_value=content[at:])
    if kind != "list_value":
        return None
    left, right = Value(), Value()
    left.list_value.SetInParent()
    right.list_value.SetInParent()
    items = value.list_value.values
    if not items:
        return left, right
    at = random.randrange(len(items))
    # Two adjacent strings or lists would be merged at the cut, so one of them is cut too, possibly at its end.
    inside = _cut(items[at], random)
    left.list_value.values.extend(items[:at])
    if inside is None:
        left.list_value.values.append(items[at])
    else:
        left.list_value.values.append(inside[0])
        right.list_value.values.append(inside[1])
    right.list_value.values.extend(items[at + 1 :])
    return left, right
