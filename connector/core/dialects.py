"""The differences between Spanner's two dialects, in one table each; no other module tests which dialect it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from connector.core.column_kinds import GOOGLESQL_ARRAY, GOOGLESQL_TYPES, POSTGRESQL_ARRAY, POSTGRESQL_TYPES

IMMUTABLE, MUTABLE = "IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"
"""The partition modes of change streams."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect's texts.

    ``functions`` are the read functions' names by partition mode, ``call`` is the statement that calls one,
    ``parameters`` are its start, end, partition token and heartbeat, in that order. ``default_schema`` is the name of
    the unnamed schema in events, or None where that is the name of the database. ``quote`` is the mark around
    identifiers, and what stands for characters within them, ``base_table`` the hint after a table that makes Spanner
    scan the table and no index. ``function_schema`` is the schema of read functions, or None where it is unnamed, and
    ``ignores_case`` is whether the names of functions are compared without case.
    """

    name: str
    functions: Mapping[str, str]
    call: str
    parameters: tuple[str, str, str, str]
    unnamed_schema: str
    default_schema: str | None
    types: Mapping[str, Mapping[str, object]]
    array: re.Pattern[str]
    quote: tuple[str, Mapping[str, str]]
    base_table: str
    function_schema: str | None = None
    ignores_case: bool = False

    def query(self, change_stream: str, partition_mode: str, function: str | None = None) -> str:
        """The statement of a read function, None for the stream's only one; names were checked to be identifiers."""
        return self.call.format(function or self.function(change_stream, partition_mode))

    def function(self, change_stream: str, partition_mode: str) -> str:
        """The name of the read function of a stream that has one alone."""
        return self.functions[partition_mode].format(change_stream)

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

    def identifier(self, name: str) -> str:
        """The name of a column, quoted for a statement."""
        mark, escapes = self.quote
        return mark + "".join(escapes.get(character, character) for character in name) + mark

    def table(self, name: str) -> str:
        """The name of a table, ``schema.table`` in a named schema, quoted for a statement."""
        return ".".join(map(self.identifier, name.split(".")))

    def _scalar(self, spanner_type: str) -> Mapping[str, object] | None:
        bare = re.sub(r"\(.*\)", "", spanner_type).strip()
        named = re.fullmatch(r"(PROTO|ENUM)<`?([^<>`]+)`?>", bare)
        if named:
            return {"code": named[1], "proto_type_fqn": named[2]}
        return self.types.get(bare)


_GOOGLESQL_CALL = (
    "SELECT ChangeRecord FROM {}(start_timestamp => @start_timestamp, end_timestamp => @end_timestamp,"
    " partition_token => @partition_token, heartbeat_milliseconds => @heartbeat_milliseconds)"
)

GOOGLESQL = Dialect(
    name="googlesql",
    functions={IMMUTABLE: "READ_{}", MUTABLE: "READ_{}"},
    call=_GOOGLESQL_CALL,
    parameters=("start_timestamp", "end_timestamp", "partition_token", "heartbeat_milliseconds"),
    unnamed_schema="",
    default_schema=None,
    types=GOOGLESQL_TYPES,
    array=GOOGLESQL_ARRAY,
    quote=("`", {"\\": "\\\\", "`": "\\`"}),
    base_table="@{FORCE_INDEX=_BASE_TABLE}",
)

POSTGRESQL = Dialect(
    name="postgresql",
    functions={IMMUTABLE: "read_json_{}", MUTABLE: "read_proto_bytes_{}"},
    call='SELECT * FROM "spanner"."{}"($1, $2, $3, $4, null)',
    parameters=("p1", "p2", "p3", "p4"),
    unnamed_schema="public",
    default_schema="public",
    types=POSTGRESQL_TYPES,
    array=POSTGRESQL_ARRAY,
    quote=('"', {'"': '""'}),
    base_table=" /*@ FORCE_INDEX=_BASE_TABLE */",
    function_schema="spanner",
    ignores_case=True,
)

DIALECTS: Mapping[str, Dialect] = {"GOOGLE_STANDARD_SQL": GOOGLESQL, "POSTGRESQL": POSTGRESQL}
"""By the value of INFORMATION_SCHEMA's database option ``database_dialect``."""

BY_NAME: Mapping[str, Dialect] = {dialect.name: dialect for dialect in DIALECTS.values()}
