"""The column decoder of the MUTABLE_KEY_RANGE mode, for both dialects.

Each row is the base64 of a google.spanner.v1.ChangeStreamRecord. A block of rows is parsed as one message with an
object for each data change record. A record's mods and column metadata stay bytes;
:mod:`connector.spanner.decoding.mod_values` converts the mods' values.
"""

from base64 import b64decode
from itertools import chain

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from connector.core.changes import Changes
from connector.core.message_classes import message_classes
from connector.core.value_texts import PADDING, varints
from connector.spanner.decoding.assembler import Fields, assembled, each
from connector.spanner.decoding.chunks import strings
from connector.spanner.decoding.mod_values import payloads
from connector.spanner.decoding.mutable_walk import (
    mod_type,
    nanoseconds,
    proto_column_types,
    value_capture_type,
)

_DATA_TAG = 1 << 3 | 2
"""Tag of the field data_change_record of a ChangeStreamRecord."""

_Records = message_classes(
    {
        "Records": {"data_change_record": (1, "repeated Data")},
        "Data": {
            "commit_timestamp": (1, "Timestamp"),
            "record_sequence": (2, "string"),
            "server_transaction_id": (3, "string"),
            "is_last_record_in_transaction_in_partition": (4, "bool"),
            "table": (5, "string"),
            "column_metadata": (6, "repeated bytes"),
            "mods": (7, "repeated bytes"),
            "mod_type": (8, "int32"),
            "value_capture_type": (9, "int32"),
            "number_of_records_in_transaction": (10, "int32"),
            "number_of_partitions_in_transaction": (11, "int32"),
            "transaction_tag": (12, "string"),
            "is_system_transaction": (13, "bool"),
        },
        "Timestamp": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    }
)["Records"]
"""Joined ChangeStreamRecords, parsed as one: here the data change record is a repeated field."""

_ColumnMetadata = tuple[bytes, ...]


def mutable_columns(messages: bytes, read_timestamp: int) -> Changes | None:
    """Returns rows of data change records, or None to decline them: a ``ColumnDecoder``."""
    try:
        texts = strings(messages)
        if texts is None:
            return None
        fields = _fields([b64decode(text, validate=True) for text in texts])
        return None if fields is None else assembled(fields, read_timestamp, proto_column_types)
    except (DecodeError, IndexError, OverflowError, TypeError, ValueError):
        return None  # the row decoder finds the error, or accepts the rows


def _fields(rows: list[bytes]) -> Fields[_ColumnMetadata] | None:
    if not _are_data(rows):
        return None
    records = list(_Records.FromString(b"".join(rows)).data_change_record)
    if not all(record.HasField("commit_timestamp") for record in records):
        return None
    numbers: dict[_ColumnMetadata, int] = {}
    codes = [numbers.setdefault(tuple(record.column_metadata), len(numbers)) for record in records]
    known = list(numbers)
    names = [[column.name for column in proto_column_types(one)] for one in known]
    if any(len(set(columns)) < len(columns) for columns in names):
        return None
    mods = [list(record.mods) for record in records]
    counts = np.fromiter(map(len, mods), np.int64, len(mods))
    schemas = np.repeat(np.array(codes, np.int64), counts)
    keys, old_values, new_values = payloads(list(chain.from_iterable(mods)), schemas, names)
    return Fields(
        commit_timestamp=np.array([nanoseconds(record.commit_timestamp) for record in records], np.int64),
        record_sequence=[record.record_sequence for record in records],
        server_transaction_id=[record.server_transaction_id for record in records],
        is_last_record_in_transaction_in_partition=[
            record.is_last_record_in_transaction_in_partition for record in records
        ],
        table_name=[record.table for record in records],
        column_types=[known[code] for code in codes],
        mod_counts=counts,
        payloads=pa.concat_arrays([keys, new_values, old_values]),
        mod_type=each([record.mod_type for record in records], mod_type),
        value_capture_type=each([record.value_capture_type for record in records], value_capture_type),
        number_of_records_in_transaction=[record.number_of_records_in_transaction for record in records],
        number_of_partitions_in_transaction=[record.number_of_partitions_in_transaction for record in records],
        transaction_tag=[record.transaction_tag for record in records],
        is_system_transaction=[record.is_system_transaction for record in records],
    )


def _are_data(rows: list[bytes]) -> bool:
    """True if each row is one data change record: the field's tag, its length, and as many bytes."""
    data = np.frombuffer(b"".join([*rows, PADDING]), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
    starts = np.append(0, ends[:-1])
    lengths, begin = varints(data, starts + 1)
    return bool(((data[starts] == _DATA_TAG) & (lengths >= 0) & (begin + lengths == ends)).all())
