"""Registers the data sources with a Spark session."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.errors import ConfigurationError
from spark_sink.session_options import conf_or_none
from spark_sink.sources.changes.cores import cores_of, with_attributes
from spark_sink.sources.changes.data_source import SpannerChangeStream
from spark_sink.sources.files.source import DatastreamFiles
from spark_sink.sources.snapshot.source import PUSHDOWN, SpannerSnapshot

_IMPORT_TIMEOUT = 60.0


def register(spark: SparkSession) -> None:
    """Registers the formats ``spanner-change-stream``, ``datastream-files`` and ``spanner-snapshot``.

    For the last one, filter pushdown is enabled for Python data sources, unless the session has disabled it.

    Raises:
        ConfigurationError: the Python that a local session starts for its workers has no ``spark_sink``.
    """
    _check_local_python(spark)
    cores = cores_of(spark)
    spark.dataSource.register(with_attributes(SpannerChangeStream, cores=cores))
    spark.dataSource.register(with_attributes(DatastreamFiles, cores=cores))
    spark.dataSource.register(with_attributes(SpannerSnapshot, pushes=_pushes(spark)))


def _check_local_python(spark: SparkSession) -> None:
    """Checks the Python of a local session's workers; a cluster has environments of its own, and Databricks, too."""
    with suppress(PySparkException):  # of Spark Connect, which has no context here
        context = spark.sparkContext
        options = context.getConf()
        is_local = options.get("spark.master", "").startswith("local")
        is_shipped = options.get("spark.submit.pyFiles", "") or context._python_includes  # noqa: SLF001 - of addPyFile
        if is_local and not is_shipped and "DATABRICKS_RUNTIME_VERSION" not in os.environ:
            check_python(context.pythonExec)


def check_python(program: str) -> None:
    """Checks that a Python other than this one, if it is another, has ``spark_sink``.

    Spark starts ``PYSPARK_PYTHON``, or the first ``python3`` on PATH. Its own error of one that lacks a module is a
    trace of 50 lines.

    Args:
        program: a path, or a name on PATH.

    Raises:
        ConfigurationError: it has no ``spark_sink``.
    """
    found, own = shutil.which(program), Path(sys.executable)
    if found is None or Path(found).parent == own.parent:
        return
    with suppress(subprocess.TimeoutExpired, OSError):
        command = [found, "-c", "import spark_sink"]
        done = subprocess.run(command, capture_output=True, timeout=_IMPORT_TIMEOUT, check=False)  # noqa: S603 - as Spark does
        if b"No module named 'spark_sink'" in done.stderr:
            what = f"PYSPARK_PYTHON: Spark starts {found} for its workers, which has no module spark_sink"
            hint = f"set PYSPARK_PYTHON={own} before the Spark session is made, or put {own.parent} first on PATH"
            raise ConfigurationError([f"{what}: {hint}"])


def _pushes(spark: SparkSession) -> bool:
    """True if Spark lets Python data sources take filters: it does, unless the session's configuration says no.

    Where options cannot be set, as in a declarative pipeline, it does if the configuration says yes.
    """
    found = conf_or_none(spark, PUSHDOWN)
    if found is None:
        try:
            spark.conf.set(PUSHDOWN, "true")
        except PySparkException:
            return False
    return found is None or found.lower() == "true"
