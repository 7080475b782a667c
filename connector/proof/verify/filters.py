"""The rows that backfills have delivered, of tables that they have filtered or left out. Pure."""

from collections.abc import Collection, Iterable

from connector.config.backfill_rules import BackfillRules
from connector.spool.backfill.records import RecordedBackfill


def filters_of(
    known: Collection[RecordedBackfill], tables: Iterable[str], rules: BackfillRules | None
) -> dict[str, tuple[str, ...]]:
    """The conditions of the rows that backfills have delivered, for each table of which they have not delivered all.

    A row that satisfies none of them is at the destination only if it has changed since the stream's start.

    Args:
        known: the backfills; a repair is none. Of one that another continues, only the tables that are done count:
            the other one delivers the rest, perhaps with other conditions.
        tables: the tables.
        rules: of the configuration: a table that they exclude and no backfill has, has no condition and no such row.
    """
    continued = {one.document.continues for one in known}
    conditions: dict[str, set[str]] = {}
    for one in known:
        if not one.document.is_repair:
            left = one.progress.unfinished if one.document.number in continued else ()
            for table in one.document.tables:
                if table.table not in left:
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
