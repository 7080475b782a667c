"""Many GoogleSQL change stream rows at once to columns, without an object per row or field.

It parses all rows as one message (:mod:`connector.merging` says why that is fast). How many strings, booleans and lists
a record has is fixed by the row type, which the query's metadata tell and :func:`is_known` compares; only NULLs, and
other records than data change records, can change the counts. Whatever a level holds is counted against what the
records must have, NULLs among it, and where a count differs the rows are left to the plain walk.
"""

import numpy as np
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue

from connector.changes import Changes, Int64s
from connector.columns import Assembler, Fields, timestamps
from connector.merging import has_only, merging
from connector.walk import googlesql_column_types

_STRINGS, _FLAGS, _LISTS = 9, 2, 2
"""What the fields of a data change record are: its lists are column_types and mods."""

_MOD_STRINGS = 3

_Metadata = types.ResultSetMetadata.pb()
_NAMES: dict[int, str] = {code.value: name for name, code in types.TypeCode.__members__.items()}

_COLUMN = "{STRING,JSON,BOOL,INT64}"
_MOD = "{JSON,JSON,JSON}"
_DATA = f"{{TIMESTAMP,STRING,STRING,BOOL,STRING,[{_COLUMN}],[{_MOD}],STRING,STRING,INT64,INT64,STRING,BOOL}}"
_CHILD = "{TIMESTAMP,STRING,[{STRING,[STRING]}]}"
_ROW = f"[{{[{_DATA}],[{{TIMESTAMP}}],[{_CHILD}]}}]"


def is_known(metadata: bytes | None) -> bool:
    """Whether a query's google.spanner.v1.ResultSetMetadata tell of the one column that this module knows."""
    if metadata is None:
        return False
    fields = _Metadata.FromString(metadata).row_type.fields
    return len(fields) == 1 and _outline(fields[0].type_) == _ROW


def _outline(of: types.Type) -> str:
    name = _NAMES.get(of.code, "of a later version")
    if name == "ARRAY":
        return f"[{_outline(of.array_element_type)}]"
    if name == "STRUCT":
        return "{" + ",".join(_outline(field.type_) for field in of.struct_type.fields) + "}"
    return name


_Rows = merging("Messages", 5, strings=str, lists_apart=True)
"""Rows, which are arrays, of structs, of arrays, of records, whose fields are the last level."""

_Mods = merging("List0", 2, strings=bytes, lists_apart=True)
"""Lists of mods, of fields, as bytes, for they may be long and are copied once."""

_List = merging("List0", 1, strings=bytes, lists_apart=True)


class GooglesqlColumns:
    """Takes rows whose column :func:`is_known`."""

    def __init__(self) -> None:
        self._assembler: Assembler[bytes] = Assembler(lambda raw: googlesql_column_types(ListValue.FromString(raw)))

    def __call__(self, messages: bytes, read_timestamp: int) -> Changes | None:
        """The rows as columns; None where they are to be walked. See :data:`connector.decode.Columns`."""
        try:
            fields = _fields(messages)
            return None if fields is None else self._assembler.changes(fields, read_timestamp)
        except (DecodeError, IndexError, OverflowError, ValueError):
            return None  # the walk tells what is wrong, or that nothing is


def _fields(messages: bytes) -> Fields[bytes] | None:
    rows = _Rows.FromString(messages)
    if True in rows.chunked_value:
        return None
    level = rows.values
    for _ in range(4):
        if not has_only(level):
            return None
        level = level.lists.values
    strings, flags, lists = list(level.string), list(level.flag), list(level.lists)
    records, odd = divmod(len(strings), _STRINGS)
    if odd or records == 0 or len(flags) != _FLAGS * records or len(lists) != _LISTS * records:
        return None
    if not has_only(level, "string", "flag"):
        return None
    raw_mods = lists[1::_LISTS]
    mods = _Mods.FromString(b"".join(raw_mods)).values
    leaves = mods.lists.values
    texts = list(leaves.string)
    counts = _mod_counts(raw_mods, len(texts) // _MOD_STRINGS)
    if len(texts) != _MOD_STRINGS * int(counts.sum()) or not has_only(mods) or not has_only(leaves, "string"):
        return None
    if leaves.lists:
        return None
    return Fields(
        commit_timestamp=timestamps(strings[0::_STRINGS]),
        record_sequence=strings[1::_STRINGS],
        server_transaction_id=strings[2::_STRINGS],
        is_last_record_in_transaction_in_partition=flags[0::_FLAGS],
        table_name=strings[3::_STRINGS],
        column_types=lists[0::_LISTS],
        mod_counts=counts,
        keys=texts[0::_MOD_STRINGS],
        new_values=texts[1::_MOD_STRINGS],
        old_values=texts[2::_MOD_STRINGS],
        mod_type=strings[4::_STRINGS],
        value_capture_type=strings[5::_STRINGS],
        number_of_records_in_transaction=_numbers(strings[6::_STRINGS]),
        number_of_partitions_in_transaction=_numbers(strings[7::_STRINGS]),
        transaction_tag=strings[8::_STRINGS],
        is_system_transaction=flags[1::_FLAGS],
    )


def _mod_counts(raw_mods: list[bytes], mods: int) -> Int64s:
    """How many mods each record has; most often it is one."""
    if mods == len(raw_mods) and all(raw_mods):
        return np.ones(mods, np.int64)
    return np.array([len(_List.FromString(raw).values.lists) for raw in raw_mods], np.int64)


def _numbers(texts: list[str]) -> list[int]:
    known = {text: int(text) for text in set(texts)}
    return [known[text] for text in texts]
