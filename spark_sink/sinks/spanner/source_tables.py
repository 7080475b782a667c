"""The source's tables as they are now: what a change names may be gone since."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from connector.config.address import DatabaseAddress
from connector.core.column_kinds import type_code
from connector.core.dialects import Dialect
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
    return {name: SourceTable(columns, keys.get(name, ())) for name, columns in types.items()}


def code_of(dialect: Dialect, spanner_type: str) -> str:
    """The type code of a column, as INFORMATION_SCHEMA spells its type; empty if it is not known."""
    type_json = dialect.column_type(spanner_type)
    return type_code(type_json) if type_json else ""
