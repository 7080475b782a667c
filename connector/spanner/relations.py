"""Dependencies between tables: interleaving and foreign keys."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connector.core.dialects import Dialect
from connector.spanner.discovery import Metadata, dialect_name


@dataclass(frozen=True, slots=True)
class Relations:
    """The relations of a database's tables. Tables are named as change records name them.

    Attributes:
        tables: all tables, not views.
        interleaved: the table that each is interleaved in.
        cascades: interleaved tables whose rows are deleted with their parents.
        references: the tables that each refers to by foreign keys that are enforced.
        takes_others: tables whose rows take those with them that refer to them by a foreign key.
    """

    tables: tuple[str, ...]
    interleaved: Mapping[str, str]
    cascades: frozenset[str]
    references: Mapping[str, frozenset[str]]
    takes_others: frozenset[str]

    def parents_first(self, tables: Iterable[str]) -> list[str]:
        """The tables, parents before their children, else in the order in which they are given."""
        depths = depths_of(self.interleaved, self.references)
        return sorted(tables, key=lambda table: depths.get(table, 0))

    def with_ancestors(self, tables: Iterable[str]) -> set[str]:
        """Tables, and those that they are interleaved in."""
        return _reached(tables, {table: [parent] for table, parent in self.interleaved.items()})

    def with_parents(self, tables: Iterable[str]) -> set[str]:
        """Tables, and those that their rows need, by interleaving or foreign keys: these can be read before them.

        No order of :meth:`circular` tables is right, so that these are only among them if they are given.
        """
        omitted = set(self.circular())
        return _reached(tables, {table: others - omitted for table, others in self._parents().items()})

    def circular(self) -> list[str]:
        """The tables that refer to themselves by foreign keys, also by way of other tables or of interleaving.

        No order of such tables has every row before those that refer to it.
        """
        parents = self._parents()
        return sorted(table for table, others in parents.items() if table in _reached(others, parents))

    def _parents(self) -> dict[str, set[str]]:
        """The tables that each is interleaved in or refers to."""
        parents = {table: {*others} for table, others in self.references.items()}
        for table, parent in self.interleaved.items():
            parents.setdefault(table, set()).add(parent)
        return parents


async def relations_of(client: Metadata, dialect: Dialect) -> Relations:
    """Asks INFORMATION_SCHEMA for the relations of all tables, as they are now.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses the query.
    """
    names, interleaved, cascades = [], dict[str, str](), set[str]()
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
        " WHERE c.constraint_type = 'FOREIGN KEY' AND c.enforced = 'YES'"
    ):
        referred = dialect_name(dialect, other_schema, other)
        references[dialect_name(dialect, schema, table)].add(referred)
        takes_others |= {referred} if on_delete == "CASCADE" else set()
    by_table = {table: frozenset(others) for table, others in references.items()}
    return Relations(tuple(names), interleaved, frozenset(cascades), by_table, frozenset(takes_others))


def depths_of(interleaved: Mapping[str, str], references: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """The depth of each table that has parents or is one: 0 without parents, else one more than the deepest of them.

    Interleaving counts first: a reference back to a child of one's own, as a user's to one of its addresses, does not.
    Where tables refer to each other, one reference is ignored.

    Args:
        interleaved: the table that each is interleaved in.
        references: the tables that each refers to.
    """
    parents: dict[str, set[str]] = defaultdict(set)
    for table, parent in interleaved.items():
        parents[table].add(parent)
    for table, others in sorted(references.items()):
        for other in sorted(others):
            if table not in _reached([other], parents):
                parents[table].add(other)
    depths: dict[str, int] = {}

    def depth(table: str) -> int:
        if table not in depths:
            depths[table] = max((depth(parent) + 1 for parent in parents.get(table, ())), default=0)
        return depths[table]

    for table in {*parents, *(parent for of_table in parents.values() for parent in of_table)}:
        depth(table)
    return depths


def _reached(tables: Iterable[str], parents: Mapping[str, Iterable[str]]) -> set[str]:
    """Tables and all that they are below."""
    found: set[str] = set()
    waiting = list(tables)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += parents.get(one, ())
    return found
