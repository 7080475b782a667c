"""The source's tables as they are now: what a change names may be gone since.

Columns that ``source.columns`` excludes are absent, and those that it hashes are strings.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from connector.config.address import DatabaseAddress
from connector.core.column_kinds import type_code
from connector.core.dialects import Dialect
from connector.core.masking.rules import STRING_TYPE, ColumnRules
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import dialect_name, dialect_of, primary_keys


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table: the type codes of its columns, empty where a type is not known, and the columns of its key."""

    types: Mapping[str, str]
    key: tuple[str, ...]


def source_tables(address: DatabaseAddress) -> Mapping[str, SourceTable] | None:
    """The source's tables by name; None where a database role decides which tables are shown.

    Raises:
        SpannerCdcError: it cannot be reached, or refuses a query.
    """
    return None if address.database_role else asyncio.run(_tables(address))


async def _tables(address: DatabaseAddress) -> Mapping[str, SourceTable]:
    client = SpannerClient(address)
    async with client.connected():
        dialect = await dialect_of(client)
        keys = await primary_keys(client, dialect)
        types: dict[str, dict[str, str]] = defaultdict(dict)
        for schema, table, column, kind in await client.rows(
            "SELECT table_schema, table_name, column_name, spanner_type FROM information_schema.columns"
        ):
            types[dialect_name(dialect, schema, table)][str(column)] = code_of(dialect, str(kind))
    if address.columns is not None:
        for name, columns in types.items():
            types[name] = dict(_after(address.columns, name, columns))
    return {name: SourceTable(columns, keys.get(name, ())) for name, columns in types.items()}


def _after(rules: ColumnRules, table: str, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for column, code in types.items():
        if rules.hashed_by(table, column):
            yield column, type_code(STRING_TYPE)
        elif not rules.excluded_by(table, column):
            yield column, code


def code_of(dialect: Dialect, spanner_type: str) -> str:
    """The type code of a column, as INFORMATION_SCHEMA spells its type; empty if it is not known."""
    type_json = dialect.column_type(spanner_type)
    return type_code(type_json) if type_json else ""
