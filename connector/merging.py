"""Parses many nested values as one: all strings of one depth in one list.

A protocol buffer parser merges what occurs repeatedly of a message field that is declared singular, and bytes of
messages that are joined parse as their merge. A google.protobuf.Value nests lists of values; the classes made here are
wire-compatible with it, but declare each level singular. Parsed with one, any number of values are a single message, in
which every string of one level stands in one repeated field, in the order of the bytes: the parser's inner loop does
what would be a walk over an object for each value.

What is merged cannot be told apart any more: whoever parses so must know how much each value holds, and count.
"""

from google.protobuf.message import Message

from connector.message_class import Field, message_class

_KINDS: dict[str, tuple[int, type]] = {
    "null": (1, int),
    "number": (2, float),
    "string": (3, str),
    "flag": (4, bool),
    "struct": (5, bytes),
}
"""Fields of google.protobuf.Value, beside its list."""

_LIST = 6


def merging(top: str, depth: int, *, strings: type[str | bytes], lists_apart: bool) -> type[Message]:
    """A class whose messages merge ``depth`` levels of values.

    A level has the repeated fields ``null``, ``number``, ``string``, ``flag`` and ``struct``, and the next level as
    ``lists.values``. It is no message for a walk: what it has of a value is where it stands.

    Args:
        top: what is parsed: ``Messages`` for google.spanner.v1.PartialResultSets, whose first level is ``values`` and
            whose ``chunked_value`` is repeated; ``List0`` for ListValues.
        depth: how many levels there are; what lies deeper is not read.
        strings: what the strings are given as.
        lists_apart: whether the last level has ``lists``, the bytes of each of its ListValues.
    """
    messages: dict[str, list[Field]] = {"Messages": [("values", 2, "Value0"), ("chunked_value", 3, bool)]}
    for number in range(depth):
        fields: list[Field] = [
            (name, field, strings if name == "string" else kind) for name, (field, kind) in _KINDS.items()
        ]
        if number < depth - 1:
            fields.append(("lists", _LIST, f"List{number + 1}"))
        elif lists_apart:
            fields.append(("lists", _LIST, bytes))
        messages[f"Value{number}"] = fields
        messages[f"List{number}"] = [("values", 1, f"Value{number}")]
    return message_class(top, messages)


def has_only(level: Message, *kinds: str) -> bool:
    """Whether the values of a level are of these kinds or lists; a NULL is of another."""
    return not any(len(getattr(level, kind)) for kind in _KINDS if kind not in kinds)
