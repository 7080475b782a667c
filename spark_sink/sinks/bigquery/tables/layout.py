"""The layout of BigQuery's tables that options decide: what clusters a table, and what holds for its partitions. Pure.

``"*"`` stands for all tables that an option does not name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import orjson

from connector.core.timestamps import SECOND
from spark_sink.sinks.bigquery.tables.partition import ALL_OTHERS, TablePartition, of_table

MOST_CLUSTERING_COLUMNS = 4
CLUSTERED_TYPES = frozenset({"BOOL", "INT64", "NUMERIC", "BIGNUMERIC", "STRING", "DATE", "TIMESTAMP"})
"""The types that BigQuery allows for clustering, and in keys."""


@dataclass(frozen=True, slots=True)
class TableLayouts:
    """The options.

    Attributes:
        partition_by: by table, as :func:`spark_sink.sinks.bigquery.tables.partition.parse` reads it.
        cluster_by: the columns that cluster a table, by their names in the source; without an entry its key does.
        partition_expiry: by table, how long a partition is kept, in nanoseconds.
        require_partition_filter: the tables that queries must filter by their partitions.
    """

    partition_by: Mapping[str, str] = field(default_factory=dict)
    cluster_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partition_expiry: Mapping[str, int] = field(default_factory=dict)
    require_partition_filter: tuple[str, ...] = ()

    def to_text(self) -> str:
        """The options beside ``partition_by`` as text, the same for equal options; empty for none."""
        rules = {
            "cluster_by": dict(self.cluster_by),
            "partition_expiry": dict(self.partition_expiry),
            "require_partition_filter": sorted(self.require_partition_filter),
        }
        return orjson.dumps(rules, option=orjson.OPT_SORT_KEYS).decode() if any(rules.values()) else ""

    @classmethod
    def from_texts(cls, partition_by: str, rules: str) -> "TableLayouts":
        """Reads the text of ``partition_by`` and that of :meth:`to_text`."""
        specs = orjson.loads(partition_by) if partition_by else {}
        return cls(specs, **(orjson.loads(rules) if rules else {}))

    def check(self) -> None:
        """Checks the options against each other.

        Raises:
            ValueError: partitions of a table that has none are asked for.
        """
        for option, tables in (
            ("partition_expiry", self.partition_expiry),
            ("require_partition_filter", self.require_partition_filter),
        ):
            for table in tables:
                if not (self.partition_by if table == ALL_OTHERS else of_table(self.partition_by, table)):
                    raise ValueError(f"sink.{option}: {table!r} has no partitions: name it in sink.partition_by")

    def names(self, table: str) -> bool:
        """True if an option about partitions names the table itself."""
        return any(table in of for of in (self.partition_by, self.partition_expiry, self.require_partition_filter))

    def governed(self, table: str, partition: TablePartition) -> TablePartition:
        """A table's partitioning with what the options ask of its partitions.

        Raises:
            ValueError: BigQuery cannot do it.
        """
        expiry = self.partition_expiry.get(table, self.partition_expiry.get(ALL_OTHERS, 0))
        if expiry and partition.interval:
            raise ValueError("sink.partition_expiry is for partitions of time, and these are ranges of numbers")
        filtered = table in self.require_partition_filter or ALL_OTHERS in self.require_partition_filter
        return replace(partition, expiry=expiry // SECOND, requires_filter=filtered)

    def clustering(self, table: str, types: Mapping[str, tuple[str, str]]) -> tuple[str, ...] | None:
        """The columns that cluster a table, by their names in BigQuery; None if no option decides it.

        Args:
            table: its name in the source.
            types: its columns by their names in the source: name and type in BigQuery, the type empty if repeated.

        Raises:
            ValueError: they cannot; of all other tables only those are clustered that have the columns.
        """
        is_named = table in self.cluster_by
        columns = self.cluster_by.get(table if is_named else ALL_OTHERS)
        if columns is None:
            return None
        for column in columns:
            name, kind = types.get(column, ("", ""))
            if kind not in CLUSTERED_TYPES:
                if not is_named:
                    return None
                why = f"column {column} is {kind or 'repeated'} in BigQuery" if name else f"there is no column {column}"
                raise ValueError(f"table {table} cannot be clustered by {', '.join(columns)}: {why}")
        return tuple(types[column][0] for column in columns)
