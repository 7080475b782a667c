"""The row type of a change stream as the official emulator sent it, and types that differ from it in one place."""

from collections.abc import Iterator
from typing import Any

from google.cloud.spanner_v1 import types

from benchmarks.replay.sample import Sample

METADATA = {dialect: Sample.of(dialect).metadata for dialect in ("googlesql", "postgresql")}
"""The bytes of the google.spanner.v1.ResultSetMetadata, by dialect."""

_Metadata = types.ResultSetMetadata.pb()
_Type = types.Type.pb()
_LATER = 99
"""A type code that the library does not know."""


def _structs(node: Any) -> Iterator[Any]:
    """Yields the row type, and every struct in it."""
    if not isinstance(node, _Type):
        yield node
    elif node.code == types.TypeCode.STRUCT:
        node = node.struct_type
        yield node
    else:
        if node.HasField("array_element_type"):
            yield from _structs(node.array_element_type)
        return
    for field in node.fields:
        yield from _structs(field.type_)


def _types(node: Any) -> Iterator[Any]:
    """Yields every type in a row type."""
    for struct in _structs(node):
        for field in struct.fields:
            yield field.type_
            if field.type_.HasField("array_element_type"):
                yield field.type_.array_element_type


def other_row_types() -> Iterator[bytes]:
    """Yields the metadata of row types that differ from the known one in one place each."""
    known = _Metadata.FromString(METADATA["googlesql"]).row_type
    for code in (types.TypeCode.NUMERIC, _LATER):
        for number in range(len(list(_types(known)))):
            changed = _Metadata.FromString(METADATA["googlesql"])
            list(_types(changed.row_type))[number].code = code
            yield changed.SerializeToString()
    for number, fields in enumerate(_structs(known)):
        for code in (types.TypeCode.STRING, _LATER):
            changed = _Metadata.FromString(METADATA["googlesql"])
            list(_structs(changed.row_type))[number].fields.add(name="new").type_.code = code
            yield changed.SerializeToString()
        for dropped in range(len(fields.fields)):
            changed = _Metadata.FromString(METADATA["googlesql"])
            del list(_structs(changed.row_type))[number].fields[dropped]
            yield changed.SerializeToString()
