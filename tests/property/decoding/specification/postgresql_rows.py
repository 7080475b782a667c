"""A specification of the valid rows of the PostgreSQL dialect, and of their meaning.

A row is a JSON document. Members that are not known are of a later version.
"""

import json
from typing import Any, cast

from connector.core.records import (
    ChildPartition,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    Record,
)
from tests.property.decoding.specification.fields import (
    SCALARS,
    InvalidError,
    canonical,
    column_type,
    data_record,
    digits,
    filled_text,
    flag,
    in_64_bits,
    items,
    need,
    numbers_as_texts,
    parents,
    text,
    time,
)


def records(row: object) -> list[Record]:
    """The record of a row, a document's text; of a member that occurs twice the last one counts, as in jsonb."""
    try:
        document = json.loads(text(row))
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
    """True if a member occurs twice; if the first one is not valid, a decoder may reject it instead of ignoring it."""
    twice = []

    def look(members: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.append(len(dict(members)) < len(members))
        return dict(members)

    json.loads(document, object_pairs_hook=look)
    return any(twice)


def _member(node: object, name: str) -> Any:
    need(name in _dict(node))
    return _dict(node)[name]


def _number(node: object) -> int:
    if isinstance(node, str):
        return digits(node)
    need(isinstance(node, int | float) and not isinstance(node, bool) and node == node // 1)
    return in_64_bits(int(cast("float", node)))


def _json_data(node: object) -> DataChangeRecord:
    _dict(node)
    values = {"transaction_tag": "", "is_system_transaction": False, **_dict(node)}
    columns = [
        ColumnType(
            filled_text(_member(column, "name")),
            column_type(json.dumps(_member(column, "type"))),
            flag(_member(column, "is_primary_key")),
            _number(_member(column, "ordinal_position")),
        )
        for column in items(_member(node, "column_types"))
    ]
    mods = [
        tuple(_json_payload(_dict(mod).get(name)) for name in ("keys", "new_values", "old_values"))
        for mod in items(_member(node, "mods"))
    ]
    fields = {name: (_number if take is digits else take)(_member(values, name)) for name, take in SCALARS.items()}
    return data_record(fields, columns, cast("list[tuple[str, str, str]]", mods))


def _json_payload(node: object) -> str:
    return "{}" if node is None else canonical(numbers_as_texts(_dict(node)))


def _json_beat(node: object) -> HeartbeatRecord:
    return HeartbeatRecord(time(_member(node, "timestamp")))


def _json_children(node: object) -> ChildPartitionsRecord:
    children = items(_member(node, "child_partitions"))
    need(children)
    sequence = _dict(node).get("record_sequence", "")
    need(isinstance(sequence, str | int) and not isinstance(sequence, bool))
    return ChildPartitionsRecord(
        time(_member(node, "start_timestamp")),
        str(sequence),
        tuple(
            ChildPartition(filled_text(_member(child, "token")), parents(child.get("parent_partition_tokens")))
            for child in children
        ),
    )


def _dict(node: object) -> dict[str, Any]:
    need(isinstance(node, dict))
    return cast("dict[str, Any]", node)
