"""The JVMs that tests start: they compile less, and take Spark's classes from an archive if there is one.

Their Python processes import PySpark as it is installed: from Spark's own archive of its Python files, each would
compile what it imports, for most of a second.

A test starts Spark up to a dozen times, and most of a start is loading classes. ``python -m tests.java`` runs a small
job once and archives the classes that it has loaded (https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html):
a start then takes half the time. An archive is of one Java and of one installed Spark; for another one Java ignores it.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ARCHIVE = Path(sys.prefix, "spark-classes.jsa")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Without the last one a JVM that compiles less has room for 48 MB of compiled code, a fifth of what it has otherwise.

Tests of Delta and Iceberg need more: the JVM then discards code and compiles it again, for a third of their time.
"""
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Spark's launcher is a JVM with other classes, and would warn that it cannot use the archive."""

_PATIENCE = 900
"""Seconds for which the archive is waited for: a minute on a quiet machine, several beside other work."""


def java_options() -> str:
    """The value of ``JDK_JAVA_OPTIONS``."""
    return f"{_QUICK} {_SILENT} -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto" if ARCHIVE.exists() else _QUICK


def spark_home() -> str:
    """The value of ``SPARK_HOME``: all of the installed Spark but the archives of its Python files."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(sys.prefix, f"spark-{version('pyspark')}")
    home.mkdir(exist_ok=True)
    for folder in ("bin", "jars"):
        link, installed = home / folder, Path(spec.origin).parent.resolve() / folder
        if not link.exists():  # absent, or of an environment that was reached by a path which is gone
            link.unlink(missing_ok=True)
            with suppress(FileExistsError):
                link.symlink_to(installed)
    return str(home)


def archive() -> None:
    """Makes the archive, or says on stderr that it was not; without it tests take longer, and do the same."""
    made = ARCHIVE.with_suffix(".new")
    made.unlink(missing_ok=True)
    options = f"{_QUICK} {_SILENT} -Xlog:disable -XX:ArchiveClassesAtExit={made}"
    environment = os.environ | {
        "JDK_JAVA_OPTIONS": options,
        "SPARK_HOME": spark_home(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-c", "from tests.java import run_job; run_job()"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"no archive of Spark's classes was made within {_PATIENCE} seconds\n")
        return
    if made.exists():
        made.replace(ARCHIVE)
    else:
        sys.stderr.write(f"no archive of Spark's classes was made: {done.stderr[-500:]}\n")


def run_job() -> None:
    """A batch and a stream, whose classes are archived when the JVM ends."""
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    def collect(rows: DataFrame, _: int) -> None:
        rows.withColumn("text", F.to_json(F.struct("value"))).groupBy("text").count().collect()

    with tempfile.TemporaryDirectory() as folder:
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        spark.range(100).selectExpr("id", "string(id) AS text").write.parquet(f"{folder}/files")
        assert spark.read.parquet(f"{folder}/files").where("id > 5").count() == 94
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        query = stream.writeStream.foreachBatch(collect).option("checkpointLocation", f"{folder}/checkpoint").start()
        while len(query.recentProgress) < 2 and query.isActive:
            query.awaitTermination(1)
        query.stop()
        spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    archive()
