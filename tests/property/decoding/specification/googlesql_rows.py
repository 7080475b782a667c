"""A specification of the valid GoogleSQL rows, and of their meaning.

Lists are arrays and structs. What follows the known fields of a struct is of a later version.
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
    DATA_FIELDS,
    SCALARS,
    InvalidError,
    canonical,
    column_type,
    data_record,
    digits,
    filled_text,
    flag,
    items,
    need,
    parents,
    text,
    time,
)


def records(row: object) -> list[Record]:
    """The records of a row, in lists, strings, BOOLs, numbers and NULLs."""
    found: list[Record] = []
    for change in items(row):
        data, beats, children, *others = _struct(change, 3)
        need(not any(items([] if other is None else other) for other in others))
        found += [_googlesql_data(one) for one in _records(data)]
        found += [HeartbeatRecord(time(_struct(one, 1)[0])) for one in _records(beats)]
        found += [_googlesql_children(one) for one in _records(children)]
    need(found)
    return found


def _struct(node: object, fields: int) -> list[Any]:
    need(len(items(node)) >= fields)
    return items(node)


def _records(node: object) -> list[Any]:
    """An array that may be NULL, without structs all of whose fields are NULL."""
    records = [] if node is None else items(node)
    return [one for one in records if not (isinstance(one, list) and one and all(item is None for item in one))]


def _googlesql_data(node: object) -> DataChangeRecord:
    values = dict(zip(DATA_FIELDS, _struct(node, 13), strict=False))
    columns = [
        ColumnType(filled_text(name), column_type(text(kind)), flag(key), digits(position))
        for name, kind, key, position, *_ in (_struct(column, 4) for column in items(values["column_types"]))
    ]
    mods = [tuple(map(_payload_text, _struct(mod, 3)[:3])) for mod in items(values["mods"])]
    fields = {name: take(values[name]) for name, take in SCALARS.items()}
    return data_record(fields, columns, cast("list[tuple[str, str, str]]", mods))


def _googlesql_children(node: object) -> ChildPartitionsRecord:
    start, sequence, children = _struct(node, 3)[:3]
    need(items(children))
    return ChildPartitionsRecord(
        time(start),
        text(sequence),
        tuple(
            ChildPartition(filled_text(token), parents(tokens))
            for token, tokens, *_ in (_struct(child, 2) for child in children)
        ),
    )


def _payload_text(node: object) -> str:
    if node is None:
        return "{}"
    try:
        found = json.loads(text(node), parse_int=str, parse_float=str)
    except ValueError:
        raise InvalidError from None
    need(found is None or isinstance(found, dict))
    return canonical(found or {})
