"""The rows that backfills have delivered, of tables that they have filtered or left out. Pure."""

from collections.abc import Iterable

from connector.config.backfill_rules import BackfillRules
from connector.spool.backfill.records import RecordedBackfill


def filters_of(
    known: Iterable[RecordedBackfill], tables: Iterable[str], rules: BackfillRules | None
) -> dict[str, tuple[str, ...]]:
    """The conditions of the rows that backfills have delivered, for each table of which they have not delivered all.

    A row that satisfies none of them is at the destination only if it has changed since the stream's start.

    Args:
        known: the backfills; a repair is none.
        tables: the tables.
        rules: of the configuration: a table that they exclude and no backfill has, has no condition and no such row.
    """
    conditions: dict[str, set[str]] = {}
    for one in known:
        if not one.document.is_repair:
            for table in one.document.tables:
                conditions.setdefault(table.table, set()).add(table.where)
    found: dict[str, tuple[str, ...]] = {}
    for name in tables:
        of_table = conditions.get(name)
        if of_table is None:
            if rules is not None and rules.excludes(name):
                found[name] = ()
        elif "" not in of_table:
            found[name] = tuple(sorted(of_table))
    return found
