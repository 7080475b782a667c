"""Changes that come late into a table: each takes its place among those that the table has, and none is there twice."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.sinks.tables.formats.store import TableStore
from spark_sink.sinks.tables.lake_table import SEQUENCE, LakeTable, quoted
from spark_sink.sources.changes.offsets import Offset

AGAIN = ":rows"
"""After the name under which a table keeps its last epoch, which has no colon: the number of such commits."""

_AT = "rows"
"""Instead of the identity of an epoch."""

_UUID, _EPOCH = "_uuid", "_epoch"


def append_again(store: TableStore, table: LakeTable, typed: DataFrame) -> None:
    """Appends the changes that a table lacks, in one commit. No other process appends changes of the same spool.

    Args:
        store: the tables, with a number of their own for such commits.
        table: the table.
        typed: the changes.
    """
    done = store.applied(table.name).epoch  # a commit of Parquet is completed by this
    epochs = typed.agg(F.min(_EPOCH).alias("first"), F.max(_EPOCH).alias("last")).collect()[0]
    there = store.rows(table.name).where(F.col(_EPOCH).between(epochs["first"], epochs["last"])).select(_UUID)
    lacked = typed.join(there, _UUID, "left_anti").select(*table.all_columns("append"))
    if lacked.limit(1).count():
        last = Offset(done + 1, at=_AT)
        store.append(lacked, table.name, last.epoch, last)
        store.committed(table.name, last)


def newer(typed: DataFrame, rows: DataFrame, table: LakeTable) -> DataFrame:
    """The changes that are newer than the merged rows of their keys.

    Changes of a key are merged to one. If one of them is older than the row, such as one of a backfill, and another is
    newer, the older one would have its part in the row.

    Args:
        typed: the changes.
        rows: those of the table.
        table: the table.
    """
    there = rows.select(*(F.col(quoted(name)) for name in table.primary_key), SEQUENCE).alias("t")
    changes = typed.alias("s")
    is_older = F.col(f"t.{SEQUENCE}") >= F.col(f"s.{SEQUENCE}")
    for name in table.primary_key:
        is_older &= F.col(f"t.{quoted(name)}").eqNullSafe(F.col(f"s.{quoted(name)}"))
    return changes.join(there, is_older, "left_anti")
