"""The conditions of ``source.backfill.where``, as Spanner takes them."""

from connector.check.backfilled_tables import conditions_of
from connector.config.backfill_rules import check_bounded
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError, SpannerCdcError
from connector.reader.change_stream import OpenStream
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery, any_of


def errors_of_conditions(stream: OpenStream, *, reads_tables: bool = False, compares: bool = False) -> list[str]:
    """Asks Spanner to divide each table with a condition, as a backfill does: it plans the query, and reads no row.

    Args:
        stream: the change stream.
        reads_tables: whether the command reads tables, also without ``source.backfill``.
        compares: whether it is ``verify``, which reads tables that backfills exclude, too, and only those with a key.

    Raises:
        UnreachableError: Spanner does not answer.
    """
    errors, rules = list[str](), stream.config.backfill
    tables = {table.table: table for table in stream.kept_tables}
    conditions = {name: where for name, where in rules.where.items() if name in tables} if rules is not None else {}
    try:
        conditions_of(stream)
    except ConfigurationError as error:
        errors += error.errors
    if compares:
        read = [name for name, table in tables.items() if table.primary_keys]
    else:
        read = [name for name in tables if rules is None or not rules.excludes(name)]
    try:
        check_bounded(stream.config.placements, read if reads_tables or rules is not None else (), conditions)
    except ConfigurationError as error:
        errors += error.errors
    if not conditions:
        return errors
    with Snapshot.open(stream.config.address, stream.now // 1000 * 1000) as snapshot:
        found = (_error(snapshot, stream, tables[table], where) for table, where in conditions.items())
        return [*errors, *filter(None, found)]


def _error(snapshot: Snapshot, stream: OpenStream, table: TableSchema, where: str) -> str:
    columns = tuple(column.name for column in table.columns)
    try:
        snapshot.partitions(TableQuery(table.table, columns, any_of(where)), stream.dialect)
    except SpannerCdcError as error:
        return f"source.backfill.where.{table.table}: {error}"
    return ""
