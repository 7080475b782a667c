"""Spark sessions of the connector's own processes."""

import gc
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from connector import log
from connector.config.sections import SparkConfig
from spark_sink.errors import SinkError
from spark_sink.failures import SPARK_ERRORS
from spark_sink.sources.python_workers import set_imports_aside


def session(config: SparkConfig, folder: Path, *, verbose: bool) -> SparkSession:
    """A Spark session without Spark's own log, unless ``verbose``; ``folder`` must outlive it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONSAFEPATH"] = "1"  # a user's own folder named connector is not ours
    code = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([code, *filter(None, [os.environ.get("PYTHONPATH")])])
    log.pass_on()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs is raised, too
    quiet_pyspark()
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_not_py4js)
    as_json, _ = log.style()
    log4j = folder / "log4j2.properties"
    layout = _JSON if as_json else _TEXT
    log4j.write_text(_LOG4J.format(level="warn" if verbose else "off", layout=layout), encoding="utf-8")
    defaults = {
        "spark.app.name": "spanner-cdc",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    if not config.master.startswith("local"):
        del defaults["spark.driver.bindAddress"], defaults["spark.driver.host"]
    options = {"spark.master": config.master, **defaults, **config.config}
    _start_without_secrets(options)
    return SparkSession.builder.config(map={**options}).getOrCreate()


def free_unused() -> None:
    """Frees the objects of the JVM that this process names and nothing uses, in some 25 milliseconds.

    py4j's objects are in cycles: one keeps its methods that were called, and each of these keeps the object. So only
    Python's collector of cycles frees them, and with them a plan in the JVM. By itself that looks at old objects once a
    quarter as many have come. Beside all that is imported this takes many micro-batches, and a plan of Delta takes
    megabytes. The first call sets aside what is there then.
    """
    set_imports_aside()
    gc.collect()


_SECRET = re.compile("secret|password|token|credential$|(access|account|private)[-_.]?key", re.IGNORECASE)
"""The names of options with secrets: those that Spark redacts (``spark.redaction.regex``), and more."""


def _start_without_secrets(options: Mapping[str, str]) -> None:
    """Starts the JVM, if an option is secret: PySpark would have each option in its arguments, for all to see."""
    known = {name: value for name, value in options.items() if not _SECRET.search(name)}
    if len(known) < len(options):
        conf = SparkConf().setAll(list(known.items()))
        SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001 - the JVM alone; no public way has options


_WITH_VALUES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's loggers of the errors that it raises: they write the texts, and so a row's values, on stderr themselves."""


def quiet_pyspark() -> None:
    """Has PySpark log none of the errors that it raises."""
    for name in _WITH_VALUES:
        PySparkLogger.getLogger(name).disabled = True  # a logger of another class would raise an error


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """True if a record is not of py4j, which logs some errors under no name."""
    return record.name != "root" or f"{os.sep}py4j{os.sep}" not in record.pathname


_MESSAGE = "%replace{%m}{(?s)(Exception|Error: |Traceback).*}{$1 (omitted)}"
"""Spark repeats the messages of exceptions in its own, and those may hold a row's values."""

_TEXT = f"%d{{yyyy-MM-dd'T'HH:mm:ss}} %p %c{{1}}: {_MESSAGE}"
_JSON = (
    '{"severity":"%level{WARN=WARNING, FATAL=CRITICAL, TRACE=DEBUG}",'
    """"time":"%d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z","message":"%enc{"""
    f"{_MESSAGE}"
    '}{JSON}","action":"spark","logger":"%c{1}"}'
)

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
logger.repl.name = org.apache.spark.repl.Main
logger.repl.level = {level}
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.alwaysWriteExceptions = false
appender.console.layout.pattern = {layout}%n
"""


def need_java() -> None:
    """Checks that Spark can start.

    Raises:
        SinkError: Java is missing.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin/java") if home else None
    if not (java.exists() if java else shutil.which("java")):
        raise SinkError(
            "Java was not found, and Spark needs Java 17",
            hint="Install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME.",
        )


def stop_session(spark: SparkSession) -> None:
    """Stops a session, whose JVM may have died."""
    with suppress(*SPARK_ERRORS, OSError):  # that the JVM has died is reported elsewhere
        spark.stop()
