"""``as_of()``: the tables of a lakehouse as of a published cut. No JVM is needed: Spark Connect will do."""

import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row, SparkSession

from connector.config.values import parse_timestamp
from connector.core.timestamps import parse
from connector.errors import ConfigurationError
from connector.spool.storage.locations import absolute
from spark_sink.errors import CutError, clear_line
from spark_sink.errors import text_of as text_of_error
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sinks.tables.config import Format, TableOptions
from spark_sink.sinks.tables.cuts.cuts_table import text_of
from spark_sink.sinks.tables.cuts.vacuumed import DeltaCommit, is_vacuumed
from spark_sink.sinks.tables.formats.store import TableStore
from spark_sink.sinks.tables.formats.stores import STORES
from spark_sink.sinks.tables.lake_table import CUTS, DELETED
from spark_sink.sinks.tables.table_faults import is_missing

_AT_A_TIME = 4
"""Tables that are looked at at the same time."""

_LOOKED_AT = 1000
"""Cuts among which an earlier one is found: those of a quarter of an hour at least."""

_NO_VERSION = re.compile(
    r"DELTA_VERSION_NOT_FOUND|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_NO_RECREATABLE_HISTORY|TRUNCATED_TRANSACTION_LOG"
    r"|DELTA_MISSING_PART_FILES|LOG_FILE_NOT_FOUND|DELTA_FILE_NOT_FOUND|FILE_NOT_EXIST|FileNotFoundException"
    r"|BEYOND_DELETED_FILE_RETENTION|Cannot time travel Delta table|iceberg\.exceptions\.NotFoundException"
    r"|[Cc]annot find (?:\w+ ){0,3}snapshot"
)
"""Of errors about a version or its files that are not there."""


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
        rows = _at(spark, store, format, name, versions[name], cut)
        return rows.where(f"NOT {DELETED}") if cut["deletes"] == "apply" else rows

    try:
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            tables = dict(zip(versions, threads.map(read, versions), strict=True))
    except CutError as error:
        if format == "iceberg" and error.hint and (earlier := _readable_before(spark, store, cut)):
            error.hint = f"The newest earlier cut that is kept is of {earlier}. {error.hint}"
        raise
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
    """The row of the newest cut at or before a timestamp: one scan, because there may be a hundred small files."""
    target = store.target(CUTS)
    try:
        store.refresh(target)
        published_at = "unix_micros(published_at) AS published_at"
        rows = spark.sql(f"SELECT timestamp, epoch, spool_id, sink, {published_at}, deletes, tables FROM {target}")
    except SPARK_ERRORS as error:
        if not is_missing(error):
            raise CutError(f"the cuts in {target} cannot be read: {clear_line(error)}") from error
        raise CutError(
            f"there is no table {target}: no cut is published here", hint="See path, database and format."
        ) from None
    if sink is not None:
        rows = rows.where(rows["sink"] == sink)
    if spool_id is not None:
        rows = rows.where(rows["spool_id"] == spool_id)
    cut = "struct(epoch, published_at, timestamp, spool_id, sink, deletes, tables)"  # compared in this order
    newest = cut if bound is None else f"CASE WHEN timestamp <= '{bound}' THEN {cut} END"
    by_publisher = rows.selectExpr("sink", "spool_id", f"{newest} AS cut").groupBy("sink", "spool_id")
    publishers = by_publisher.agg({"cut": "max"}).toDF("sink", "spool_id", "newest").limit(10).collect()
    if len(publishers) > 1:
        names = ", ".join(sorted(f"{one['sink']} of spool {one['spool_id']}" for one in publishers))
        raise CutError(f"several sinks publish cuts in {target}: {names}", hint="Give sink, or spool_id.")
    found: Row | None = publishers[0]["newest"] if publishers else None
    if found is None:
        when = f" at or before {bound}" if bound else ""
        raise CutError(f"{target} has no cut{when}", hint="`spanner-cdc cuts CONFIG` lists those that are kept.")
    return found


def _readable_before(spark: SparkSession, store: TableStore, cut: Row) -> str:
    """The timestamp of the newest cut before another one whose snapshots of Iceberg are all there; empty if none is."""
    rows = spark.sql(f"SELECT timestamp, epoch, spool_id, sink, published_at, tables FROM {store.target(CUTS)}")
    rows = rows.where((rows["sink"] == cut["sink"]) & (rows["spool_id"] == cut["spool_id"]))
    rows = rows.where(rows["epoch"] < cut["epoch"]).orderBy("epoch", "published_at", ascending=False)
    kept: dict[str, frozenset[int]] = {}
    seen = set[int]()
    try:
        for one in rows.limit(_LOOKED_AT).collect():
            if one["epoch"] in seen:
                continue  # another record of that epoch counts
            seen.add(one["epoch"])
            versions = {table["name"]: table["version"] for table in one["tables"] if table["version"] is not None}
            for name in versions.keys() - kept.keys():
                snapshots = spark.sql(f"SELECT snapshot_id FROM {store.target(name)}.snapshots").collect()
                kept[name] = frozenset(row["snapshot_id"] for row in snapshots)
            if all(version in kept[name] for name, version in versions.items()):
                return str(one["timestamp"])
    except SPARK_ERRORS:  # a table is dropped: no cut that has it can be read
        return ""
    return ""


def _at(
    spark: SparkSession,
    store: TableStore,
    format: Format,  # noqa: A002 - as in as_of
    name: str,
    version: int,
    cut: Row,
) -> DataFrame:
    """A table as of a version, which is compared with what is kept."""
    target = store.target(name)
    cannot = f"table {name} of the cut at {cut['timestamp']} cannot be read"
    removed = CutError(
        f"{cannot}: version {version} of {target} is vacuumed or expired",
        hint="Choose a later timestamp, and set sink.cuts.keep to the time for which you need cuts.",
    )
    try:
        store.refresh(target)
        rows = spark.sql(f"SELECT * FROM {target} VERSION AS OF {version}")
        rows.schema  # noqa: B018 - Spark Connect analyzes it only now
        if format == "delta":
            commits = _since(spark, target, version)
            if _is_of_another_table(spark, target, version, commits, cut["published_at"] // 1000):
                raise CutError(
                    f"{cannot}: {target} was created again after the cut, so that its version {version} is another one",
                    hint="Choose a timestamp after that.",
                )
            if is_vacuumed([one for one in commits if one.version > version]):
                raise removed
    except SPARK_ERRORS as error:
        if is_missing(error) or _NO_VERSION.search(text_of_error(error)):
            raise removed from error
        raise CutError(f"{cannot}: {clear_line(error)}") from error
    return rows


def _is_of_another_table(
    spark: SparkSession, target: str, version: int, commits: list[DeltaCommit], published_at: int
) -> bool:
    """True if a table of Delta is younger than a cut, and so is its version: both times are Unix milliseconds.

    The time of a commit alone is that of a file, and a copied table has other ones. A table that was replaced is
    younger, too, and keeps its former versions.
    """
    if not any(one.version == version and one.at > published_at for one in commits):
        return False
    (detail,) = spark.sql(f"DESCRIBE DETAIL {target}").selectExpr("unix_millis(createdAt) AS at").collect()
    return detail["at"] is not None and detail["at"] > published_at


def _since(spark: SparkSession, target: str, version: int) -> list[DeltaCommit]:
    """The commits of a table of Delta from a version on."""
    newest = _history(spark, target, 1)
    later = newest[0].version - version if newest else 0
    return _history(spark, target, later + 1) if later > 0 else newest


def _history(spark: SparkSession, target: str, commits: int) -> list[DeltaCommit]:
    rows = (
        spark.sql(f"DESCRIBE HISTORY {target} LIMIT {commits}")
        .selectExpr("version", "unix_millis(timestamp) AS at", "operation", "operationParameters AS parameters")
        .collect()
    )
    return [DeltaCommit(row["version"], row["at"], row["operation"] or "", row["parameters"] or {}) for row in rows]
