"""The data source ``spanner-snapshot``: the rows of a table as of a timestamp, read by tasks from Spanner.

The timestamp is chosen once, when the DataFrame is made: each action on it reads the same rows. Spark's Python data
sources know nothing of the columns that a query needs, so the option ``columns`` selects them.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from connector.extras import extras_named
from spark_sink.sources.snapshot.options import SnapshotOptions

if TYPE_CHECKING:
    from spark_sink.sources.snapshot.reader import SnapshotReader

FORMAT = "spanner-snapshot"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's configuration without which a Python data source may not take filters."""


class SpannerSnapshot(DataSource):
    """The rows of a table as of a timestamp, with typed columns.

    What calls Spanner is imported when it is used: a session registers this format also where that is not installed.

    Args:
        options: see :class:`spark_sink.sources.snapshot.options.SnapshotOptions`.

    Raises:
        ConfigurationError: an option is not valid, or the extra ``reader`` is not installed.
        SpannerCdcError: Spanner does not answer, or the database, the table or a column does not exist.
    """

    pushes = False
    """True if filters are pushed to Spanner; Spark refuses a reader that can, unless :data:`PUSHDOWN` is true."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with extras_named(f"the format {FORMAT}"):
            from spark_sink.sources.snapshot.reader import planned
        # Planned here, because Spark copies it for each plan, and may not request the schema.
        self._planned = planned(SnapshotOptions.parse(options))

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The table's columns, all or those of the option ``columns``."""
        return self._planned.schema()

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Reads the table's partitions, which are made when the query is planned."""
        return self._planned.reader(schema, pushes=self.pushes)
