"""The work of a process with a session as the sink has it: functions for `benchmarks.measure.subject`."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spark_sink
from benchmarks.destinations.epochs import TABLE
from benchmarks.spark_queries import standard_error_in
from connector.config import SparkConfig
from spark_sink.session import session
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.formats.iceberg import catalog_of, catalog_options
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_options, spark_version

_MEMORY = {"spark.driver.memory": "1500m"}


def formats() -> dict[str, tuple[str, ...]]:
    """The formats that there is a library for, and the modes of each."""
    there = [name for name, library in LIBRARIES.items() if spark_version() in library.versions]
    return {**dict.fromkeys(there, ("merge", "append")), "parquet": ("append",)}


def open_session(folder: str, file_format: str) -> int:
    """Creates the process's session; the folder must outlive it, and gets the JVM's output."""
    sink = TablesConfig.model_validate({"format": file_format, "path": folder, "mode": "append"})
    own = SparkConfig(master="local[2]", config=_MEMORY)
    options = spark_options(sink, own)
    if file_format == "iceberg":
        options |= catalog_options(f"{folder}/plain")
    with standard_error_in(Path(folder, "jvm.log")):
        made = session(SparkConfig(master=own.master, config=options), Path(folder), verbose=False)
    spark_sink.register(made)
    return 0


def close_session() -> int:
    """Ends it, and its JVM's output."""
    SparkSession.builder.getOrCreate().stop()
    return 0


def merged(spool: str, folder: str, file_format: str, mode: str) -> int:
    """Brings what the spool has into the table by ``merge_into``; returns its events."""
    path = f"{folder}/{mode}"
    found = spark_sink.merge_into(_events(spool), path=path, format=file_format, mode=mode)  # type: ignore[arg-type]
    return sum(found.events.values())


def plain(spool: str, folder: str, file_format: str, creates: bool) -> int:  # noqa: FBT001 - a process's
    """Appends the same typed rows by Spark's own writer; returns how many."""
    rows = spark_sink.typed(_events(spool), TABLE)
    if file_format == "iceberg":
        table = f"{catalog_of(f'{folder}/plain')}.{TABLE}"
        if creates:
            rows.writeTo(table).create()
        else:
            rows.writeTo(table).append()
    else:
        rows.write.format(file_format).mode("append").save(f"{folder}/plain/{TABLE}")
    return 0


def _events(spool: str) -> DataFrame:
    spark = SparkSession.builder.getOrCreate()
    return spark.read.format("spanner-change-stream").option("spool", spool).load()
