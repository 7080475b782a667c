"""Finds the changes that a table cannot take, in Spark: each value of a column is cast by ``try_cast``.

A DELETE needs its key alone. Where one of its old values cannot be cast, it is written without them.
"""

from collections.abc import Collection
from functools import reduce
from operator import and_, or_

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

_DAMAGED = f"payload{_SEPARATOR}"
"""Instead of names of columns: the payload lacks the key, or is no JSON object, as one that was edited by hand."""


class Checks:
    """The changes of a table, each with its key and with the columns that cannot be cast.

    Args:
        events: events of a spool.
        table: the table.
    """

    def __init__(self, events: DataFrame, table: LakeTable) -> None:
        self._events = events.where(F.col("object") == F.lit(table.source))
        self._table = table
        self._fails = {name: is_not_castable(_text(name), of_type) for name, of_type in table.types.items()}

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
        return bool(self._checked().where(F.col(_OLD)).limit(1).count())

    def without(self, uuids: Collection[str]) -> DataFrame:
        """The events without some of them, and without old values of a DELETE that cannot be cast."""
        events = self._events
        if uuids:
            left_out = events.sparkSession.createDataFrame(pa.table({"uuid": pa.array(sorted(uuids), pa.string())}))
            events = events.join(F.broadcast(left_out), "uuid", "left_anti")
        keys = [_text(name).alias(name) for name in self._table.primary_key]
        key = F.to_json(F.struct(*keys)) if keys else F.lit("{}")
        payload = F.when(self._has_old_values(), key).otherwise(F.col("payload"))
        texts = events.withColumn(_TEXTS, payload_texts(self._table.types))
        return texts.withColumn("payload", payload).drop(F.col(f"`{_TEXTS}`"))

    def _checked(self) -> DataFrame:
        table = self._table
        whole = self._events.withColumn("payload", F.when(~self._is_damaged(), F.col("payload")))
        texts = whole.withColumn(_TEXTS, payload_texts(table.types))
        keys = [_text(name) for name in table.primary_key] or [F.lit(None).cast("string")]
        named = [
            F.when(fails if name in table.primary_key else fails & ~_is_delete(), F.lit(name))
            for name, fails in self._fails.items()
        ]
        is_lost = F.col("payload").isNull()
        has_all = F.size(F.json_object_keys(F.col("payload"))) >= F.lit(len(table.columns))
        return texts.select(
            "uuid",
            "epoch",
            F.col("change_sequence_number").alias("sequence"),
            F.when(is_lost, F.lit("")).otherwise(F.to_json(F.array(*keys))).alias(_KEY),
            _kind().alias(_KIND),
            ((_kind() != F.lit("UPDATE")) | F.coalesce(has_all, F.lit(False))).alias(_WHOLE),
            F.when(is_lost, F.lit(_DAMAGED)).otherwise(F.concat_ws(_SEPARATOR, *named)).alias(_WHY),
            self._has_old_values().alias(_OLD),
        )

    def _has_old_values(self) -> Column:
        """True for a DELETE with an old value that cannot be cast."""
        others = [fails for name, fails in self._fails.items() if name not in self._table.primary_key]
        return _is_delete() & reduce(or_, (F.coalesce(one, F.lit(False)) for one in others), F.lit(False))

    def _is_damaged(self) -> Column:
        """True if a payload is no JSON object, or has not all columns of the key."""
        names = F.json_object_keys(F.col("payload"))
        has_key = [F.array_contains(names, F.lit(name)) for name in self._table.primary_key]
        return ~F.coalesce(reduce(and_, has_key, names.isNotNull()), F.lit(False))

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
        if columns == _DAMAGED:
            return f"its payload is no JSON object with the key of table {self._table.source}: mend it, or remove it"
        kinds = [f"column {name}: the value is no {self._table.columns[name]}" for name in columns.split(_SEPARATOR)]
        return "; ".join(kinds)


def _text(name: str) -> Column:
    return F.col(f"`{_TEXTS}`").getField(name)


def _kind() -> Column:
    return F.col("source_metadata").getField("mod_type")


def _is_delete() -> Column:
    return _kind() == F.lit("DELETE")
