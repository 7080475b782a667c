"""The column decoder of the GoogleSQL dialect: many rows at once, without an object per row.

The row type, which is part of the query's metadata, fixes the fields of a record; :func:`is_known` compares it. All
rows are parsed as one message, then the mods of all records (:mod:`connector.spanner.decoding.merging` explains why
that is fast). :mod:`connector.spanner.decoding.googlesql_frames` proves that each parsed field belongs to its record.
Blocks with any other row are left to the row decoder: NULLs, other kinds of records, and invalid rows.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np
import pyarrow as pa
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError

from connector.core.byte_columns import text_array
from connector.core.changes import Changes, Int64s
from connector.core.value_texts import PADDING
from connector.spanner.decoding.assembler import Fields, are_same, assembled, repeated, timestamps
from connector.spanner.decoding.chunks import PartialResultSets
from connector.spanner.decoding.googlesql_frames import BOOL_BYTES, are_data_changes, mod_counts
from connector.spanner.decoding.googlesql_walk import googlesql_column_types
from connector.spanner.decoding.merging import merging
from connector.spanner.decoding.row_fields import integer

_FIELDS = 13
_COLUMN_TYPES, _MODS = 5, 6
_STRINGS, _LISTS, _FLAGS = (0, 1, 2, 4, 7, 8, 9, 10, 11), (_COLUMN_TYPES, _MODS), (3, 12)
"""Numbers of a data change record's fields, by kind."""

_FILLED = (1, 2, 7, 8)
"""Numbers of the fields that are never empty, apart from the table's name."""

_TEXTS = 3
"""JSON texts of a mod: its keys, new values and old values."""

_Read = TypeVar("_Read")

_Metadata = types.ResultSetMetadata.pb()
_NAMES: dict[int, str] = {code.value: name for name, code in types.TypeCode.__members__.items()}

_COLUMN = "{STRING,JSON,BOOL,INT64}"
_MOD = "{JSON,JSON,JSON}"
_DATA = f"{{TIMESTAMP,STRING,STRING,BOOL,STRING,[{_COLUMN}],[{_MOD}],STRING,STRING,INT64,INT64,STRING,BOOL}}"
_CHILD = "{TIMESTAMP,STRING,[{STRING,[STRING]}]}"
_ROW = f"[{{[{_DATA}],[{{TIMESTAMP}}],[{_CHILD}]}}]"


@lru_cache(16)  # each query of a partition describes the same
def is_known(metadata: bytes | None) -> bool:
    """True if a query's google.spanner.v1.ResultSetMetadata describes the row type that this module decodes."""
    if metadata is None:
        return False
    fields = _Metadata.FromString(metadata).row_type.fields
    return len(fields) == 1 and _type_name(fields[0].type_) == _ROW


def _type_name(of: types.Type) -> str:
    name = _NAMES.get(of.code, "unknown")
    if name == "ARRAY":
        return f"[{_type_name(of.array_element_type)}]"
    if name == "STRUCT":
        return "{" + ",".join(_type_name(field.type_) for field in of.struct_type.fields) + "}"
    return name


_LEVELS = 5
_Rows = merging("Value0", _LEVELS)
"""Rows: arrays of structs of arrays of records, whose fields are the last level."""

_Mods = merging("List0", 2)
"""Lists of mods, which are lists of texts."""


class _Texts:
    """A text field: its value in every record."""

    def __init__(self, texts: list[bytes]) -> None:
        self.texts = texts
        self._same = are_same(texts)
        self.lengths = np.array(len(texts[0])) if self._same else _lengths(texts)

    def array(self) -> pa.Array:
        """Returns the texts as an array of strings."""
        if self._same:
            return repeated(self.texts[0].decode(), pa.string(), len(self.texts))
        return text_array(self.texts, self.lengths)

    def each(self, read: Callable[[bytes], _Read]) -> list[_Read]:
        """Returns the result of ``read`` for each text; equal texts are read once."""
        if self._same:
            return [read(self.texts[0])] * len(self.texts)
        known = {text: read(text) for text in set(self.texts)}
        return [known[text] for text in self.texts]


def googlesql_columns(messages: bytes, read_timestamp: int) -> Changes | None:
    """Returns the rows of a query whose metadata :func:`is_known`, or None to decline them: a ``ColumnDecoder``."""
    try:
        fields = _fields(messages)
        return None if fields is None else assembled(fields, read_timestamp, googlesql_column_types)
    except (DecodeError, IndexError, OverflowError, ValueError):
        return None  # the row decoder finds the error, or accepts the rows


def _fields(messages: bytes) -> Fields[bytes] | None:
    found = PartialResultSets.FromString(messages)
    rows = list(found.values)
    if not rows or True in found.chunked_value:
        return None
    joined = b"".join(rows)
    level = _Rows.FromString(joined)
    for _ in range(_LEVELS - 1):
        level = level.lists.values
    strings, flags, lists = list(level.string), list(level.flag), list(level.lists)
    if [len(strings), len(flags), len(lists)] != [len(some) * len(rows) for some in (_STRINGS, _FLAGS, _LISTS)]:
        return None
    texts = {field: _Texts(strings[number :: len(_STRINGS)]) for number, field in enumerate(_STRINGS)}
    column_types, mods = _Texts(lists[0::2]), lists[1::2]
    mod_bytes = _lengths(mods)
    lengths = np.empty((_FIELDS, len(rows)), np.int64)
    for field in _FLAGS:
        lengths[field] = BOOL_BYTES
    lengths[_COLUMN_TYPES], lengths[_MODS] = column_types.lengths, mod_bytes
    for field, column in texts.items():
        lengths[field] = column.lengths
    if not are_data_changes(rows, joined, lengths) or not bool(lengths[_FILLED, :].all()):
        return None
    payloads = _payloads(mods, mod_bytes)
    if payloads is None:
        return None
    return Fields(
        commit_timestamp=timestamps(texts[0].texts),
        record_sequence=texts[1].array(),
        server_transaction_id=texts[2].array(),
        is_last_record_in_transaction_in_partition=flags[0 :: len(_FLAGS)],
        table_name=texts[4].each(bytes.decode),
        column_types=column_types.each(bytes),
        mod_counts=payloads[0],
        payloads=payloads[1],
        mod_type=texts[7].array(),
        value_capture_type=texts[8].array(),
        number_of_records_in_transaction=texts[9].each(_number),
        number_of_partitions_in_transaction=texts[10].each(_number),
        transaction_tag=texts[11].array(),
        is_system_transaction=flags[1 :: len(_FLAGS)],
    )


def _payloads(lists: list[bytes], lengths_of_lists: Int64s) -> tuple[Int64s, pa.Array] | None:
    """Returns each record's number of mods, and all keys, then all new values, then all old values of the mods."""
    joined = b"".join([*lists, PADDING])
    texts = list(_Mods.FromString(memoryview(joined)[: -len(PADDING)]).values.lists.values.string)
    if len(texts) % _TEXTS:
        return None
    lengths = _lengths(texts).reshape(-1, _TEXTS)
    counts = mod_counts(joined, lengths_of_lists, lengths)
    if counts is None:
        return None
    return counts, text_array(texts[0::3] + texts[1::3] + texts[2::3], lengths.T.ravel())


def _number(text: bytes) -> int:
    return integer(text.decode(), "a number")


def _lengths(texts: list[bytes]) -> Int64s:
    return np.fromiter(map(len, texts), np.int64, len(texts))
