"""The job of a window: tasks read its shares, Spark sorts what they read, tasks write segments, the driver collects.

Only the DataFrame API is used, so that it also runs with Spark Connect. The rows are moved by Spark's shuffle, and
nothing but reports reaches the driver.
"""

import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from connector.core.epoch import IncompleteTransaction
from connector.core.timestamps import format_rfc3339
from connector.core.windows import Share, ShareReport, Window
from connector.errors import UnreachableError
from connector.log import Log
from connector.spool.manifest import SegmentFile
from spark_sink.failures import SPARK_ERRORS, meaning_of
from spark_sink.reading.windows.rows import ORDER
from spark_sink.reading.windows.segments import (
    INCOMPLETE,
    RESULTS,
    SCHEMAS,
    SEGMENT,
    ChangedSchemas,
    WriterSetup,
    writer_of,
)
from spark_sink.reading.windows.shares import FORMAT, SETUP, TaskError, WindowShares
from spark_sink.reading.windows.task import WindowSetup

_ATTEMPTS = 3
"""Times that a window is tried before an error of Spark is raised."""

_BATCH_BYTES = 16 * 1024 * 1024
"""Bytes of rows that Spark passes to a writer at once, at most."""

_BATCH_ROWS = 10_000

_PAUSE = 5.0
"""Seconds before a window is tried again because Spanner could not be reached."""

_POOL = "windows"
"""The scheduler's pool of the windows; a sink's jobs are in another, so that neither waits for the other."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """The reports of a window's tasks; nothing of them is sealed.

    Attributes:
        reports: of the shares.
        files: the segments, in the order of their records.
        tables: mods by table.
        mod_types: mods by type.
        incomplete: transactions without all of their records.
        changed: the schemas of each writer that met a new table or column.
    """

    reports: list[ShareReport] = field(default_factory=list)
    files: list[SegmentFile] = field(default_factory=list)
    tables: Counter[str] = field(default_factory=Counter)
    mod_types: Counter[str] = field(default_factory=Counter)
    incomplete: list[IncompleteTransaction] = field(default_factory=list)
    changed: list[ChangedSchemas] = field(default_factory=list)


class WindowJob:
    """Runs the jobs of windows, one at a time.

    Args:
        spark: a session.
        setup: what the tasks that read share.
    """

    def __init__(self, spark: SparkSession, setup: WindowSetup) -> None:
        self._spark = spark
        self._setup = setup
        self._tag = f"spanner-cdc-{secrets.token_hex(8)}"
        self.cancelled = threading.Event()
        """Set by :meth:`cancel`."""
        spark.dataSource.register(WindowShares)
        for name, value in (("maxBytesPerBatch", _BATCH_BYTES), ("maxRecordsPerBatch", _BATCH_ROWS)):
            spark.conf.set(f"spark.sql.execution.arrow.{name}", str(value))

    def cancel(self) -> None:
        """Cancels the job that runs, and any later one; may be called from any thread."""
        self.cancelled.set()
        with suppress(Exception):  # the session may have ended
            try:
                # A session knows only the tags of the thread that asks, but the context all.
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
            except PySparkException:  # Spark Connect has no context, and a session that knows all tags
                self._spark.interruptTag(self._tag)

    def run(self, window: Window, shares: Sequence[Share], writers: WriterSetup, *, slices: int) -> ReadWindow | None:
        """Reads a window and writes its segments, durably; None if it was cancelled.

        Raises:
            SpannerCdcError: that of a task.
            PySparkException: of Spark, after several attempts, as is an UnreachableError.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                rows = self._rows(window, shares, writers, slices)
                return None if self.cancelled.is_set() and not rows else read_window(rows)
            except SPARK_ERRORS as error:
                if self.cancelled.is_set():
                    return None
                if not meaning_of(error).is_worth_another_attempt or attempt == _ATTEMPTS:
                    raise
                _log.warning("a window is read again after an error of Spark", epoch=window.epoch)
            except UnreachableError as error:
                if attempt == _ATTEMPTS:
                    raise
                _log.warning("a window is read again: Spanner was not reached", epoch=window.epoch, error=str(error))
                self.cancelled.wait(_PAUSE)
        raise AssertionError

    def _rows(self, window: Window, shares: Sequence[Share], writers: WriterSetup, slices: int) -> list[Row]:
        if self.cancelled.is_set():
            return []
        span = f"({format_rfc3339(window.low)}, {format_rfc3339(window.high)}]"
        self._describe(f"spanner-cdc epoch {window.epoch}: {span}, {len(shares)} shares, {slices} slices")
        options = {
            SETUP: self._setup.to_json(),
            "window": window.to_json(),
            "shares": msgspec.json.encode([share.to_json() for share in shares]).decode(),
            "slices": str(slices),
        }
        rows = self._spark.read.format(FORMAT).options(**options)
        self._add_tag()
        try:
            ordered = rows.load().repartitionById(slices, "slice").sortWithinPartitions(*ORDER)
            return _written(ordered, writers).collect()
        finally:
            self._remove_tag()

    def _add_tag(self) -> None:
        try:
            self._spark.sparkContext.addJobTag(self._tag)
        except PySparkException:
            self._spark.addTag(self._tag)

    def _remove_tag(self) -> None:
        try:
            self._spark.sparkContext.removeJobTag(self._tag)
        except PySparkException:
            self._spark.removeTag(self._tag)

    def _describe(self, text: str) -> None:
        with suppress(PySparkException):  # Spark Connect has no context
            self._spark.sparkContext.setJobDescription(text)
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)


def _written(ordered: DataFrame, writers: WriterSetup) -> DataFrame:
    """The results of writers of these rows.

    ``mapInArrow`` uses no pandas, but PySpark refuses it without; the connector does not make its users install that
    for nothing. Spark Connect needs pandas itself, so that it never comes to the second way.
    """
    write, schema = writer_of(writers), from_arrow_schema(RESULTS)
    try:
        return ordered.mapInArrow(write, schema)
    except ImportError:
        function = UserDefinedFunction(write, schema, "write", evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        columns: Any = function(*(ordered[name] for name in ordered.columns))
        frame: Any = ordered
        written = frame._jdf.mapInArrow(columns._jc, False, None)  # noqa: SLF001 - what mapInArrow itself calls
        return ClassicFrame(written, ordered.sparkSession)


def read_window(rows: Sequence[Row]) -> ReadWindow:
    """Reads the report of a window from a job's rows.

    Raises:
        SpannerCdcError: that of a task.
    """
    found = ReadWindow()
    for row in sorted(rows, key=lambda row: (row.slice, row.part)):
        match row.kind:
            case "error":
                raise msgspec.json.decode(row.text, type=TaskError).rebuilt()
            case "report":
                found.reports.append(ShareReport.from_json(row.text))
            case kind if kind == SCHEMAS:
                found.changed.append(msgspec.json.decode(row.text, type=ChangedSchemas))
            case kind if kind == INCOMPLETE:
                found.incomplete.append(IncompleteTransaction(*orjson.loads(row.text)))
            case kind if kind == SEGMENT:
                node = orjson.loads(row.text)
                found.files.append(SegmentFile.model_validate(node["file"]))
                found.tables.update(node["tables"])
                found.mod_types.update(node["types"])
    return found
