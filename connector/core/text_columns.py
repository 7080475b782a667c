"""Columns of text, computed from whole columns of numbers or JSON instead of row by row. Pure.

Texts of equal width are written as a matrix of characters, one column of the matrix at a time.
"""

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.byte_columns import bytes_of, fixed, is_constant
from connector.core.changes import Int64s
from connector.core.timestamps import SECOND, format_rfc3339, format_second

_Characters = npt.NDArray[np.uint8]

_HEX = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
_LOWER_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
_TO_THE_END = 2**31 - 1
_COMMA = pa.scalar(b",", pa.binary())
_NULL, _TRUE, _FALSE = (pa.scalar(text, pa.string()) for text in ("null", "true", "false"))
_NO_TEXT, _QUOTE, _STRING_COMMA, _OPENING, _CLOSING = (
    pa.scalar(text, pa.string()) for text in ("", '"', ",", "[", "]")
)


def change_sequence_numbers(times: Int64s, sequences: Int64s, mod_indexes: Int64s) -> pa.Array:
    """Change sequence numbers: three numbers of 16 hex digits, whose order as text is the order of the changes.

    Args:
        times: commit timestamps, Unix nanoseconds, not before 1970.
        sequences: record sequences as numbers.
        mod_indexes: the indexes of the mods within their records.
    """
    out = np.empty((len(times), 50), np.uint8)
    out[:, (16, 33)] = ord("/")
    for start, numbers in zip((0, 17, 34), (times, sequences, mod_indexes), strict=True):
        out[:, start : start + 16] = _hex_digits(numbers.astype(np.uint64), _HEX)
    return fixed(out).view(pa.string())


def uuid_texts(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> pa.Array:
    """UUIDs as text, given as their high and low 64 bits."""
    digits = np.concatenate((_hex_digits(high, _LOWER_HEX), _hex_digits(low, _LOWER_HEX)), axis=1)
    out = np.empty((len(high), 36), np.uint8)
    out[:, (8, 13, 18, 23)] = ord("-")
    for start, stop, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        out[:, at : at + stop - start] = digits[:, start:stop]
    return fixed(out).view(pa.string())


def rfc3339_texts(times: Int64s) -> pa.Array:
    """Timestamps as RFC 3339 text: six digits after the second, or nine where needed.

    The same texts as :func:`connector.core.timestamps.format_rfc3339`, for a whole column of nanoseconds.
    """
    seconds, nanos = np.divmod(times, SECOND)
    short = nanos % 1000 == 0
    if not short.any() or short.all():
        digits = 6 if short.all() else 9
        out = np.empty((len(times), 21 + digits), np.uint8)
        different, places = np.unique(seconds, return_inverse=True)
        texts = b"".join(format_second(int(second)).encode() for second in different)
        if len(texts) == 19 * len(different):  # a year of four digits
            out[:, :19] = np.frombuffer(texts, np.uint8).reshape(-1, 19)[places]
            out[:, 19], out[:, 20 + digits] = ord("."), ord("Z")
            fraction = nanos if digits == 9 else nanos // 1000
            for at in range(digits):
                out[:, 19 + digits - at] = ord("0") + fraction % 10
                fraction = fraction // 10
            return fixed(out).view(pa.string())
    return pa.array([format_rfc3339(time) for time in times.tolist()], pa.string())


_BRACES = np.frombuffer(b"{}", np.uint8)


def are_objects(payloads: pa.Array) -> bool:
    """True if each text begins and ends with the braces of a JSON object; what is between them is not checked."""
    if payloads.null_count:
        return False
    offsets = np.frombuffer(payloads.buffers()[1], np.int32, len(payloads) + 1, payloads.offset * 4)
    starts, ends = offsets[:-1], offsets[1:]
    if not len(payloads):
        return True
    data = np.frombuffer(payloads.buffers()[2] or b"", np.uint8)
    if int((ends - starts).min()) < len(_BRACES):
        return False
    return bool((data[starts] == _BRACES[0]).all() and (data[ends - 1] == _BRACES[1]).all())


def objects(payloads: pa.Array) -> pa.Array:
    """The texts of JSON objects without white space around them; JSON's null becomes an empty object.

    Raises:
        ValueError: one is not the text of a JSON object.
    """
    if are_objects(payloads):
        return payloads
    return pa.array([_object(text) for text in payloads.to_pylist()], pa.string())


def _object(text: str) -> str:
    found = orjson.loads(text)
    if found is None:
        return "{}"
    if not isinstance(found, dict):
        raise ValueError("a payload is not a JSON object")  # noqa: TRY004  # of a value, not of an argument
    return text.strip(" \t\r\n")


def is_empty(objects: pa.Array) -> pa.Array:
    """A mask that is true where the JSON object in a text has no members."""
    some = pc.starts_with(objects, '{"')
    if some.true_count == len(some):
        return pc.invert(some)
    return pc.match_substring_regex(objects, r"^\{[ \t\r\n]*\}$")


def splice(keys: pa.Array, values: pa.Array) -> pa.Array:
    """The text of one JSON object with the members of both, which are copied byte for byte.

    The texts begin and end with their braces, as those of :func:`objects` do.
    """
    keys_empty, values_empty = is_empty(keys), is_empty(values)
    head = pc.binary_slice(keys.cast(pa.binary()), 0, -1)
    tail = pc.binary_slice(values.cast(pa.binary()), 1, _TO_THE_END)
    both = pc.binary_join_element_wise(head, tail, _COMMA).view(pa.string())
    if keys_empty.true_count:
        both = pc.if_else(keys_empty, values, both)
    return pc.if_else(values_empty, keys, both) if values_empty.true_count else both


def json_texts(values: pa.Array) -> pa.Array:
    """Each value as JSON text, for a column of strings, integers, booleans, or lists of strings."""
    kind = values.type
    if pa.types.is_list(kind):
        offsets = pc.subtract(values.offsets, values.offsets[0])
        elements = pa.ListArray.from_arrays(offsets, json_texts(values.flatten()))
        inner = pc.binary_join(elements, _STRING_COMMA)
        texts = pc.binary_join_element_wise(_OPENING, inner, _CLOSING, _NO_TEXT)
        return pc.if_else(values.is_valid(), texts, _NULL) if values.null_count else texts
    if pa.types.is_boolean(kind):
        texts = pc.if_else(values, _TRUE, _FALSE)
    elif pa.types.is_string(kind):
        texts = _quoted(values)
    else:
        texts = values.cast(pa.string())
    return texts.fill_null(_NULL) if texts.null_count else texts


def _quoted(texts: pa.Array) -> pa.Array:
    if is_constant(texts):
        return pa.repeat(pa.scalar(orjson.dumps(texts[0].as_py()).decode(), pa.string()), len(texts))
    characters = np.frombuffer(bytes_of(texts), np.uint8)
    if not np.any((characters < ord(" ")) | (characters == ord('"')) | (characters == ord("\\"))):
        return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NO_TEXT)
    different = texts.dictionary_encode()
    quoted = [None if text is None else orjson.dumps(text).decode() for text in different.dictionary.to_pylist()]
    return pa.array(quoted, pa.string()).take(different.indices)


def _hex_digits(numbers: npt.NDArray[np.uint64], digits: npt.NDArray[np.uint16]) -> _Characters:
    pairs = digits[numbers.astype(">u8").view(np.uint8)]
    return pairs.view(np.uint8).reshape(len(numbers), 16)
