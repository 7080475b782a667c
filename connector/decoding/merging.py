"""Parses many nested values as one: all strings of one depth in one list.

A protocol buffer parser merges what occurs repeatedly of a message field that is declared singular, and bytes of
messages that are joined parse as their merge. A google.protobuf.Value nests lists of values; the classes made here are
wire-compatible with it, but declare each level singular. Parsed with one, any number of values are a single message, in
which every string of one level stands in one repeated field, in the order of the bytes: the parser's inner loop does
what would be a walk over an object for each value.

What is merged cannot be told apart any more: whoever parses so must know how much each value holds, and prove it.
"""

from google.protobuf.message import Message

from connector.decoding.message_class import Field, message_class

_STRING, _FLAG, _LIST = 3, 4, 6
"""Fields of google.protobuf.Value."""


def merging(top: str, depth: int) -> type[Message]:
    """A class whose messages merge ``depth`` levels of values.

    A level has the repeated fields ``string``, as bytes, and ``flag``, and the next level as ``lists.values``; in the
    last one ``lists`` are the bytes of each ListValue. Values of other kinds are passed over.

    Args:
        top: what is parsed: ``Value0`` for joined values, ``List0`` for joined ListValues, whose first level is
            ``values``.
        depth: how many levels there are.
    """
    messages: dict[str, list[Field]] = {}
    for number in range(depth):
        lists = bytes if number == depth - 1 else f"List{number + 1}"
        messages[f"Value{number}"] = [("string", _STRING, bytes), ("flag", _FLAG, bool), ("lists", _LIST, lists)]
        messages[f"List{number}"] = [("values", 1, f"Value{number}")]
    return message_class(top, messages)
