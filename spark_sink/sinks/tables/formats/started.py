"""A session with the library of a format, for commands that run without a sink."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from connector.config.sections import SparkConfig
from spark_sink.errors import SinkError, clear_line
from spark_sink.failures import SPARK_ERRORS
from spark_sink.session import need_java, session, stop_session
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.libraries import spark_options


@contextmanager
def started(spark: SparkConfig, sink: TablesConfig) -> Iterator[SparkSession]:
    """A session, which is stopped in the end.

    Raises:
        SinkError: Java is missing, or Spark cannot be started, or fails meanwhile.
    """
    need_java()
    options = spark_options(sink, spark)
    with ExitStack() as stack, in_words():
        folder = Path(stack.enter_context(TemporaryDirectory()))
        running = session(spark.model_copy(update={"config": options}), folder, verbose=False)
        stack.callback(stop_session, running)
        yield running


@contextmanager
def in_words() -> Iterator[None]:
    """Turns an error of Spark into one with a line of its own words, without a row's values."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise SinkError(clear_line(error)) from None
