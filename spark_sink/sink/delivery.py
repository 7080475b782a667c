"""How a built-in sink delivers: the source whose tasks write, and how a micro-batch of it is run.

The events never enter the JVM: a task gets the names of segments, reads the Arrow files itself, and writes to the
destination; its rows report what it wrote. What differs between destinations is a :class:`Delivery`.
"""

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from connector.config.loading import Config
from connector.config.sinks import SinkConfig
from connector.spool.reading import Spool
from connector.storage.locations import absolute


class Delivery(Protocol):
    """How a sink delivers."""

    @property
    def consumer(self) -> str:
        """The name under which the sink is known to the spool."""

    @property
    def destination(self) -> str:
        """The destination as the line ``ready`` names it."""

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint of the query."""

    @property
    def source(self) -> type[DataSource]:
        """The source whose tasks write."""

    @property
    def options(self) -> Mapping[str, str]:
        """The source's options."""

    def run(self, reports: DataFrame) -> str:
        """Runs a micro-batch: collecting the reports of its tasks makes them write.

        Returns:
            A line for the log, or an empty one.

        Raises:
            SpannerCdcError, PySparkException: it is not done; the next run repeats it.
        """

    def drain(self) -> None:
        """Prepares for the end of the service: epochs that are ready no longer wait to be delivered with later ones.

        Epochs that are sealed after this are for the next run of the sink.

        Raises:
            SpoolError: it cannot be recorded.
        """

    def waiting(self) -> bool:
        """Whether there are epochs that can be delivered and are not recorded as done.

        After :meth:`drain`, of those that were sealed before it.
        """


def checkpoint_of(config: Config, sink: SinkConfig) -> str:
    """The checkpoint of a sink whose type keeps its own at ``spark.checkpoint``; below it if the sink has a name.

    Two sinks must not share one: each would take what the other has delivered for its own.
    """
    root = absolute(config.spark.checkpoint)
    return root if sink.has_default_name else f"{root}/sinks/{sink.name}"


def last_of(spool: Spool, drained: int | None) -> int:
    """The last epoch to deliver: the newest, or, if the sink drains, the newest when that started."""
    latest = spool.latest()
    return latest if drained is None else min(latest, drained)
