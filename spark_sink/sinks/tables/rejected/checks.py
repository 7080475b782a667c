"""Finds the changes that a table cannot take, in Spark: each value of a column is cast by ``try_cast``.

In modes merge and history a DELETE needs its key alone: its old values are not written.
"""

from collections.abc import Collection

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.sinks.tables.lake_table import LakeTable
from spark_sink.sinks.tables.rejected.changes import Change
from spark_sink.sources.changes.typed import is_not_castable, payload_texts

_KEY, _KIND, _WHOLE, _WHY, _OLD = "key", "kind", "is_whole", "why", "old"
_TEXTS = "spanner-cdc.texts"
_SEPARATOR = "\n"
"""Between names of columns."""


class Checks:
    """The changes of a table, each with its key and with the columns that cannot be cast.

    Args:
        events: events of a spool.
        table: the table.
        mode: that of the tables.
    """

    def __init__(self, events: DataFrame, table: LakeTable, mode: str) -> None:
        self._events = events.where(F.col("object") == F.lit(table.source))
        self._table = table
        self._mode = mode
        self._keys_alone = mode != "append"

    def rejected(self, most: int) -> list[Change]:
        """The changes that cannot be cast: at most so many."""
        rows = self._checked().where(F.col(_WHY) != F.lit(""))
        return [self._change(row) for row in rows.limit(most).collect()]

    def of_keys(self, keys: Collection[str], most: int) -> list[Change]:
        """The changes of rows with these keys: at most so many."""
        wanted = self._events.sparkSession.createDataFrame(pa.table({_KEY: pa.array(sorted(keys), pa.string())}))
        rows = self._checked().join(F.broadcast(wanted), _KEY, "left_semi")
        return [self._change(row) for row in rows.limit(most).collect()]

    def all(self) -> list[Change]:
        """All changes."""
        return [self._change(row) for row in self._checked().collect()]

    def has_old_values(self) -> bool:
        """True if the old values of a DELETE cannot be cast, and are not needed."""
        return self._keys_alone and bool(self._checked().where(F.col(_OLD)).limit(1).count())

    def without(self, uuids: Collection[str]) -> DataFrame:
        """The events without some of them, and without the old values that a DELETE does not need."""
        events = self._events
        if uuids:
            left_out = events.sparkSession.createDataFrame(pa.table({"uuid": pa.array(sorted(uuids), pa.string())}))
            events = events.join(F.broadcast(left_out), "uuid", "left_anti")
        if not self._keys_alone:
            return events
        texts = payload_texts({name: self._table.types[name] for name in self._table.primary_key})
        keys = F.to_json(texts) if self._table.primary_key else F.lit("{}")
        return events.withColumn("payload", F.when(_is_delete(), keys).otherwise(F.col("payload")))

    def _checked(self) -> DataFrame:
        table = self._table
        texts = self._events.withColumn(_TEXTS, payload_texts(table.types))
        keys = [_text(name) for name in table.primary_key]
        fails = {name: is_not_castable(_text(name), of_type) for name, of_type in table.types.items()}
        others = [one for name, one in fails.items() if name not in table.primary_key]
        none = F.lit(None).cast("string")
        why = F.concat_ws(
            _SEPARATOR,
            *(
                F.when(one if name in table.primary_key or not self._keys_alone else one & ~_is_delete(), F.lit(name))
                for name, one in fails.items()
            ),
        )
        has_all = F.size(F.json_object_keys(F.col("payload"))) >= F.lit(len(table.columns))
        old = [F.coalesce(one, F.lit(False)) for one in others]
        return texts.select(
            "uuid",
            "epoch",
            F.col("change_sequence_number").alias("sequence"),
            F.to_json(F.array(*keys) if keys else F.array(none)).alias(_KEY),
            _kind().alias(_KIND),
            ((_kind() != F.lit("UPDATE")) | has_all).alias(_WHOLE),
            why.alias(_WHY),
            (_is_delete() & F.greatest(*old, F.lit(False), F.lit(False))).alias(_OLD),
        )

    def _change(self, row: Row) -> Change:
        return Change(
            row["uuid"],
            row["epoch"],
            row["sequence"],
            row[_KEY],
            row[_KIND],
            row[_WHOLE],
            self._reason(row[_WHY]),
        )

    def _reason(self, columns: str) -> str:
        """The reason of a rejected change, without its values."""
        if not columns:
            return ""
        kinds = [f"column {name}: the value is no {self._table.columns[name]}" for name in columns.split(_SEPARATOR)]
        return "; ".join(kinds)


def _text(name: str) -> Column:
    return F.col(f"`{_TEXTS}`").getField(name)


def _kind() -> Column:
    return F.col("source_metadata").getField("mod_type")


def _is_delete() -> Column:
    return _kind() == F.lit("DELETE")
