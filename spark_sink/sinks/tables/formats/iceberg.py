"""Tables of Iceberg: the last epoch and its identity are properties of the snapshot that has it.

See https://iceberg.apache.org/docs/latest/spark-configuration/#write-options. Snapshots that others make, as compaction
does, lie between those of the sink; the newest of its own counts, among the ancestors of the current one. Where all
have expired, the last epoch is not known, and nothing is left out: Spark's checkpoint says what is next.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import ClassVar

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark_sink.failures import SPARK_ERRORS
from spark_sink.session_options import conf_or_none
from spark_sink.sinks.tables.config import TableOptions
from spark_sink.sinks.tables.formats.jvm import has_jvm, java_classes, java_session
from spark_sink.sinks.tables.formats.remembered import Remembered
from spark_sink.sinks.tables.formats.session import session_options, set_option
from spark_sink.sinks.tables.formats.store import TableStore
from spark_sink.sinks.tables.lake_table import quoted
from spark_sink.sinks.tables.table_faults import is_missing
from spark_sink.sources.changes.offsets import Offset

IDENTITY = ":at"
"""After the name of the property with the number of an epoch: the one with its identity."""

_GC = "gc.enabled"
"""The property that says whether files of a table are ever removed."""

_FEW_METADATA: Mapping[str, str] = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties by which only the files of the last commits' metadata stay: each commit writes all snapshots again."""

_SESSION = "spark.sql.iceberg.snapshot-property"

_WALKED = 50
"""Snapshots that are read one by one; where those since the last known one are more, a query reads them all."""

_APPLIED: Remembered[tuple[str, str], tuple[int, Offset]] = Remembered()
"""A snapshot of each table with the last epoch that it has, by table and name.

A snapshot's id is a random number, and what led to it never changes: this holds whatever becomes of the table.
"""


class IcebergStore(TableStore):
    """Tables of Iceberg; below a folder they are those of a catalog of Hadoop's kind, which needs no service."""

    provider = "iceberg"
    log = "metadata"
    merged: ClassVar[Mapping[str, str]] = {
        "format-version": "2",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
    }

    def __init__(self, spark: SparkSession, options: TableOptions, progress: str) -> None:
        super().__init__(spark, options, progress)
        if options.path is not None:
            self._catalog = catalog_of(options.path)
            for name, value in catalog_options(options.path).items():
                set_option(spark, name, value)

    def target(self, name: str) -> str:
        """By its name in the catalog."""
        if self._options.path is None:
            return self._in_database(name)
        return f"{self._catalog}.{quoted(name)}"

    def created(self) -> Mapping[str, str]:
        """Few files of metadata, unless no file of the table is to be removed."""
        return _FEW_METADATA if self._removes_files() else {}

    def _removes_files(self) -> bool:
        """False if the property of a table that is created says so, or the default of its catalog, as Nessie's does."""
        own = self._options.properties.get(_GC)
        if own is None and self._options.database is not None:
            catalog = f"spark.sql.catalog.{self._options.database.partition('.')[0]}"
            kind = conf_or_none(self._spark, f"{catalog}.type") or conf_or_none(self._spark, f"{catalog}.catalog-impl")
            usual = "false" if "nessie" in (kind or "").lower() else "true"
            own = conf_or_none(self._spark, f"{catalog}.table-default.{_GC}") or usual
        return _is_true(own or "true")

    def refresh(self, target: str) -> None:
        """The catalog caches tables for half a minute, without what others commit meanwhile."""
        self._spark.sql(f"REFRESH TABLE {target}")

    def loaded(self, name: str) -> JavaObject | None:
        """A table as the JVM has it, with its newest metadata; None if there is none."""
        table = self._cached(name)
        if table is not None:
            table.refresh()
        return table

    def _cached(self, name: str) -> JavaObject | None:
        """A table as the catalog has it, which caches tables; None if there is none."""
        find = java_classes(self._spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        try:
            return find(java_session(self._spark), self.target(name))
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return None

    def rewrite_files(self, name: str, options: Mapping[str, str], properties: Mapping[str, str]) -> None:
        """Makes one file of the small ones of a table, by the action of the procedure ``rewrite_data_files``.

        Args:
            name: the table.
            options: of the action.
            properties: of its snapshot.
        """
        action = self._actions().rewriteDataFiles(self.loaded(name))
        for option, value in options.items():
            action = action.option(option, value)
        _with_properties(action, properties).execute()

    def remove_dangling_deletes(self, name: str, properties: Mapping[str, str]) -> None:
        """Removes the files of deletes that name no row any more; its snapshot, if it makes one, has properties.

        The option of the other action makes that snapshot without them.
        """
        _with_properties(self._actions().removeDanglingDeleteFiles(self.loaded(name)), properties).execute()

    def _actions(self) -> JavaObject:
        return java_classes(self._spark).org.apache.iceberg.spark.actions.SparkActions.get(java_session(self._spark))

    def state(self, name: str) -> str | None:
        """The id of the table, its schema, and its properties; None if there is no table, or it has no id.

        The id of a schema is given again where older metadata was restored.
        """
        table = self._newest(name) if has_jvm(self._spark) else None
        if table is None or not (uuid := _uuid(table)):
            return None
        return f"{uuid} {table.schema().toString()} {table.properties().toString()}"

    def applied(self, name: str) -> Offset:
        """The largest epoch in the history of the current snapshot.

        It need not be the newest one's: a compaction commits the epochs that there were when it began. So all snapshots
        count, and those since the last one that this process knows are read.
        """
        table = self._newest(name) if has_jvm(self._spark) else None
        if table is None:
            return self._queried(name)
        self._ids[name] = _uuid(table)
        newest = _current(table)
        if newest is None:
            self._new.add(name)
            return Offset(0)
        key = self.target(name), self._progress
        last = self._walked(table, newest, _APPLIED.get(key))
        if last is None:
            last = self._queried(name)
            after = self._newest(name)
            if after is None or _current(after) != newest:
                return last  # it may be of a later snapshot
        _APPLIED.put(key, (newest, last))
        return last

    def _newest(self, name: str) -> JavaObject | None:
        """A table as the JVM has it, and not as the catalog has cached it; None if there is none.

        A table that was replaced by another of its name is not noticed by what is cached of the former one.
        """
        try:
            self.refresh(self.target(name))
        except AnalysisException as error:
            if not is_missing(error):
                raise
            return None
        return self._cached(name)

    def _walked(self, table: JavaObject, newest: int, known: tuple[int, Offset] | None) -> Offset | None:
        """From the newest snapshot to the known one, or to the first that there is; None if it is too far."""
        epoch, identity = self._properties(Offset(0))
        found, at = [Offset(0)], newest
        for _ in range(_WALKED):
            if known is not None and at == known[0]:
                return max(*found, known[1], key=_order)
            snapshot = table.snapshot(at)
            if snapshot is None:
                return max(found, key=_order)
            summary = snapshot.summary()
            if summary is not None and (value := summary.get(epoch)) is not None:
                found.append(Offset(int(value), at=summary.get(identity) or ""))
            parent = snapshot.parentId()
            if parent is None:
                return max(found, key=_order)
            at = int(parent)
        return None

    def has(self, name: str, epoch: int) -> bool:
        """By the snapshot that the commit has left."""
        table = self._cached(name) if has_jvm(self._spark) else None
        snapshot = table.currentSnapshot() if table is not None else None
        summary = snapshot.summary() if snapshot is not None else None
        return summary is not None and summary.get(self._progress) == str(epoch)

    def _queried(self, name: str) -> Offset:
        """From the table's own history of snapshots."""
        target = self.target(name)
        self.refresh(target)
        epoch, at = (f"s.summary['{name}']" for name in self._properties(Offset(0)))
        found = self._spark.sql(
            f"SELECT max(struct(CAST({epoch} AS BIGINT) AS epoch, {at} AS at)) AS last FROM {target}.history h"
            f" JOIN {target}.snapshots s USING (snapshot_id) WHERE h.is_current_ancestor AND {epoch} IS NOT NULL"
        ).first()
        last = found["last"] if found is not None else None
        return Offset(int(last["epoch"]), at=last["at"] or "") if last is not None else Offset(0)

    def append(self, rows: DataFrame, name: str, first: int, last: Offset) -> None:
        """Appends by the names of the columns."""
        del first
        writer = rows.writeTo(self.target(name))
        for option, value in self._properties(last).items():
            writer = writer.option(f"snapshot-property.{option}", value)
        writer.append()

    @contextmanager
    def committing(self, last: Offset) -> Iterator[None]:
        """By options of the session."""
        options = {f"{_SESSION}.{name}": value for name, value in self._properties(last).items()}
        with session_options(self._spark, options):
            yield

    def _properties(self, last: Offset) -> dict[str, str]:
        """Those of a snapshot; no consumer has a colon in its name."""
        return {self._progress: str(last.epoch), f"{self._progress}{IDENTITY}": last.at}


def removes_files(table: JavaObject) -> bool:
    """False if no file of a table is to be removed: Iceberg then expires no snapshot, and refuses to."""
    return _is_true(table.properties().getOrDefault(_GC, "true"))


def _is_true(value: str) -> bool:
    return value.lower() == "true"


def _with_properties(action: JavaObject, properties: Mapping[str, str]) -> JavaObject:
    """An action whose snapshot has properties."""
    for key, value in properties.items():
        action = action.snapshotProperty(key, value)
    return action


def _uuid(table: JavaObject) -> str:
    """The id of a table; empty if it has none, as one of the first versions of the format may."""
    try:
        return str(table.uuid().toString())
    except SPARK_ERRORS:
        return ""


def _current(table: JavaObject) -> int | None:
    """The id of the current snapshot; a table without any rows yet may have none."""
    snapshot = table.currentSnapshot()
    return int(snapshot.snapshotId()) if snapshot is not None else None


def _order(last: Offset) -> tuple[int, str]:
    return last.epoch, last.at


def catalog_of(path: str) -> str:
    """The name of the catalog of a folder."""
    return f"spanner_cdc_{blake2b(path.encode(), digest_size=6).hexdigest()}"


def catalog_options(path: str) -> dict[str, str]:
    """The options of a session that make the catalog of a folder."""
    name = f"spark.sql.catalog.{catalog_of(path)}"
    return {name: "org.apache.iceberg.spark.SparkCatalog", f"{name}.type": "hadoop", f"{name}.warehouse": path}
