"""The tables of the destination, as its INFORMATION_SCHEMA has them, and how deep each is below its parents."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from connector.config.address import DatabaseAddress
from connector.core.dialects import Dialect
from connector.core.health.retries import Cause
from connector.errors import UnreachableError
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import dialect_name, dialect_of, primary_keys
from connector.spanner.errors import Access
from connector.spanner.relations import Relations, depths_of, relations_of
from connector.telemetry.retrying import attempts
from spark_sink.sinks.spanner.source_tables import code_of

WRITER = Access("sink", "The sink needs roles/spanner.databaseUser in the destination.")

PATIENCE = 300.0
"""Seconds for which a destination that does not answer is asked again; then the sink's process is restarted."""


@dataclass(frozen=True, slots=True)
class DestinationTable:
    """A table.

    Attributes:
        columns: those that can be written.
        key: the columns of its key, in order.
        depth: 0 without parents; else one more than the deepest of them.
        generated: columns that cannot be written.
        required: columns that an insert must have.
        cascades_from: the table that this one is interleaved in, if its rows are deleted with their parents; or "".
        is_referred_to: whether a foreign key refers to it, or to a table that is interleaved in it. Its rows are
            deleted last: only when all is written does nothing refer to them.
        takes_others: whether a deleted row takes those with it that refer to it, or to its children, by a foreign key.
        types: the type code of each column, empty if it is not known.
        not_null: columns that cannot be NULL; those of them that have a default are not required.
    """

    columns: frozenset[str]
    key: tuple[str, ...]
    depth: int
    generated: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    cascades_from: str = ""
    is_referred_to: bool = False
    takes_others: bool = False
    types: Mapping[str, str] = field(default_factory=dict)
    not_null: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The names of all columns in small letters: two that differ in capitals alone cannot be in one table."""
        return frozenset(name.lower() for name in self.columns | self.generated)

    def spelled(self, column: str) -> str:
        """A column's name as the table has it, whatever its capitals; the name itself if there is no such column."""
        names = self.columns | self.generated
        return column if column in names else next((name for name in names if name.lower() == column.lower()), column)


@dataclass(frozen=True, slots=True)
class DestinationDatabase:
    """The dialect of a database, the relations of its tables, the tables by their names, and the names of its views."""

    dialect: Dialect
    relations: Relations
    tables: Mapping[str, DestinationTable]
    views: frozenset[str] = frozenset()


IN_ORDER = "drop the foreign key there, and create it again after the backfill"


def circular_references(relations: Relations, tables: Collection[str]) -> list[str]:
    """The reasons why the rows of some tables cannot be written in any order, each table in a sentence."""
    return [
        f"a foreign key of table {table} of the destination leads back to {table}: no order of a backfill's rows is"
        " right for it"
        for table in relations.circular()
        if table in tables
    ]


def late_parents(relations: Relations, tables: Sequence[str]) -> list[str]:
    """The reasons why rows of tables that are read in an order cannot be written in it, each table in a sentence."""
    found = []
    for place, table in enumerate(tables):
        parents = {*relations.references.get(table, ()), *filter(None, [relations.interleaved.get(table)])}
        found += [
            f"table {table} of the destination needs rows of {parent}, which a backfill reads after it, because the"
            " source's tables have no such relation"
            for parent in tables[place + 1 :]
            if parent in parents
        ]
    return found


def awaited_destination(target: DatabaseAddress, patience: float = PATIENCE) -> DestinationDatabase:
    """As :func:`destination_at`, in the sink's process: a database that does not answer is asked again for a while.

    Raises:
        SpannerCdcError: it cannot be reached for so long, or refuses a query.
    """

    def cause(error: BaseException) -> Cause:
        assert isinstance(error, UnreachableError)
        return Cause(f"cannot write {target.path}: {error.message}", hint=error.hint)

    with attempts(cause, f"look at {target.path}") as tried:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(UnreachableError),
            stop=stop_after_delay(patience),
            wait=wait_random_exponential(multiplier=0.5, max=5),
            before_sleep=tried.before_sleep,
            reraise=True,
        )
        # In one event loop: gRPC calls a loop that is closed if another one follows.
        return asyncio.run(retrying(destination_at, target))


async def destination_at(target: DatabaseAddress) -> DestinationDatabase:
    """Reads the tables of the database that is written.

    Raises:
        SpannerCdcError: it cannot be reached, or refuses a query.
    """
    client = SpannerClient(target, access=WRITER)
    async with client.connected():
        dialect = await dialect_of(client)
        keys = await primary_keys(client, dialect)
        rows = await client.rows(
            "SELECT table_schema, table_name, column_name, is_generated, is_nullable, column_default IS NOT NULL,"
            " spanner_type FROM information_schema.columns"
        )
        views = await client.rows(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'VIEW'"
        )
        relations = await relations_of(client, dialect)
    columns: dict[str, set[str]] = defaultdict(set)
    generated: dict[str, set[str]] = defaultdict(set)
    required: dict[str, set[str]] = defaultdict(set)
    not_null: dict[str, set[str]] = defaultdict(set)
    types: dict[str, dict[str, str]] = defaultdict(dict)
    for schema, table, column, how, nullable, default, kind in rows:
        name = dialect_name(dialect, schema, table)
        types[name][str(column)] = code_of(dialect, str(kind))
        (columns if how == "NEVER" else generated)[name].add(str(column))
        if how == "NEVER" and nullable == "NO":
            not_null[name].add(str(column))
            if not default:
                required[name].add(str(column))
    depths = depths_of(relations.interleaved, relations.references)
    referred_to = relations.with_ancestors(table for tables in relations.references.values() for table in tables)
    takes_others = relations.with_ancestors(relations.takes_others)
    return DestinationDatabase(
        dialect,
        relations,
        {
            table: DestinationTable(
                frozenset(columns[table]),
                keys.get(table, ()),
                depths.get(table, 0),
                frozenset(generated[table]),
                frozenset(required[table]),
                relations.interleaved[table] if table in relations.cascades else "",
                table in referred_to,
                table in takes_others,
                types[table],
                frozenset(not_null[table]),
            )
            for table in relations.tables
        },
        frozenset(dialect_name(dialect, schema, view) for schema, view in views),
    )
