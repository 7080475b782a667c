"""Mutations of rows: each changes one place of a tree of lists or of objects."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

from tests.property.decoding.change_rows import Json

Mutation = Callable[[Random, Any, Any], None]
"""Takes a list or object, and the index or key of the item that it changes."""


def becomes_null(_: Random, of: Any, at: Any) -> None:
    of[at] = None


def becomes_of_another_kind(random: Random, of: Any, at: Any) -> None:
    of[at] = random.choice(("x", "", "true", "1", True, False, 1.5, 1.0, [], ["x"], [[]], [None]))


def becomes_an_object(random: Random, of: Any, at: Any) -> None:
    of[at] = random.choice(({}, {"a": "1"}, {"code": "X"}, 7, -1, 2**70))


def is_missing(_: Random, of: Any, at: Any) -> None:
    del of[at]


def is_repeated(_: Random, of: Any, at: Any) -> None:
    if isinstance(of, list):
        of.insert(at, deepcopy(of[at]))


def has_another_item(random: Random, of: Any, at: Any) -> None:
    item = random.choice(("new", True, None, ["new"], [["new"]], 1.5, []))
    if isinstance(of, list):
        of.insert(random.choice((at, at + 1, len(of))), item)
    else:
        of["new"] = item


def swaps_with_another(random: Random, of: Any, at: Any) -> None:
    other = random.choice(list(of) if isinstance(of, dict) else range(len(of)))
    of[at], of[other] = of[other], of[at]


def is_nested(_: Random, of: Any, at: Any) -> None:
    of[at] = [of[at]]


def is_unnested(_: Random, of: Any, at: Any) -> None:
    if isinstance(of, list) and isinstance(of[at], list):
        of[at : at + 1] = of[at]


def is_emptied(_: Random, of: Any, at: Any) -> None:
    of[at] = type(of[at])() if isinstance(of[at], list | dict | str) else ""


def moves_to_another_list(random: Random, of: Any, at: Any) -> None:
    """Moves an item to the end of a neighbouring list, as if a border between them were lost."""
    inner = of if isinstance(of, list) else of.values()
    beside = [item for item in inner if isinstance(item, list) and item is not of[at]]
    if beside:
        item = of.pop(at)
        random.choice(beside).append(item)


_TEXTS = (
    "", "x", "null", " null ", "[]", "[1]", "5", '"x"', "true", '{"a":"1"}', ' {"a":"1"}', '{"a":"1"}\n', "{ }", "nul",
    "1.5", " 1", "1_0", "9" * 19, "9" * 30, "-1", "٣", "2026-01-02", "2026-01-02T03:04:59.1Z", "9999-01-01T00:00:00Z",
    '{"code":7}', '{"new":1}', "k" * 200, "k" * 20_000,
)  # fmt: skip


def is_another_text(random: Random, of: Any, at: Any) -> None:
    text_ = random.choice(_TEXTS)
    if isinstance(of[at], Json):
        try:
            json.loads(text_)
        except ValueError:
            text_ = "null"
        of[at] = Json(text_)
    else:
        of[at] = text_


class _Duplicate(str):
    """A member's name that differs from an equal one, so that a dictionary holds both."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


def is_named_twice(random: Random, of: Any, at: Any) -> None:
    if isinstance(of, dict):
        of[_Duplicate(at)] = random.choice((deepcopy(of[at]), None, "x", [], 1))


def is_renamed(random: Random, of: Any, at: Any) -> None:
    if isinstance(of, dict):
        of[random.choice(("new", f"{at}s", str(at).upper(), "heartbeat_record", "mods", "keys"))] = of.pop(at)


ON_LISTS: tuple[Mutation, ...] = (
    becomes_null, becomes_of_another_kind, is_missing, is_repeated, has_another_item, swaps_with_another, is_nested,
    is_unnested, is_emptied, moves_to_another_list, is_another_text,
)  # fmt: skip
ON_DOCUMENTS = (*ON_LISTS, becomes_an_object, is_named_twice, is_renamed)


# Mutations of messages: a place is a list of fields and the index of one of them


def field_of_another_kind(random: Random, of: Any, at: int) -> None:
    number, held = of[at]
    of[at] = (number, 1.5 if isinstance(held, int) else random.choice((7, 1.5)))


def field_of_another_number(random: Random, of: Any, at: int) -> None:
    _, held = of[at]
    if isinstance(held, int | float):
        of[at] = (random.choice((1, 4, 8, 9, 13, 14, 20)), held)
    else:
        of[at] = (random.choice((14, 15, 20)), held)


def number_out_of_range(random: Random, of: Any, at: int) -> None:
    number, held = of[at]
    if isinstance(held, int):
        of[at] = (number, random.choice((0, 1, 2, 3, 5, 99, 2**31 - 1, 2**64 - 1, 2**32 + 1)))


def field_emptied(_: Random, of: Any, at: int) -> None:
    number, held = of[at]
    of[at] = (number, type(held)())


def field_swaps_with_another(random: Random, of: Any, at: int) -> None:
    other = random.randrange(len(of))
    of[at], of[other] = of[other], of[at]


ON_MESSAGES: tuple[Mutation, ...] = (
    field_of_another_kind, field_of_another_number, number_out_of_range, is_missing, is_repeated, field_emptied,
    field_swaps_with_another,
)  # fmt: skip


def places_in_message(message: Any) -> Iterator[tuple[Any, int]]:
    """The places of a message's fields, at any depth."""
    for at, (_, held) in enumerate(message):
        yield message, at
        if isinstance(held, list):
            yield from places_in_message(held)
