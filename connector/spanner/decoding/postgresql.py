"""The column decoder of the PostgreSQL dialect: each row is a JSON document, and payloads stay slices of it."""

import msgspec
import numpy as np
from google.protobuf.message import DecodeError

from connector.core.byte_columns import text_array
from connector.core.changes import Changes
from connector.spanner.decoding.assembler import Fields, are_same, assembled, each, timestamps
from connector.spanner.decoding.chunks import strings
from connector.spanner.decoding.postgresql_walk import POSTGRESQL_RECORDS, PostgresqlData, postgresql_column_types
from connector.spanner.decoding.row_fields import integer


def postgresql_columns(messages: bytes, read_timestamp: int) -> Changes | None:
    """Returns rows of data change records, or None to decline them: a ``ColumnDecoder``."""
    try:
        texts = strings(messages)
        if texts is None:
            return None
        rows = list(map(POSTGRESQL_RECORDS.decode, texts))
        records = [row.data_change_record for row in rows if row.data_change_record is not None]
        others = any(row.heartbeat_record or row.child_partitions_record for row in rows)
        if others or len(records) != len(texts):
            return None
        return assembled(_fields(records), read_timestamp, postgresql_column_types)
    except (DecodeError, IndexError, msgspec.DecodeError, OverflowError, ValueError):
        return None  # the row decoder finds the error, or accepts the rows


def _fields(records: list[PostgresqlData]) -> Fields[bytes]:
    mods = [mod for record in records for mod in record.mods]
    payloads = [mod.keys for mod in mods] + [mod.new_values for mod in mods] + [mod.old_values for mod in mods]
    column_types = [record.column_types for record in records]
    return Fields(
        commit_timestamp=timestamps([record.commit_timestamp for record in records]),
        record_sequence=[record.record_sequence for record in records],
        server_transaction_id=[record.server_transaction_id for record in records],
        is_last_record_in_transaction_in_partition=[
            record.is_last_record_in_transaction_in_partition for record in records
        ],
        table_name=[record.table_name for record in records],
        column_types=(
            [bytes(column_types[0])] * len(records) if are_same(column_types) else list(map(bytes, column_types))
        ),
        mod_counts=np.array([len(record.mods) for record in records], np.int64),
        payloads=text_array(payloads, np.fromiter(map(len, payloads), np.int64, len(payloads))),
        mod_type=[record.mod_type for record in records],
        value_capture_type=[record.value_capture_type for record in records],
        number_of_records_in_transaction=each([record.number_of_records_in_transaction for record in records], _number),
        number_of_partitions_in_transaction=each(
            [record.number_of_partitions_in_transaction for record in records], _number
        ),
        transaction_tag=[record.transaction_tag for record in records],
        is_system_transaction=[record.is_system_transaction for record in records],
    )


def _number(value: float | str) -> int:
    return integer(value, "a number")
