"""The differences between Spanner's two dialects, in one table each; no other module tests which dialect it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

IMMUTABLE, MUTABLE = "IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"
"""The partition modes of change streams."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect's texts.

    ``queries`` are the read functions' statements by partition mode, ``parameters`` their start, end, partition token
    and heartbeat, in that order. ``default_schema`` is the name of the unnamed schema in events, or None where that is
    the name of the database.
    """

    name: str
    queries: Mapping[str, str]
    parameters: tuple[str, str, str, str]
    unnamed_schema: str
    default_schema: str | None
    types: Mapping[str, Mapping[str, object]]
    array: re.Pattern[str]

    def query(self, change_stream: str, partition_mode: str) -> str:
        """The read function's statement; the name was checked to be an identifier."""
        return self.queries[partition_mode].format(change_stream)

    def column_type(self, spanner_type: str) -> str | None:
        """INFORMATION_SCHEMA's spanner_type as the type object of records, or None if it is unknown.

        Lengths of strings, numbers and vectors are not part of the type object.
        """
        match = self.array.fullmatch(spanner_type)
        node = self._scalar(match[1]) if match else self._scalar(spanner_type)
        if node is None:
            return None
        whole = {"code": "ARRAY", "array_element_type": node} if match else node
        return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS).decode()

    def _scalar(self, spanner_type: str) -> Mapping[str, object] | None:
        bare = re.sub(r"\(.*\)", "", spanner_type).strip()
        named = re.fullmatch(r"(PROTO|ENUM)<`?([^<>`]+)`?>", bare)
        if named:
            return {"code": named[1], "proto_type_fqn": named[2]}
        return self.types.get(bare)


def _codes(*names: str) -> dict[str, Mapping[str, object]]:
    return {name: {"code": name} for name in names}


_GOOGLESQL_QUERY = (
    "SELECT ChangeRecord FROM READ_{}(start_timestamp => @start_timestamp, end_timestamp => @end_timestamp,"
    " partition_token => @partition_token, heartbeat_milliseconds => @heartbeat_milliseconds)"
)

GOOGLESQL = Dialect(
    name="googlesql",
    queries={IMMUTABLE: _GOOGLESQL_QUERY, MUTABLE: _GOOGLESQL_QUERY},
    parameters=("start_timestamp", "end_timestamp", "partition_token", "heartbeat_milliseconds"),
    unnamed_schema="",
    default_schema=None,
    types=_codes(
        "BOOL", "INT64", "FLOAT32", "FLOAT64", "NUMERIC", "STRING", "BYTES", "DATE", "TIMESTAMP", "JSON", "UUID",
        "INTERVAL",
    ),
    array=re.compile(r"ARRAY<(.+)>(?:\(vector_length\s*=>\s*\d+\))?"),
)  # fmt: skip

POSTGRESQL = Dialect(
    name="postgresql",
    queries={
        IMMUTABLE: 'SELECT * FROM "spanner"."read_json_{}"($1, $2, $3, $4, null)',
        MUTABLE: 'SELECT * FROM "spanner"."read_proto_bytes_{}"($1, $2, $3, $4, null)',
    },
    parameters=("p1", "p2", "p3", "p4"),
    unnamed_schema="public",
    default_schema="public",
    types={
        "boolean": {"code": "BOOL"},
        "bigint": {"code": "INT64"},
        "real": {"code": "FLOAT32"},
        "double precision": {"code": "FLOAT64"},
        "numeric": {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"},
        "character varying": {"code": "STRING"},
        "text": {"code": "STRING"},
        "bytea": {"code": "BYTES"},
        "date": {"code": "DATE"},
        "timestamp with time zone": {"code": "TIMESTAMP"},
        "spanner.commit_timestamp": {"code": "TIMESTAMP"},
        "jsonb": {"code": "JSON", "type_annotation": "PG_JSONB"},
        "oid": {"code": "INT64", "type_annotation": "PG_OID"},
        "uuid": {"code": "UUID"},
        "interval": {"code": "INTERVAL"},
    },
    array=re.compile(r"(.+)\[\](?: vector length \d+)?", re.IGNORECASE),
)

DIALECTS: Mapping[str, Dialect] = {"GOOGLE_STANDARD_SQL": GOOGLESQL, "POSTGRESQL": POSTGRESQL}
"""By the value of INFORMATION_SCHEMA's database option ``database_dialect``."""
