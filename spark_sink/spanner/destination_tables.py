"""The tables of the destination, as its INFORMATION_SCHEMA has them, and how deep each is below its parents.

A table's parents are the one that it is interleaved in and those that it refers to by foreign keys. Interleaving counts
first: a reference back to a child of one's own, as a user's to one of its addresses, does not.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from connector.core.dialects import Dialect
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import dialect_name, dialect_of, primary_keys
from connector.spanner.errors import Access
from spark_sink.spanner.config import Target

EMULATOR_HOST = "SPANNER_EMULATOR_HOST"

WRITER = Access("sink", "The sink needs roles/spanner.databaseUser in the destination.")


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
        is_referred_to: whether a foreign key refers to it. Its rows are deleted last: only when all is written does
            nothing refer to them.
        takes_others: whether a deleted row takes those with it that refer to it by a foreign key.
    """

    columns: frozenset[str]
    key: tuple[str, ...]
    depth: int
    generated: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    cascades_from: str = ""
    is_referred_to: bool = False
    takes_others: bool = False


@dataclass(frozen=True, slots=True)
class Destination:
    """The dialect of a database, and its tables by their names."""

    dialect: Dialect
    tables: Mapping[str, DestinationTable]


async def destination_at(target: Target, emulator_host: str | None) -> Destination:
    """Reads the tables of the database that is written.

    Raises:
        SpannerCdcError: it cannot be reached, or refuses a query.
    """
    client = SpannerClient(target.path, target.emulator_host or emulator_host, target.endpoint, access=WRITER)
    async with client.connected():
        return await _destination(client)


async def _destination(client: SpannerClient) -> Destination:
    dialect = await dialect_of(client)
    keys = await primary_keys(client, dialect)
    columns: dict[str, set[str]] = defaultdict(set)
    generated: dict[str, set[str]] = defaultdict(set)
    required: dict[str, set[str]] = defaultdict(set)
    for schema, table, column, how, nullable, default in await client.rows(
        "SELECT table_schema, table_name, column_name, is_generated, is_nullable, column_default IS NOT NULL"
        " FROM information_schema.columns"
    ):
        name = dialect_name(dialect, schema, table)
        (columns if how == "NEVER" else generated)[name].add(str(column))
        if how == "NEVER" and nullable == "NO" and not default:
            required[name].add(str(column))
    interleaved: dict[str, str] = {}
    cascades: set[str] = set()
    names = []
    for schema, table, parent, on_delete in await client.rows(
        "SELECT table_schema, table_name, parent_table_name, on_delete_action FROM information_schema.tables"
        " WHERE table_type = 'BASE TABLE'"
    ):
        names.append(dialect_name(dialect, schema, table))
        if parent:
            interleaved[names[-1]] = dialect_name(dialect, schema, parent)
            cascades |= {names[-1]} if on_delete == "CASCADE" else set()
    references: dict[str, set[str]] = defaultdict(set)
    takes_others: set[str] = set()
    for schema, table, other_schema, other, on_delete in await client.rows(
        "SELECT c.table_schema, c.table_name, u.table_schema, u.table_name, r.delete_rule"
        " FROM information_schema.table_constraints AS c JOIN information_schema.constraint_table_usage AS u"
        " ON c.constraint_schema = u.constraint_schema AND c.constraint_name = u.constraint_name"
        " JOIN information_schema.referential_constraints AS r"
        " ON c.constraint_schema = r.constraint_schema AND c.constraint_name = r.constraint_name"
        " WHERE c.constraint_type = 'FOREIGN KEY'"
    ):
        referred = dialect_name(dialect, other_schema, other)
        references[dialect_name(dialect, schema, table)].add(referred)
        takes_others |= {referred} if on_delete == "CASCADE" else set()
    depths = depths_of(interleaved, references)
    referred_to = {table for tables in references.values() for table in tables}
    return Destination(
        dialect,
        {
            table: DestinationTable(
                frozenset(columns[table]),
                keys.get(table, ()),
                depths.get(table, 0),
                frozenset(generated[table]),
                frozenset(required[table]),
                interleaved[table] if table in cascades else "",
                table in referred_to,
                table in takes_others,
            )
            for table in names
        },
    )


def depths_of(interleaved: Mapping[str, str], references: Mapping[str, set[str]]) -> dict[str, int]:
    """The depth of each table that has parents or is one; where tables refer to each other, one reference is ignored.

    Args:
        interleaved: the table that each is interleaved in.
        references: the tables that each refers to.
    """
    parents: dict[str, set[str]] = defaultdict(set)
    for table, parent in interleaved.items():
        parents[table].add(parent)
    for table, others in sorted(references.items()):
        for other in sorted(others):
            if table not in _above(other, parents):
                parents[table].add(other)
    depths: dict[str, int] = {}

    def depth(table: str) -> int:
        if table not in depths:
            depths[table] = max((depth(parent) + 1 for parent in parents.get(table, ())), default=0)
        return depths[table]

    for table in {*parents, *(parent for of_table in parents.values() for parent in of_table)}:
        depth(table)
    return depths


def _above(table: str, parents: Mapping[str, set[str]]) -> set[str]:
    """A table and all that it is below."""
    found: set[str] = set()
    waiting = [table]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += parents.get(one, ())
    return found
