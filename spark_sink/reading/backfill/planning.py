"""The plans of a backfill's tables: how Spanner has divided each into partitions at the backfill's timestamp."""

from collections.abc import Iterable, Sequence

from connector.config.address import DatabaseAddress
from connector.core.dialects import BY_NAME
from connector.core.timestamps import format_rfc3339
from connector.errors import NoSuchTableError
from connector.spanner.snapshot.partitions import Snapshot, SnapshotPartition
from connector.spanner.snapshot.queries import TableQuery, any_of
from connector.spool.backfill.documents import Backfill, BackfillTable, PartitionPlan
from connector.spool.backfill.records import plans, write_plan
from connector.spool.reading import Spool
from spark_sink.run import say


class TablePlans:
    """Makes plans, and keeps them in the backfill's spool.

    Args:
        own: the backfill's spool, whose lock is held.
        document: the backfill.
        address: the database.
        data_boost: whether the partitions are to be read with Data Boost.

    Attributes:
        by_table: the newest plan of each table that has one.
        table: the table that is being divided; empty between calls, and while Spanner is connected.

    Raises:
        SpoolError: from every method, if the spool cannot be read or written.
    """

    def __init__(self, own: Spool, document: Backfill, address: DatabaseAddress, *, data_boost: bool) -> None:
        self._own = own
        self._document = document
        self._address = address
        self._data_boost = data_boost
        self._dialect = BY_NAME[document.dialect]
        self.by_table = plans(own, document.tables)
        self.table = ""

    def make(self, tables: Iterable[int]) -> None:
        """Divides tables, given by their index, into partitions; each plan is durable when this returns.

        A table that did not exist at the timestamp, or has been dropped, has no partitions: that is said. So is a
        column that did not exist then, which rows do not have.

        Raises:
            VersionRetentionError: the timestamp is no longer retained.
            SpannerCdcError: Spanner cannot be reached, or refuses.
        """
        self.table = ""
        with Snapshot.open(self._address, self._document.timestamp) as snapshot:
            for index in tables:
                self.table = self._document.tables[index].table
                self._make(snapshot, index)
        self.table = ""

    def _make(self, snapshot: Snapshot, index: int) -> None:
        table = self._document.tables[index]
        columns = tuple(column.name for column in self._own.schema(table.schema_key).columns)
        try:
            query = TableQuery(table.table, columns, any_of(table.where))
            found = snapshot.partitions(query, self._dialect, data_boost=self._data_boost)
        except NoSuchTableError:
            found = self._of_existing(snapshot, table, columns)
        before = self.by_table.get(table.table)
        plan = PartitionPlan(
            table=table.table,
            plan=before.plan + 1 if before else 1,
            partitions=tuple(partition.to_json().decode() for partition in found),
        )
        write_plan(self._own, index, plan)
        self.by_table[table.table] = plan

    def _of_existing(
        self, snapshot: Snapshot, of_backfill: BackfillTable, columns: Sequence[str]
    ) -> list[SnapshotPartition]:
        """The partitions of a table's columns that existed at the timestamp; none of a table that did not."""
        table, at = of_backfill.table, format_rfc3339(self._document.timestamp)
        try:
            existing = {column.name for column in snapshot.existing(table, columns, self._dialect)}
        except NoSuchTableError:
            say(f"table {table} is left out: it did not exist at {at}, or is dropped", action="table_left_out")
            return []
        if absent := ", ".join(name for name in columns if name not in existing):  # else the condition names another
            say(f"table {table}: its rows are read without {absent}: no such column at {at}", action="columns_left_out")
        query = TableQuery(table, tuple(name for name in columns if name in existing), any_of(of_backfill.where))
        return snapshot.partitions(query, self._dialect, data_boost=self._data_boost)
