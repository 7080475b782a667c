"""A type object of a change record for each kind of column."""

import orjson

from connector.core.column_kinds import CATALOGUE, ColumnKind

TYPE_OBJECTS: dict[ColumnKind, str] = {
    ColumnKind.UNKNOWN: '{"code":"A_NEWER_TYPE"}',
    **{entry.kind: orjson.dumps(entry.type_object).decode() for entry in CATALOGUE},
}
