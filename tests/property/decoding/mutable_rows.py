"""Generates rows of the MUTABLE_KEY_RANGE mode from bytes, as Spanner might send them, and as it never would.

A row is the base64 of a google.spanner.v1.ChangeStreamRecord. A row may hold every kind of value in every place. An odd
row holds encodings that parsers accept, but no writer of Spanner's makes, or that are not valid.
"""

import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from google.cloud.spanner_v1 import types
from hypothesis import strategies as st

from connector.core.timestamps import SECOND
from emulator.scripted.wire import FALSE, NULL, TRUE, field, listed, number_field, text, varint
from tests.property.decoding.change_rows import AT

_ColumnMetadata = types.ChangeStreamRecord.DataChangeRecord.ColumnMetadata

NUMBERS = (
    0.0, -0.0, 1.0, -1.5, 20.779, 123456789.125, 1e16, 1e300, -5e-324, 1.7976931348623157e308, float("nan"),
    float("inf"), float("-inf"),
)  # fmt: skip
STRINGS = (
    "1", "-9223372036854775808", "gift express", "2026-02-20T12:52:20Z", "ä€🎸", "\x7f\x80\u2028", "x" * 127, "x" * 128,
    "€" * 9000, "/<>&'",
)  # fmt: skip
ESCAPED = ("", '"', "\\", '{"a": "b"}', "a\nb", "\0", "\x1f", "tab\there", "end\\", '"begin')


def number(of: float) -> bytes:
    """Encodes a google.protobuf.Value that is a number."""
    return b"\x11" + struct.pack("<d", of)


VALUES = (
    *map(text, STRINGS), *map(text, STRINGS), *map(text, ESCAPED), *map(number, NUMBERS), NULL, NULL, TRUE, FALSE,
    listed([]), listed([text("1"), NULL, number(0.5)]),
    listed([number(float("nan")), listed([TRUE, listed([])]), text('"')]),
)  # fmt: skip
"""Values as Google's libraries encode them."""

ODD_VALUES = (
    b"", b"\x08\x01", b"\x08\x80\x00", b"\x20\x02", b"\x20\x81\x00", b"\x1a\x81\x00a", NULL + text("a"),
    text("a") + text("b"), text("a") + NULL, listed([TRUE]) + listed([FALSE]), field(7, b"new") + text("a"),
    field(5, b""), field(5, field(1, field(1, b"a") + field(2, text("b")))), listed([field(5, b"")]),
    b"\x11\x00\x00", b"\x1a\x05abc",
    b"\x1a\xff\xff\xff", b"\x1a\xff\xff\xff\xff\x0f", field(3, b"\xc3\x28"), field(3, b"\xed\xa0\x80"),
    listed([field(3, b"\xff")]), b"\x0b\x0c", b"\x1a", b"\x00", text("a") + b"\x00",
)  # fmt: skip
"""Values of which a parser accepts some; the others are to be rejected."""


def mod_value(index: int, value: bytes) -> bytes:
    """Encodes a ModValue."""
    return number_field(1, index) + field(2, value)


def _odd_mod_value(random: Random, index: int, value: bytes) -> bytes:
    """Encodes a ModValue in a way that no writer does."""
    return random.choice(
        (
            b"",
            number_field(1, index),
            field(2, value) + number_field(1, index),
            b"\x08" + varint(index) + field(2, value),
            b"\x08" + bytes((index | 0x80, 0x80, 0x00)) + field(2, value),
            b"\x08" + bytes((index | 0x80, *(0x80,) * 5, 0x00)) + field(2, value),
            mod_value(index, value) + field(2, NULL),
            mod_value(index, value) + field(3, b"new"),
            field(3, b"new") + mod_value(index, value),
            number_field(1, 1) + mod_value(index, value),
            b"\x08" + b"\xff" * 9 + b"\x01" + field(2, value),
            number_field(1, 2**32 + index) + field(2, value),
            number_field(1, 99) + field(2, value),
            field(2, value)[:-1],
            field(1, b"\x01") + field(2, value),
            mod_value(index, random.choice(ODD_VALUES)),
            mod_value(index, random.choice(ODD_VALUES)),
        )
    )


def _column(name: str, position: int, *, key: bool = False, code: int = 6) -> bytes:
    message = _ColumnMetadata(name=name, is_primary_key=key, ordinal_position=position)
    metadata = _ColumnMetadata.pb(message)
    metadata.type_.code = code
    encoded: bytes = metadata.SerializeToString()
    return encoded


TABLES: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("Singers", tuple(_column(f"C{at}", at + 1, key=at == 0) for at in range(5))),
    ("Singers", tuple(_column(f"C{at}", at + 1, key=at == 0) for at in range(3))),
    ("music.Älben", (_column("Ärger €🎸", 1, key=True), _column('quo"te\\\n', 2), _column("Z", 3, code=99))),
    ("Wide", tuple(_column(f"Column {at}", at) for at in range(140))),
    ("Bare", ()),
)
"""Tables and their columns, as bytes of ColumnMetadata."""

_TWICE = (_column("A", 1, key=True), _column("B", 2), _column("A", 3))
"""Two columns have the same name; a JSON object keeps the last one."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The variety of records: how often a mod's content is odd, and which kinds of records there are."""

    odd: float = 0.0
    back: Sequence[int] = (0,)
    kinds: Sequence[str] = ("data",)


TYPICAL = Spread()
ANY = Spread(back=(0, 0, 0, 0, 1, 10**9), kinds=("data",) * 8 + ("other",))
ODD = Spread(odd=0.1, kinds=("data",) * 8 + ("other", "odd"))

_STEPS = (0, 0, 1, 1000, 10**6, 10**9)


@dataclass(frozen=True, slots=True)
class Data:
    """A data change record without its commit timestamp: the bytes of all other fields."""

    fields: bytes

    def row(self, at: int) -> bytes:
        """Returns the bytes of the whole row."""
        return field(1, field(1, timestamp(at)) + self.fields)


def timestamp(at: int) -> bytes:
    """Encodes a google.protobuf.Timestamp."""
    return number_field(1, at // SECOND) + number_field(2, at % SECOND)


def _mod(random: Random, columns: int, odd: float) -> bytes:
    """Generates a mod of some of the columns, each at most once in a payload unless the mod is odd."""
    payloads = []
    for payload in (1, 2, 3):
        few = random.sample(range(columns), min(columns, random.choice((0, 0, 1, 2, 5, 140))))
        indexes = sorted(few) if random.random() < 0.7 else few
        values = [mod_value(index, random.choice(VALUES)) for index in indexes]
        if random.random() < odd and columns:
            values.append(_odd_mod_value(random, random.randrange(columns), random.choice(VALUES)))
            random.shuffle(values)
        payloads += [field(payload, value) for value in values]
    if random.random() < odd:
        payloads.append(random.choice((field(4, b"new"), b"\x20\x01", b"\x0a", b"\x0a\x05ab", b"\x00")))
    if random.random() < odd:
        random.shuffle(payloads)
    return b"".join(payloads)


def data(random: Random, odd: float = 0.0) -> Data:
    """Generates a data change record of any table."""
    table, columns = random.choice(TABLES)
    if random.random() < odd / 3:
        columns = random.choice((_TWICE, (b"\x0a\x01\xff",), (field(1, b"N") + field(2, b"\x08\x63"),)))
    fields = [
        field(2, random.choice(("00000000", "2", "99999999999999999999")).encode()),
        field(3, random.choice(("a", "b", "ä€🎸")).encode()),
        number_field(4, random.random() < 0.5),
        field(5, table.encode()),
        *(field(6, column) for column in columns),
        *(field(7, _mod(random, len(columns), odd)) for _ in range(random.choice((0, 1, 1, 1, 2, 5)))),
        number_field(8, random.choice((10, 20, 30))),
        number_field(9, random.choice((10, 20, 30, 40))),
        number_field(10, random.choice((1, 1, 2, 2**31 - 1, 0))),
        number_field(11, random.choice((1, 1, 2))),
        field(12, random.choice(("", "", "app=x", "ä€🎸")).encode()),
        number_field(13, random.random() < 0.5),
    ]
    if random.random() < odd:
        what = random.choice((field(14, b"new"), number_field(8, 15), number_field(10, 2**32 + 7), field(3, b"\xff")))
        fields.insert(random.randrange(len(fields)), what)
    if random.random() < odd / 3:
        random.shuffle(fields)
    return Data(b"".join(fields))


def others(at: int) -> tuple[bytes, ...]:
    """Returns a record of every other kind."""
    start = field(1, timestamp(at))
    return (
        field(2, start),
        field(3, start + field(2, b"00000001") + field(3, b"c") + field(3, b"d")),
        field(4, start + field(2, b"00000001") + field(3, b"c")),
        field(5, start + field(2, b"00000001") + field(3, b"c") + field(4, field(1, b"d"))),
    )


def odd_rows(at: int, one: Data) -> tuple[bytes, ...]:
    """Returns rows that are not valid, and some that hold more than one record."""
    whole = one.row(at)
    return (
        b"", field(6, b"new"), field(1, one.fields), field(1, b""), whole + field(6, b"new"), field(6, b"") + whole,
        whole + whole, whole + others(at)[0], others(at)[0] + whole, whole[:-1], whole + b"\x0a", b"\x0a",
        b"\x0a\xff\xff\xff\xff", field(1, field(1, b"\x08\xff") + one.fields), field(1, field(1, b"") + one.fields),
        field(1, field(1, number_field(1, 2**62)) + one.fields), field(1, field(1, timestamp(at)) * 2 + one.fields),
    )  # fmt: skip


_RANDOM = Random(7)
_POOLS = {odd: st.sampled_from([data(_RANDOM, odd) for _ in range(400)]) for odd in (0.0, 0.1)}
"""Generated once, as those of :mod:`tests.property.decoding.change_rows` are."""


@st.composite
def rows(draw: st.DrawFn, spread: Spread) -> list[bytes]:
    """Draws the bytes of a partition's rows, in the order of time unless one steps back."""
    at, found = AT, []
    for kind in draw(st.lists(st.sampled_from(spread.kinds), max_size=12)):
        at += draw(st.sampled_from(_STEPS)) - draw(st.sampled_from(spread.back))
        one = draw(_POOLS[spread.odd])
        match kind:
            case "data":
                found.append(one.row(at))
            case "other":
                found.append(draw(st.sampled_from(others(at))))
            case _:
                found.append(draw(st.sampled_from(odd_rows(at, one))))
    return found


def in_base64(row: bytes) -> str:
    """Returns a row's value."""
    return b64encode(row).decode()
