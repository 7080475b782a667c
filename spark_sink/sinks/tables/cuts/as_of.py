"""``as_of()``: the tables of a lakehouse as of a published cut. No JVM is needed: Spark Connect will do."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from connector.config.values import parse_timestamp
from connector.core.timestamps import parse
from connector.errors import ConfigurationError
from connector.spool.storage.locations import absolute
from spark_sink.errors import CutError
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.cuts.cuts_table import text_of
from spark_sink.sinks.tables.cuts.vacuumed import DeltaCommit, is_vacuumed
from spark_sink.sinks.tables.formats.store import TableStore
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.lake_table import CUTS, DELETED

_AT_A_TIME = 4
"""Tables that are looked at at the same time."""


class TablesAtCut(Mapping[str, DataFrame]):
    """The tables as of a published cut, by their names in the destination.

    A table that was not there yet is absent.

    Attributes:
        timestamp: the commit timestamp of the cut, RFC 3339 with nine digits.
        epoch: the epoch that ends there.
        incomplete: the reason why each table that is incomplete at the cut is so, by its name in the destination.
    """

    def __init__(
        self, tables: Mapping[str, DataFrame], timestamp: str, epoch: int, incomplete: Mapping[str, str]
    ) -> None:
        self._tables = tables
        self.timestamp = timestamp
        self.epoch = epoch
        self.incomplete = incomplete

    def __getitem__(self, name: str) -> DataFrame:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def as_of(
    spark: SparkSession,
    *,
    path: str | os.PathLike[str] | None = None,
    database: str | None = None,
    format: Format = "delta",  # noqa: A002 - Spark's own word for it
    timestamp: str | datetime | None = None,
    sink: str | None = None,
    spool_id: str | None = None,
    views: str | None = None,
) -> TablesAtCut:
    """All tables of a lakehouse as of the newest published cut at or before a timestamp.

    Rows with ``_is_deleted`` are left out where the sink removes deleted rows: it keeps some during a backfill.

    Args:
        spark: a session with the library of the format.
        path: the sink's path; either this or ``database``.
        database: the sink's database.
        format: ``delta`` or ``iceberg``.
        timestamp: RFC 3339, or a datetime with a time zone; None for the newest cut.
        sink: the sink's name; needed where several publish in one place.
        spool_id: the spool's id; needed where sinks of that name deliver several spools to one place.
        views: the prefix of temporary views that are created, one for each table; none by default.

    Returns:
        The tables, the cut's timestamp, and the tables that are incomplete at it.

    Raises:
        ConfigurationError: an argument is invalid.
        CutError: there is no such cut, several sinks publish here, or a version of a table is removed.
    """
    bound = _bound(timestamp)
    store = _store(spark, path, database, format)
    cut = _newest(spark, store, bound, sink, spool_id)
    versions = {one["name"]: one["version"] for one in cut["tables"] if one["version"] is not None}

    def read(name: str) -> DataFrame:
        rows = _at(spark, store, format, name, versions[name], cut["timestamp"])
        return rows.where(f"NOT {DELETED}") if cut["deletes"] == "apply" else rows

    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        tables = dict(zip(versions, threads.map(read, versions), strict=True))
    if views is not None:
        for name, rows in tables.items():
            rows.createOrReplaceTempView(f"{views}{name}")
    incomplete = {one["name"]: one["incomplete"] for one in cut["tables"] if one["incomplete"]}
    return TablesAtCut(tables, cut["timestamp"], cut["epoch"], incomplete)


def _bound(timestamp: str | datetime | None) -> str | None:
    """The text to compare with the column ``timestamp``."""
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        if timestamp.tzinfo is None:
            raise ConfigurationError(["timestamp: a datetime needs a time zone"])
        timestamp = timestamp.astimezone(UTC).isoformat()
    try:
        return text_of(parse(parse_timestamp(timestamp)))
    except ValueError:
        raise ConfigurationError([f"timestamp: {timestamp!r} is not an RFC 3339 timestamp"]) from None


def _store(
    spark: SparkSession,
    path: str | os.PathLike[str] | None,
    database: str | None,
    format: Format,  # noqa: A002 - as in as_of
) -> TableStore:
    if format == "parquet":
        raise ConfigurationError(["format: Parquet files have no versions, and so no cuts: use delta or iceberg"])
    try:
        folder = absolute(os.fspath(path)) if path else None
        options = TableOptions(format, folder, database, "merge", "apply")
    except ValueError as error:
        raise ConfigurationError([str(error)]) from None
    return STORES[format](spark, options, "")


def _newest(spark: SparkSession, store: TableStore, bound: str | None, sink: str | None, spool_id: str | None) -> Row:
    """The row of the newest cut at or before a timestamp."""
    target = store.target(CUTS)
    try:
        store.refresh(target)
        rows = spark.sql(f"SELECT timestamp, epoch, spool_id, sink, published_at, deletes, tables FROM {target}")
    except AnalysisException:
        raise CutError(
            f"there is no table {target}: no cut is published here", hint="See path, database and format."
        ) from None
    if sink is not None:
        rows = rows.where(rows["sink"] == sink)
    if spool_id is not None:
        rows = rows.where(rows["spool_id"] == spool_id)
    publishers = rows.select("sink", "spool_id").distinct().limit(10).collect()
    if len(publishers) > 1:
        names = ", ".join(sorted(f"{one['sink']} of spool {one['spool_id']}" for one in publishers))
        raise CutError(f"several sinks publish cuts in {target}: {names}", hint="Give sink, or spool_id.")
    if bound is not None:
        rows = rows.where(rows["timestamp"] <= bound)
    found = rows.orderBy("epoch", "published_at", ascending=False).limit(1).collect()
    if not found:
        when = f" at or before {bound}" if bound else ""
        raise CutError(f"{target} has no cut{when}", hint="`spanner-cdc cuts CONFIG` lists those that are kept.")
    return found[0]


def _at(
    spark: SparkSession,
    store: TableStore,
    format: Format,  # noqa: A002 - as in as_of
    name: str,
    version: int,
    cut: str,
) -> DataFrame:
    """A table as of a version, which is compared with what is kept."""
    target = store.target(name)
    removed = CutError(
        f"table {name} of the cut at {cut} cannot be read: version {version} of {target} is vacuumed or expired",
        hint="Choose a later timestamp, and set sink.cuts.keep to the time for which you need cuts.",
    )
    try:
        store.refresh(target)
        rows = spark.sql(f"SELECT * FROM {target} VERSION AS OF {version}")
        rows.schema  # noqa: B018 - Spark Connect analyzes it only now
        if format == "delta" and is_vacuumed(_later(spark, target, version)):
            raise removed
    except SPARK_ERRORS as error:
        raise removed from error
    return rows


def _later(spark: SparkSession, target: str, version: int) -> list[DeltaCommit]:
    """The commits of a table of Delta after a version."""
    newest = _history(spark, target, 1)
    missing = newest[0].version - version if newest else 0
    return newest if missing == 1 else _history(spark, target, missing) if missing > 1 else []


def _history(spark: SparkSession, target: str, commits: int) -> list[DeltaCommit]:
    rows = (
        spark.sql(f"DESCRIBE HISTORY {target} LIMIT {commits}")
        .selectExpr("version", "unix_millis(timestamp) AS at", "operation", "operationParameters AS parameters")
        .collect()
    )
    return [DeltaCommit(row["version"], row["at"], row["operation"] or "", row["parameters"] or {}) for row in rows]
