"""Parses many nested values as one message: all strings of one nesting level become one list.

A protocol buffer parser merges the occurrences of a message field that is declared singular, and joined messages parse
as their merge. A google.protobuf.Value nests lists of values. The classes made here are wire-compatible with it, but
declare each level singular. So any number of values parse as a single message. Each of its levels has one repeated
field with the strings of that level, in the order of the bytes. This replaces an object for each value by the
parser's inner loop.

Merging loses the borders between values. A caller must know how much each value holds, and must prove it.
"""

from google.protobuf.message import Message

from connector.core.message_classes import DescribedField, message_classes

_STRING, _FLAG, _LIST = 3, 4, 6
"""Field numbers of google.protobuf.Value."""


def merging(top: str, depth: int) -> type[Message]:
    """Returns a message class that merges ``depth`` levels of values.

    A level has the repeated fields ``string``, as bytes, and ``flag``, and the next level as ``lists.values``. In the
    last level ``lists`` is the bytes of each ListValue. Values of other kinds are skipped.

    Args:
        top: ``Value0`` to parse joined values; ``List0`` to parse joined ListValues, whose first level is ``values``.
        depth: the number of levels.
    """
    messages: dict[str, dict[str, DescribedField]] = {}
    for number in range(depth):
        lists = "repeated bytes" if number == depth - 1 else f"List{number + 1}"
        messages[f"Value{number}"] = {
            "string": (_STRING, "repeated bytes"),
            "flag": (_FLAG, "repeated bool"),
            "lists": (_LIST, lists),
        }
        messages[f"List{number}"] = {"values": (1, f"Value{number}")}
    return message_classes(messages)[top]
