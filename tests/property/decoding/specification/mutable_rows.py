"""A specification of the valid rows of the MUTABLE_KEY_RANGE mode, and of their meaning.

A message is a list of fields, each a number and a content. An int is a varint, a float is a double; a str, or a list,
which is a message, is prefixed by its length. A parser ignores a field of another kind than its number has.
"""

import json
from typing import Any, cast

from connector.core.records import (
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.schemas import canonical_type
from tests.property.decoding.specification.fields import (
    canonical,
    data_record,
    filled_text,
    in_64_bits,
    need,
    numbers_as_texts,
)

Message = list[tuple[int, Any]]


def records(row: object) -> list[Record]:
    """The record of a row, a ChangeStreamRecord as a list of fields."""
    kinds = [(number, held) for number, held in cast("Message", row) if 1 <= number <= 5 and isinstance(held, list)]
    need(len(kinds) == 1)
    ((number, fields),) = kinds
    take = (_proto_data, _proto_beat, _proto_start, _proto_end, _proto_event)[number - 1]
    return [take(fields)]


def _all(fields: Message, number: int, kind: type) -> list[Any]:
    return [held for at, held in fields if at == number and isinstance(held, kind)]


def _last(fields: Message, number: int, kind: type, default: Any) -> Any:
    return (_all(fields, number, kind) or [default])[-1]


def _int32(fields: Message, number: int) -> int:
    found = cast("int", _last(fields, number, int, 0)) & 0xFFFF_FFFF
    return found - 2**32 if found >= 2**31 else found


def _int64(fields: Message, number: int) -> int:
    found = cast("int", _last(fields, number, int, 0)) & 0xFFFF_FFFF_FFFF_FFFF
    return found - 2**64 if found >= 2**63 else found


def _proto_time(fields: Message, number: int) -> int:
    times = _all(fields, number, list)
    need(times)
    merged = [field for one in times for field in one]
    seconds, nanos = _int64(merged, 1), _int32(merged, 2)
    need(seconds != 0 and 0 <= nanos < 10**9)
    return in_64_bits(seconds * 10**9 + nanos)


_MOD_TYPES = {10: "INSERT", 20: "UPDATE", 30: "DELETE"}
_CAPTURES = {10: "OLD_AND_NEW_VALUES", 20: "NEW_VALUES", 30: "NEW_ROW", 40: "NEW_ROW_AND_OLD_VALUES"}
_CODES = {1: "BOOL", 2: "INT64", 3: "FLOAT64", 4: "TIMESTAMP", 5: "DATE", 6: "STRING", 7: "BYTES"}
_ANNOTATIONS = {2: "PG_NUMERIC", 3: "PG_JSONB", 4: "PG_OID"}


def _proto_data(fields: Message) -> DataChangeRecord:
    columns = [
        ColumnType(
            filled_text(_last(column, 1, str, "")),
            _proto_type([field for one in _all(column, 2, list) for field in one]),
            bool(_last(column, 3, int, 0)),
            _int64(column, 4),
        )
        for column in _all(fields, 6, list)
    ]
    mods = [
        tuple(_proto_payload(columns, _all(mod, number, list)) for number in (1, 3, 2)) for mod in _all(fields, 7, list)
    ]
    mods = [(keys, new, old) for keys, new, old in mods]
    mod_type, capture = _int32(fields, 8), _int32(fields, 9)
    need(mod_type in _MOD_TYPES and capture in _CAPTURES)
    return data_record(
        {
            "commit_timestamp": _proto_time(fields, 1),
            "record_sequence": filled_text(_last(fields, 2, str, "")),
            "server_transaction_id": filled_text(_last(fields, 3, str, "")),
            "is_last_record_in_transaction_in_partition": bool(_last(fields, 4, int, 0)),
            "table_name": filled_text(_last(fields, 5, str, "")),
            "mod_type": _MOD_TYPES[mod_type],
            "value_capture_type": _CAPTURES[capture],
            "number_of_records_in_transaction": _int32(fields, 10),
            "number_of_partitions_in_transaction": _int32(fields, 11),
            "transaction_tag": _last(fields, 12, str, ""),
            "is_system_transaction": bool(_last(fields, 13, int, 0)),
        },
        columns,
        cast("list[tuple[str, str, str]]", mods),
    )


def _proto_type(fields: Message) -> str:
    code, annotation = _int32(fields, 1), _int32(fields, 4)
    need(code)
    annotated = {"type_annotation": _ANNOTATIONS.get(annotation, annotation)} if annotation else {}
    return _canonical_type({"code": _CODES.get(code, code), **annotated})


def _canonical_type(node: dict[str, Any]) -> str:
    return canonical_type(json.dumps(node))


def _proto_payload(columns: list[ColumnType], values: list[Message]) -> str:
    found: dict[str, Any] = {}
    for value in values:
        index = _int32(value, 1)
        need(0 <= index < len(columns) and columns[index].name not in found)
        held = _all(value, 2, list)
        need(held)
        found[columns[index].name] = _proto_value([field for one in held for field in one])
    return canonical(numbers_as_texts(found))


_VALUE_KINDS = {1: int, 2: float, 3: str, 4: int, 6: list}


def _proto_value(fields: Message) -> Any:
    known = [(number, held) for number, held in fields if isinstance(held, _VALUE_KINDS.get(number, ()))]
    need(known)
    number, held = known[-1]
    match number:
        case 1:
            return None
        case 4:
            return bool(held)
        case 6:  # consecutive lists in a value are one list
            first = max((at for at, (kind, _) in enumerate(known) if kind != 6), default=-1) + 1
            lists = [cast("Message", one) for _, one in known[first:]]
            return [_proto_value(item) for one in lists for item in _all(one, 1, list)]
    return held


def _proto_beat(fields: Message) -> HeartbeatRecord:
    return HeartbeatRecord(_proto_time(fields, 1))


def _proto_start(fields: Message) -> PartitionStartRecord:
    tokens = _all(fields, 3, str)
    need(tokens and all(tokens))
    return PartitionStartRecord(_proto_time(fields, 1), tuple(tokens))


def _proto_end(fields: Message) -> PartitionEndRecord:
    return PartitionEndRecord(_proto_time(fields, 1))


def _proto_event(fields: Message) -> PartitionEventRecord:
    return PartitionEventRecord(_proto_time(fields, 1), len(_all(fields, 4, list)))
