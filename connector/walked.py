"""What the walks over rows share: what a record is accounted with, and the column types that they keep."""

from collections.abc import Hashable
from sys import getsizeof
from typing import TypeVar

from connector.records import ColumnType, Mod

_Raw = TypeVar("_Raw", bound=Hashable)

_MOD_OVERHEAD = 150
_RECORD_OVERHEAD = 700
_CACHED_TYPES = 10_000


def size(mods: tuple[Mod, ...]) -> int:
    """Bytes that a record with these mods takes in memory, about."""
    text = sum(getsizeof(mod.keys) + getsizeof(mod.new_values) + getsizeof(mod.old_values) for mod in mods)
    return _RECORD_OVERHEAD + text + _MOD_OVERHEAD * len(mods)


def remember(cache: dict[_Raw, tuple[ColumnType, ...]], raw: _Raw, known: tuple[ColumnType, ...]) -> None:
    """Keeps column types by the form in which they came; a cache that is full begins anew."""
    if len(cache) >= _CACHED_TYPES:
        cache.clear()
    cache[raw] = known
