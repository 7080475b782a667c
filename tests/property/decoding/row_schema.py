"""What rows are valid, and what they mean, said plainly and apart from the connector's decoders.

Each form of rows has a function that takes a row as it was made, before it was encoded, and gives its records, or
raises :class:`Invalid`. Payloads are given as what their JSON means, for the forms write it differently. What a
timestamp's text means is taken from :mod:`connector.core.timestamps`, which has tests of its own.
"""

import json
import re
from collections.abc import Callable
from typing import Any, cast

from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.schemas import canonical_type
from connector.core.timestamps import parse

READ = 1_790_000_000_123_456_789


class InvalidError(Exception):
    """The row is not valid."""


def need(condition: object) -> None:
    """Raises :class:`InvalidError` unless the condition holds."""
    if not condition:
        raise InvalidError


def meant(record: Record) -> Record:
    """A record that a decoder gave, with the meaning of its payloads, and not accounted for."""
    if not isinstance(record, DataChangeRecord):
        return record
    mods = tuple(
        cast("Mod", tuple(_canonical(_object(text)) for text in (mod.keys, mod.new_values, mod.old_values)))
        for mod in record.mods
    )
    return _replaced(record, mods)


def _replaced(record: DataChangeRecord, mods: tuple[Mod, ...]) -> DataChangeRecord:
    fields = {name: getattr(record, name) for name in record.__slots__}
    return DataChangeRecord(**{**fields, "mods": mods, "size": 0})


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text, parse_int=str, parse_float=str)
    assert isinstance(found, dict), "a payload that is not a JSON object came out of a decoder"
    return found


def _canonical(node: object) -> str:
    return json.dumps(node, sort_keys=True)


def _data(fields: dict[str, Any], columns: list[ColumnType], mods: list[tuple[str, str, str]]) -> DataChangeRecord:
    return DataChangeRecord(
        **fields, column_types=tuple(columns), mods=cast("tuple[Mod, ...]", tuple(mods)), read_timestamp=READ, size=0
    )


_DATA = (
    "commit_timestamp", "record_sequence", "server_transaction_id", "is_last_record_in_transaction_in_partition",
    "table_name", "column_types", "mods", "mod_type", "value_capture_type", "number_of_records_in_transaction",
    "number_of_partitions_in_transaction", "transaction_tag", "is_system_transaction",
)  # fmt: skip


def _text(node: object) -> str:
    need(isinstance(node, str))
    return cast("str", node)


def _filled(node: object) -> str:
    need(node)
    return _text(node)


def _flag(node: object) -> bool:
    need(isinstance(node, bool))
    return cast("bool", node)


def _list(node: object) -> list[Any]:
    need(isinstance(node, list))
    return cast("list[Any]", node)


def _time(node: object) -> int:
    try:
        found = parse(_text(node))
    except ValueError:
        raise InvalidError from None
    return _in_64_bits(found)


def _in_64_bits(number: int) -> int:
    need(-(2**63) <= number < 2**63)
    return number


def _digits(node: object) -> int:
    need(re.fullmatch("-?[0-9]{1,19}", _text(node)))
    return _in_64_bits(int(_text(node)))


def _type(text: str) -> str:
    try:
        node = json.loads(text)
    except ValueError:
        raise InvalidError from None
    need(isinstance(node, dict) and "code" in node)
    return canonical_type(text)


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "commit_timestamp": _time,
    "record_sequence": _filled,
    "server_transaction_id": _filled,
    "is_last_record_in_transaction_in_partition": _flag,
    "table_name": _filled,
    "mod_type": _filled,
    "value_capture_type": _filled,
    "number_of_records_in_transaction": _digits,
    "number_of_partitions_in_transaction": _digits,
    "transaction_tag": _text,
    "is_system_transaction": _flag,
}

# GoogleSQL: lists are arrays and structs; what stands behind a struct's known fields is of a later version


def googlesql(row: object) -> list[Record]:
    """The records of a row, in lists, strings, BOOLs, numbers and NULLs."""
    found: list[Record] = []
    for change in _list(row):
        data, beats, children, *others = _struct(change, 3)
        need(not any(_list([] if other is None else other) for other in others))
        found += [_googlesql_data(one) for one in _records(data)]
        found += [HeartbeatRecord(_time(_struct(one, 1)[0])) for one in _records(beats)]
        found += [_googlesql_children(one) for one in _records(children)]
    need(found)
    return found


def _struct(node: object, fields: int) -> list[Any]:
    need(len(_list(node)) >= fields)
    return _list(node)


def _records(node: object) -> list[Any]:
    """An array that may be NULL, without structs all of whose fields are NULL."""
    records = [] if node is None else _list(node)
    return [one for one in records if not (isinstance(one, list) and one and all(item is None for item in one))]


def _googlesql_data(node: object) -> DataChangeRecord:
    values = dict(zip(_DATA, _struct(node, 13), strict=False))
    columns = [
        ColumnType(_filled(name), _type(_text(kind)), _flag(key), _digits(position))
        for name, kind, key, position, *_ in (_struct(column, 4) for column in _list(values["column_types"]))
    ]
    mods = [tuple(map(_payload_text, _struct(mod, 3)[:3])) for mod in _list(values["mods"])]
    fields = {name: take(values[name]) for name, take in _SCALARS.items()}
    return _data(fields, columns, cast("list[tuple[str, str, str]]", mods))


def _payload_text(node: object) -> str:
    if node is None:
        return "{}"
    try:
        found = json.loads(_text(node), parse_int=str, parse_float=str)
    except ValueError:
        raise InvalidError from None
    need(found is None or isinstance(found, dict))
    return _canonical(found or {})


def _googlesql_children(node: object) -> ChildPartitionsRecord:
    start, sequence, children = _struct(node, 3)[:3]
    need(_list(children))
    return ChildPartitionsRecord(
        _time(start),
        _text(sequence),
        tuple(
            ChildPartition(_filled(token), _parents(tokens))
            for token, tokens, *_ in (_struct(child, 2) for child in children)
        ),
    )


def _parents(tokens: object) -> frozenset[str]:
    return frozenset(_text(token) for token in ([] if tokens is None else _list(tokens)) if token not in (None, ""))


# PostgreSQL: a JSON document; members that are not known are of a later version


def postgresql(row: object) -> list[Record]:
    """The record of a row, a document's text; of a member that stands twice the last counts, as in jsonb."""
    try:
        document = json.loads(_text(row))
    except ValueError:
        raise InvalidError from None
    _dict(document)
    kinds = {
        "data_change_record": _json_data,
        "heartbeat_record": _json_beat,
        "child_partitions_record": _json_children,
    }
    found = [take(document[name]) for name, take in kinds.items() if document.get(name) is not None]
    need(len(found) == 1)
    return cast("list[Record]", found)


def names_a_member_twice(document: str) -> bool:
    """Whether one does; where the first of the two is not valid, a decoder may refuse it rather than pass it over."""
    twice = []

    def look(members: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.append(len(dict(members)) < len(members))
        return dict(members)

    json.loads(document, object_pairs_hook=look)
    return any(twice)


def _dict(node: object) -> dict[str, Any]:
    need(isinstance(node, dict))
    return cast("dict[str, Any]", node)


def _member(node: object, name: str) -> Any:
    need(name in _dict(node))
    return _dict(node)[name]


def _number(node: object) -> int:
    if isinstance(node, str):
        return _digits(node)
    need(isinstance(node, int | float) and not isinstance(node, bool) and node == node // 1)
    return _in_64_bits(int(cast("float", node)))


def _json_data(node: object) -> DataChangeRecord:
    _dict(node)
    values = {"transaction_tag": "", "is_system_transaction": False, **_dict(node)}
    columns = [
        ColumnType(
            _filled(_member(column, "name")),
            _type(json.dumps(_member(column, "type"))),
            _flag(_member(column, "is_primary_key")),
            _number(_member(column, "ordinal_position")),
        )
        for column in _list(_member(node, "column_types"))
    ]
    mods = [
        tuple(_json_payload(_dict(mod).get(name)) for name in ("keys", "new_values", "old_values"))
        for mod in _list(_member(node, "mods"))
    ]
    fields = {name: (_number if take is _digits else take)(_member(values, name)) for name, take in _SCALARS.items()}
    return _data(fields, columns, cast("list[tuple[str, str, str]]", mods))


def _json_payload(node: object) -> str:
    return "{}" if node is None else _canonical(_with_texts(_dict(node)))


def _with_texts(node: Any) -> Any:
    """Numbers as their texts: payloads here hold none that Python would write differently."""
    match node:
        case dict():
            return {name: _with_texts(item) for name, item in node.items()}
        case list():
            return [_with_texts(item) for item in node]
        case int() | float() if not isinstance(node, bool):
            return str(node)
        case _:
            return node


def _json_beat(node: object) -> HeartbeatRecord:
    return HeartbeatRecord(_time(_member(node, "timestamp")))


def _json_children(node: object) -> ChildPartitionsRecord:
    children = _list(_member(node, "child_partitions"))
    need(children)
    sequence = _dict(node).get("record_sequence", "")
    need(isinstance(sequence, str | int) and not isinstance(sequence, bool))
    return ChildPartitionsRecord(
        _time(_member(node, "start_timestamp")),
        str(sequence),
        tuple(
            ChildPartition(_filled(_member(child, "token")), _parents(child.get("parent_partition_tokens")))
            for child in children
        ),
    )


# The mutable mode: a message is a list of fields, (number, what it holds): an int is a varint, a float a double, a str
# or a list, which is a message, has a length. A field of another kind than its number's is not known to a parser.

Message = list[tuple[int, Any]]


def mutable(row: object) -> list[Record]:
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
    return _in_64_bits(seconds * 10**9 + nanos)


_MOD_TYPES = {10: "INSERT", 20: "UPDATE", 30: "DELETE"}
_CAPTURES = {10: "OLD_AND_NEW_VALUES", 20: "NEW_VALUES", 30: "NEW_ROW", 40: "NEW_ROW_AND_OLD_VALUES"}
_CODES = {1: "BOOL", 2: "INT64", 3: "FLOAT64", 4: "TIMESTAMP", 5: "DATE", 6: "STRING", 7: "BYTES"}
_ANNOTATIONS = {2: "PG_NUMERIC", 3: "PG_JSONB", 4: "PG_OID"}


def _proto_data(fields: Message) -> DataChangeRecord:
    columns = [
        ColumnType(
            _filled(_last(column, 1, str, "")),
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
    return _data(
        {
            "commit_timestamp": _proto_time(fields, 1),
            "record_sequence": _filled(_last(fields, 2, str, "")),
            "server_transaction_id": _filled(_last(fields, 3, str, "")),
            "is_last_record_in_transaction_in_partition": bool(_last(fields, 4, int, 0)),
            "table_name": _filled(_last(fields, 5, str, "")),
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
    return _canonical(_with_texts(found))


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
        case 6:  # lists behind one another in a value are one list
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
