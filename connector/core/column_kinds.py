"""Spanner's column types: their names in both dialects, their codes in change records, and the kind of their values.

Every sink decides by the kind of a column how it writes the values. Each sink has one table with a line for every
member of :class:`ColumnKind`, and a test fails where a line is missing. Pure.

Codes and annotations are those of https://cloud.google.com/spanner/docs/reference/rpc/google.spanner.v1#typecode.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

import orjson


class ColumnKind(Enum):
    """The kind of a column's values; for an array, of its elements."""

    BOOL = auto()
    INT64 = auto()
    FLOAT32 = auto()
    FLOAT64 = auto()
    NUMERIC = auto()
    """GoogleSQL's: 29 digits before the point, 9 after it."""

    PG_NUMERIC = auto()
    """PostgreSQL's: it has more digits than a decimal of 128 bits, and may be NaN."""

    STRING = auto()
    BYTES = auto()
    DATE = auto()
    TIMESTAMP = auto()
    JSON = auto()
    UUID = auto()
    INTERVAL = auto()
    ENUM = auto()
    PROTO = auto()
    UNKNOWN = auto()
    """A type without an entry in the catalogue: TOKENLIST, STRUCT, and types that are newer than this version."""

    @property
    def encoded_like(self) -> "ColumnKind":
        """The kind that stands for all kinds with the same encoding in Spanner's JSON.

        For example, the value of an ENUM is written like that of an INT64.
        """
        return _ENCODED_LIKE.get(self, self)


_ENCODED_LIKE = {
    ColumnKind.ENUM: ColumnKind.INT64,
    ColumnKind.FLOAT32: ColumnKind.FLOAT64,
    ColumnKind.UUID: ColumnKind.STRING,
    ColumnKind.INTERVAL: ColumnKind.STRING,
    ColumnKind.PROTO: ColumnKind.BYTES,
}


@dataclass(frozen=True, slots=True)
class TypeEntry:
    """One type of the catalogue.

    Attributes:
        kind: the kind of its values.
        code: its code in change records.
        annotation: its type annotation in change records, or empty.
        googlesql: its name in GoogleSQL's INFORMATION_SCHEMA, or empty where the dialect does not have it.
        postgresql: its names in PostgreSQL's INFORMATION_SCHEMA.
    """

    kind: ColumnKind
    code: str
    annotation: str = ""
    googlesql: str = ""
    postgresql: tuple[str, ...] = ()

    @property
    def type_object(self) -> Mapping[str, object]:
        """The type as a change record has it, without the name of a PROTO or an ENUM."""
        return {"code": self.code} | ({"type_annotation": self.annotation} if self.annotation else {})


CATALOGUE = (
    TypeEntry(ColumnKind.BOOL, "BOOL", googlesql="BOOL", postgresql=("boolean",)),
    TypeEntry(ColumnKind.INT64, "INT64", googlesql="INT64", postgresql=("bigint",)),
    TypeEntry(ColumnKind.INT64, "INT64", "PG_OID", postgresql=("oid",)),
    TypeEntry(ColumnKind.FLOAT32, "FLOAT32", googlesql="FLOAT32", postgresql=("real",)),
    TypeEntry(ColumnKind.FLOAT64, "FLOAT64", googlesql="FLOAT64", postgresql=("double precision",)),
    TypeEntry(ColumnKind.NUMERIC, "NUMERIC", googlesql="NUMERIC"),
    TypeEntry(ColumnKind.PG_NUMERIC, "NUMERIC", "PG_NUMERIC", postgresql=("numeric",)),
    TypeEntry(ColumnKind.STRING, "STRING", googlesql="STRING", postgresql=("character varying", "text")),
    TypeEntry(ColumnKind.BYTES, "BYTES", googlesql="BYTES", postgresql=("bytea",)),
    TypeEntry(ColumnKind.DATE, "DATE", googlesql="DATE", postgresql=("date",)),
    TypeEntry(
        ColumnKind.TIMESTAMP,
        "TIMESTAMP",
        googlesql="TIMESTAMP",
        postgresql=("timestamp with time zone", "spanner.commit_timestamp"),
    ),
    TypeEntry(ColumnKind.JSON, "JSON", googlesql="JSON"),
    TypeEntry(ColumnKind.JSON, "JSON", "PG_JSONB", postgresql=("jsonb",)),
    TypeEntry(ColumnKind.UUID, "UUID", googlesql="UUID", postgresql=("uuid",)),
    TypeEntry(ColumnKind.INTERVAL, "INTERVAL", googlesql="INTERVAL", postgresql=("interval",)),
    TypeEntry(ColumnKind.ENUM, "ENUM"),
    TypeEntry(ColumnKind.PROTO, "PROTO"),
)
"""Every type of a column but arrays. The names of ENUM and PROTO types hold the name of a message: ``ENUM<a.B>``."""

GOOGLESQL_TYPES: Mapping[str, Mapping[str, object]] = {
    entry.googlesql: entry.type_object for entry in CATALOGUE if entry.googlesql
}
POSTGRESQL_TYPES: Mapping[str, Mapping[str, object]] = {
    name: entry.type_object for entry in CATALOGUE for name in entry.postgresql
}
"""The type objects by the name that the dialect's INFORMATION_SCHEMA uses, without a length."""

GOOGLESQL_ARRAY = re.compile(r"ARRAY<(.+)>(?:\(vector_length\s*=>\s*\d+\))?")
POSTGRESQL_ARRAY = re.compile(r"(.+)\[\](?: vector length \d+)?", re.IGNORECASE)
"""The name of an array in each dialect's INFORMATION_SCHEMA; the group is the type of the elements."""

_KINDS = {(entry.code, entry.annotation): entry.kind for entry in CATALOGUE}


@dataclass(frozen=True, slots=True)
class SpannerType:
    """A column's type, as far as the sinks distinguish types: ``kind`` is that of the values or of the elements."""

    kind: ColumnKind
    is_array: bool = False

    @classmethod
    def parse(cls, type_json: str) -> Self:
        """Reads the type object of a change record, such as ``{"code":"INT64"}``.

        Raises:
            ValueError: it is not JSON.
        """
        node = orjson.loads(type_json)
        if node.get("code") != "ARRAY":
            return cls(_kind(node))
        return cls(_kind(node.get("array_element_type", {})), is_array=True)


def _kind(node: Mapping[str, object]) -> ColumnKind:
    """The kind of a type object that is not an array; an annotation that is not known changes nothing."""
    code, annotation = str(node.get("code")), str(node.get("type_annotation", ""))
    return _KINDS.get((code, annotation)) or _KINDS.get((code, ""), ColumnKind.UNKNOWN)


def type_code(type_json: str) -> str:
    """The code of a type object, such as ``INT64`` or ``ARRAY<STRING>``.

    Raises:
        ValueError: it is not JSON.
    """
    node = orjson.loads(type_json)
    if node.get("code") != "ARRAY":
        return str(node.get("code"))
    return f"ARRAY<{node.get('array_element_type', {}).get('code')}>"


class Layout(Enum):
    """The layout in which a sink holds the values of a column."""

    VALUE = auto()
    """One value a row: the column is not an array."""

    LIST = auto()
    """A list of values a row."""

    JSON_ARRAY = auto()
    """The text of a JSON array a row."""
