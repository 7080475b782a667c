"""What a sink of ours delivers: the source whose tasks write, and what runs a micro-batch of it.

The events never enter the JVM: a task gets the names of segments, reads the Arrow files itself and writes the
destination; its rows tell of what it wrote. What differs between destinations is a :class:`Delivery`.
"""

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from connector.spool.reading import Spool


class Delivery(Protocol):
    """How a sink delivers."""

    @property
    def consumer(self) -> str:
        """The name under which the sink is known to the spool."""

    @property
    def destination(self) -> str:
        """Where events go, for people: what ``ready`` says."""

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint of the query."""

    @property
    def source(self) -> type[DataSource]:
        """The source whose tasks write."""

    @property
    def options(self) -> Mapping[str, str]:
        """The source's options."""

    def run(self, told: DataFrame) -> str:
        """Runs a micro-batch: collecting what its tasks tell makes them write. Returns what to say, or nothing.

        Raises:
            SpannerCdcError, PySparkException: it is not done; the next run does it again.
        """

    def drain(self) -> None:
        """The service is to end: from here on nothing that is ready is held back to be delivered with more.

        What is sealed later is another daemon's, and for its sink to deliver.

        Raises:
            SpoolError: it cannot be noted.
        """

    def waiting(self) -> bool:
        """Whether there are epochs that can be delivered, and which the sink has not recorded as done.

        Once it drains: of those that were sealed before.
        """


def last_of(spool: Spool, drained: int | None) -> int:
    """The last epoch to deliver: the newest, or the newest when the drain began, if it has begun."""
    latest = spool.latest()
    return latest if drained is None else min(latest, drained)
