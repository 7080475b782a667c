"""The conditions of ``source.backfill.where``, as Spanner takes them."""

from connector.check.backfilled_tables import conditions_of
from connector.config.backfill_rules import check_bounded
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError, SpannerCdcError
from connector.reader.change_stream import OpenStream
from connector.spanner.snapshot.partitions import Snapshot
from connector.spanner.snapshot.queries import TableQuery, any_of


def errors_of_conditions(stream: OpenStream, *, reads_tables: bool = False) -> list[str]:
    """Asks Spanner to divide each table with a condition, as a backfill does: it plans the query, and reads no row.

    Args:
        stream: the change stream.
        reads_tables: whether the command reads tables, also without ``source.backfill``.

    Raises:
        UnreachableError: Spanner does not answer.
    """
    try:
        conditions, rules = conditions_of(stream), stream.config.backfill
        if reads_tables or rules is not None:
            names = (table.table for table in stream.kept_tables)
            read = [name for name in names if rules is None or not rules.excludes(name)]
            check_bounded(stream.config.placements, read, conditions)
    except ConfigurationError as error:
        return error.errors
    if not conditions:
        return []
    tables = {table.table: table for table in stream.stream.tables}
    with Snapshot.open(stream.config.address, stream.now // 1000 * 1000) as snapshot:
        found = (_error(snapshot, stream, tables[table], where) for table, where in conditions.items())
        return [error for error in found if error]


def _error(snapshot: Snapshot, stream: OpenStream, table: TableSchema, where: str) -> str:
    columns = tuple(column.name for column in table.columns)
    try:
        snapshot.partitions(TableQuery(table.table, columns, any_of(where)), stream.dialect)
    except SpannerCdcError as error:
        return f"source.backfill.where.{table.table}: {error}"
    return ""
