"""Many GoogleSQL change stream rows at once to columns, without an object per row or field.

Which fields a record has is fixed by the row type, which the query's metadata have and :func:`is_known` compares.
Where they stand is looked at in the joined bytes of all rows (:mod:`connector.googlesql_frames`), and columns are taken
from there; the mods of all records are parsed as one message (:mod:`connector.merging` says why that is fast). Rows
that are framed otherwise are left to the plain walk: NULLs, other records, and what no server should send.
"""

import numpy as np
import pyarrow as pa
from google.cloud.spanner_v1 import types
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue

from connector.changes import Changes, integers
from connector.columns import Assembler, Fields, timestamps
from connector.googlesql_frames import Places, between, by_column, data_changes, mods
from connector.googlesql_walk import googlesql_column_types
from connector.merging import merging
from connector.mod_values import PADDING
from connector.pieces import is_constant
from connector.row_fields import integer
from connector.rows import PartialResultSets

_TABLE, _COLUMN_TYPES, _MODS = 4, 5, 6
"""Numbers of fields of a data change record."""

_FILLED = (1, 2, 7, 8)
"""Of the strings those that hold something in every record, beside the table's name."""

_TEXTS = 3
"""Of a mod."""

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


_Mods = merging("List0", 2, strings=bytes, lists_apart=True)
"""Lists of mods, of texts, as bytes, for they may be long."""


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
    rows = PartialResultSets.FromString(messages)
    if not rows.values or True in rows.chunked_value:
        return None
    places = data_changes(rows.values)
    if places is None or not places.are_filled(*_FILLED):
        return None
    lists = places.pieces(_MODS)
    joined = b"".join([*lists, PADDING])
    strings = _Mods.FromString(memoryview(joined)[: -len(PADDING)]).values.lists.values.string
    lengths = np.array(list(map(len, strings)), np.int64)
    found = mods(joined, places.ends[_MODS] - places.starts[_MODS], lengths)
    if found is None:
        return None
    counts, starts = found
    ends = starts + lengths
    payloads = by_column(joined, starts.reshape(-1, _TEXTS), ends.reshape(-1, _TEXTS))
    texts = places.texts()
    tables, column_types = _shapes(places)
    return Fields(
        commit_timestamp=timestamps(texts[0]),
        record_sequence=texts[1],
        server_transaction_id=texts[2],
        is_last_record_in_transaction_in_partition=places.flags(3),
        table_name=tables,
        column_types=column_types,
        mod_counts=counts,
        keys=payloads[0],
        new_values=payloads[1],
        old_values=payloads[2],
        mod_type=texts[7],
        value_capture_type=texts[8],
        number_of_records_in_transaction=_numbers(texts[9]),
        number_of_partitions_in_transaction=_numbers(texts[10]),
        transaction_tag=texts[11],
        is_system_transaction=places.flags(12),
    )


def _shapes(places: Places) -> tuple[list[str], list[bytes]]:
    """Each record's table and column types; what stands of both is looked at once where it is the same."""
    both = between(places.data, places.ends[_TABLE - 1], places.ends[_COLUMN_TYPES])
    if is_constant(both):
        codes, firsts = np.zeros(len(both), np.int64), np.zeros(1, np.int64)
    else:
        codes = integers(both.dictionary_encode().indices)
        _, firsts = np.unique(codes, return_index=True)
    known = []
    for row in firsts.tolist():
        table, types = (
            places.data[places.starts[field][row] : places.ends[field][row]] for field in (_TABLE, _COLUMN_TYPES)
        )
        known.append((table.decode(), types))
    named = [known[code] for code in codes.tolist()]
    return [table for table, _ in named], [types for _, types in named]


def _numbers(texts: pa.Array) -> pa.Array:
    if is_constant(texts):
        return pa.repeat(pa.scalar(integer(texts[0].as_py(), "a number"), pa.int64()), len(texts))
    encoded = texts.dictionary_encode()
    numbers = [integer(text, "a number") for text in encoded.dictionary.to_pylist()]
    return pa.array(numbers, pa.int64()).take(encoded.indices)
