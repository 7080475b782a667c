"""The work of a process with a Spark session that copies a table: functions for `benchmarks.measure.subject`."""

import time
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession

from benchmarks.destinations.library import Parts, typed_rows
from benchmarks.measure.reading import NAME
from benchmarks.measure.snapshots import TABLE_SCHEMA, partition
from benchmarks.measure.subject import done, prepared
from benchmarks.replay.rows import TABLE
from benchmarks.spark_queries import SPARKS_FORMATS, standard_error_in
from connector.config import Config, validated
from connector.core.dialects import GOOGLESQL
from connector.spool.backfill.documents import PartitionPlan
from connector.spool.backfill.records import RecordedBackfill, find, record, spool_of, write_plan
from connector.spool.reading import Spool
from connector.spool.writing import initialize
from spark_sink.reading.backfill.job import ReadOptions
from spark_sink.reading.backfill.process import read_and_deliver
from spark_sink.run import side_by_side
from spark_sink.session import session
from spark_sink.sinks.shared.sink_type import spark_sink_type
from spark_sink.sinks.tables.formats.iceberg import catalog_of, catalog_options

Sink = dict[str, object]
"""The section ``sink`` of a configuration."""

CORES = 2

_MICROSECOND = 1_000
"""Nanoseconds."""

_SPARK = {"spark.driver.memory": "1500m"}


def open_session(folder: str, sink: Sink) -> int:
    """Creates the process's session as the sink has it; the folder must outlive it, and gets the JVM's output."""
    config = side_by_side(_config(folder, "", sink))
    options = dict(spark_sink_type(config).spark_options(config.sink, config.spark))
    with standard_error_in(Path(folder, "jvm.log")):
        session(config.spark.model_copy(update={"config": options}), Path(folder), verbose=False)
    return 0


def close_session() -> int:
    """Ends it, and its JVM's output."""
    SparkSession.builder.getOrCreate().stop()
    return 0


def by_connector(parts: Parts, folder: str, sink: Sink) -> int:
    """Copies the table by a backfill, whose partitions are planned before the measurement; returns its rows."""
    config = _config(folder, parts.host, sink)
    found = _planned(Spool.at(config.spool.path), parts)
    spark, options = SparkSession.builder.getOrCreate(), ReadOptions("medium", data_boost=False)
    prepared()
    with redirect_stderr(StringIO()) as log:
        read_and_deliver(spark, config, found, options, SimpleQueue())
    done()
    after = find(Spool.at(config.spool.path), 1)
    assert after is not None
    assert after.progress.is_done, log.getvalue()
    return sum(table.rows for table in after.progress.tables)


def to_sparks_files(parts: Parts, folder: str, file_format: str) -> int:
    """Copies it into files by Spark's own writer of that format; they are not compressed, like the sink's."""
    writer = typed_rows(parts).write.format(SPARKS_FORMATS[file_format]).option("compression", "uncompressed")
    writer.save(folder)
    return parts.total


def to_sparks_table(parts: Parts, folder: str, file_format: str) -> int:
    """Copies it into a table by Spark's own writer of that format."""
    rows = typed_rows(parts)
    if file_format == "iceberg":
        spark = SparkSession.builder.getOrCreate()
        for name, value in catalog_options(folder).items():
            spark.conf.set(name, value)
        rows.writeTo(f"{catalog_of(folder)}.{TABLE}").create()
    else:
        rows.write.format(file_format).save(f"{folder}/{TABLE}")
    return parts.total


def rows_of_table(folder: str, file_format: str) -> int:
    """Returns the rows of the table in a folder."""
    spark = SparkSession.builder.getOrCreate()
    if file_format == "iceberg":
        return spark.table(f"{catalog_of(folder)}.{TABLE}").count()
    return spark.read.format(file_format).load(f"{folder}/{TABLE}").count()


def _config(folder: str, host: str, sink: Sink) -> Config:
    return validated(
        {
            "source": {**NAME.model_dump(), **({"emulator_host": host} if host else {})},
            "spool": {"path": f"{folder}/spool"},
            "sink": {**sink, "dead_letters": f"{folder}/dead-letters"},
            "spark": {"master": f"local[{CORES}]", "checkpoint": f"{folder}/checkpoint", "config": _SPARK},
        }
    )


def _planned(spool: Spool, parts: Parts) -> RecordedBackfill:
    """Records a backfill of the table as of now, with its partitions: the replay divides none."""
    now = time.time_ns() // _MICROSECOND * _MICROSECOND
    header = initialize(spool, NAME, now + 1, "now", [TABLE_SCHEMA], default_schema=NAME.database)
    document = record(
        spool, header, [TABLE_SCHEMA], timestamp=lambda: now, why="start", dialect=GOOGLESQL.name, now=now
    )
    found = tuple(partition(parts.sql(part)).to_json().decode() for part in range(parts.count))
    write_plan(spool_of(spool, document.number), 0, PartitionPlan(table=TABLE, plan=1, partitions=found))
    planned = find(spool, document.number)
    assert planned is not None
    return planned
