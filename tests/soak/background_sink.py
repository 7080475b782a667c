"""The real file sink in a thread of this process; the seeds share one Spark session."""

import os
import sys
import tempfile
import threading
from pathlib import Path
from queue import SimpleQueue

from pyspark.sql import SparkSession

from connector.config import Config, SparkConfig
from spark_sink.run import Events, Sink, SinkEvent, delivery_of
from spark_sink.session import session
from tests.java import java_options
from tests.without_pandas import with_hidden

_HURRY = {
    "JDK_JAVA_OPTIONS": java_options(),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}


def prepare_environment(root: Path) -> None:
    """Sets environment variables for Spark's processes, and for gRPC beside them."""
    for name, value in _HURRY.items():
        os.environ.setdefault(name, value)
    os.environ["PYTHONPATH"] = with_hidden(str(root))
    os.environ["PYSPARK_PYTHON"] = sys.executable


def spark_session(folder: Path) -> SparkSession:
    """Returns a session whose own files are below ``folder``."""
    own = Path(tempfile.mkdtemp(dir=folder, prefix="spark-"))
    memory = {"spark.driver.memory": "768m", "spark.sql.shuffle.partitions": "2"}
    return session(SparkConfig(master="local[2]", config=memory), own, verbose=False)


_TRANSIENT = ("failed to connect back", "CANNOT_OPEN_SOCKET")


class BackgroundSink:
    """A file sink in a thread; it runs until :meth:`finish`, which delivers what is sealed."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self._events: Events = SimpleQueue()
        self._sink = Sink(spark, config, delivery_of(config))
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sink", daemon=True)
        self._thread.start()

    @property
    def has_failed_transiently(self) -> bool:
        """True if it has failed with an error of Spark under load; a restart helps."""
        return self._failure is not None and any(words in str(self._failure) for words in _TRANSIENT)

    def check(self) -> None:
        """Raises AssertionError if it has failed."""
        if self._failure is not None:
            raise AssertionError(f"the sink failed: {self._failure}") from self._failure

    def finish(self, timeout: float) -> None:
        """Delivers what is left, and ends the sink."""
        self._events.put(SinkEvent.INPUT_ENDED)
        self._thread.join(timeout)
        self.check()
        assert not self._thread.is_alive(), "the sink does not end"

    def abandon(self) -> None:
        """Stops the sink at once."""
        self._events.put(SinkEvent.SIGNAL)
        self._thread.join(20.0)

    def _run(self) -> None:
        try:
            self._sink.run(self._events)
        except BaseException as error:  # noqa: BLE001 - check raises it
            self._failure = error
