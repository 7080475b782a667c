"""Compares a decoder that uses columns with the row decoder alone, which is the oracle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

import pytest

from connector.core.changes import Changes
from connector.core.dialects import GOOGLESQL, IMMUTABLE, MUTABLE, POSTGRESQL
from connector.core.records import DataChangeRecord, Record
from connector.spanner.decoding.decoder import Decoder, Item, decoder, walk
from connector.spanner.decoding.googlesql import is_known
from connector.spanner.decoding.row_fields import UnknownRecordError
from emulator.scripted.row_types import metadata
from tests.property.decoding.row_types import METADATA

READ = 1_790_000_000_123_456_789
UNKNOWN = "unknown"

Lists = Sequence[Sequence[bytes]]
"""The messages of a query, in the lists in which a decoder receives them."""


@dataclass(frozen=True, repr=False)
class Side:
    """A form of rows and its decoders.

    Args:
        name: of the form.
        fast: returns a stream's factory of decoders that use columns.
        plain: returns a decoder that uses the row decoder alone.
        metadata: of the form's queries.
    """

    name: str
    fast: Callable[[], Callable[[], Decoder]]
    plain: Callable[[], Decoder]
    metadata: bytes

    def __repr__(self) -> str:
        return self.name


SIDES = {
    "googlesql": Side(
        "googlesql",
        lambda: decoder(GOOGLESQL, IMMUTABLE),
        lambda: Decoder(walk(GOOGLESQL, IMMUTABLE), None, is_known),
        METADATA["googlesql"],
    ),
    "postgresql": Side(
        "postgresql",
        lambda: decoder(POSTGRESQL, IMMUTABLE),
        lambda: Decoder(walk(POSTGRESQL, IMMUTABLE), None, lambda _: True),
        METADATA["postgresql"],
    ),
}
MUTABLE_SIDE = Side(
    "mutable",
    lambda: decoder(POSTGRESQL, MUTABLE),
    lambda: Decoder(walk(GOOGLESQL, MUTABLE), None, lambda _: True),
    metadata("googlesql", "MUTABLE_KEY_RANGE", "Everything"),
)
"""The MUTABLE_KEY_RANGE mode, whose rows are the same in both dialects."""

both_dialects = pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)


def fast_items(side: Side, given: Lists) -> list[Item | str]:
    """Returns the items of a decoder that uses columns however small the rows are."""
    with patch("connector.spanner.decoding.decoder.FEW", 0):
        return [item for items in _items(side.fast()(), given) for item in items]


def _items(of: Decoder, given: Lists) -> list[list[Item | str]]:
    """Returns the items of each list, up to the first unknown row."""
    found: list[list[Item | str]] = []
    for some in given:
        try:
            found.append([*of(some, READ)])
        except UnknownRecordError:
            return [*found, [UNKNOWN]]
    return found


def outcome(of: Decoder, given: Lists) -> list[list[Record | str]]:
    """Returns the records of each list, without their sizes."""
    return [records(items) for items in _items(of, given)]


def records(items: Sequence[Item | str]) -> list[Record | str]:
    """Returns the items as records, without their sizes."""
    each = [one for item in items for one in (item.records() if isinstance(item, Changes) else (item,))]
    return [replace(one, size=0) if isinstance(one, DataChangeRecord) else one for one in each]


def check(side: Side, given: Lists, few: int = 0) -> list[list[Record | str]]:
    """Compares two queries of one stream with the oracle; the second one finds the first one's caches filled.

    Args:
        side: the form of the rows.
        given: the answer to both queries.
        few: the bytes of rows up to which the row decoder is used.

    Returns:
        The records of each list.

    Raises:
        AssertionError: they differ.
    """
    wanted = outcome(side.plain(), given)
    new = side.fast()
    with patch("connector.spanner.decoding.decoder.FEW", few):
        assert outcome(new(), given) == wanted
        assert outcome(new(), given) == wanted
    return wanted
