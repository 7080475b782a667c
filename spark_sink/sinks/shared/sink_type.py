"""A kind of sink that runs in Spark: beside what the command line needs to know, how it delivers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from connector.config.loading import Config
from connector.config.sections import SparkConfig
from connector.config.sinks import SinkConfig, SinkType, sink_type
from spark_sink.errors import SinkError

if TYPE_CHECKING:  # these import PySpark and PyArrow
    from pyspark.sql import SparkSession

    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed
    from spark_sink.sinks.shared.published_cut import PublishedCut

C = TypeVar("C", bound=SinkConfig)


class SparkSinkType(SinkType[C]):
    """A type of sink: a package registers one to be a destination of ``spanner-cdc run``.

    A method imports the libraries that it needs, and no module of the package imports them for the checks.

    Attributes:
        repeats_replay: whether dead letters that are rejected again may be accepted once others are.
        replays_in_order: whether no dead letter of a table may be written before an earlier one: if a file of it is
            changed during a replay, the later ones wait.
        resumes_emptied: whether a replay resumes stopped tables whose dead letters were removed by hand, so that it is
            opened without dead letters, too.
    """

    repeats_replay = False
    replays_in_order = False
    resumes_emptied = False

    @abstractmethod
    def delivery(self, config: Config, sink: C, feed: "Feed") -> "Delivery":
        """The delivery of a feed that the sink's process runs.

        Raises:
            SpannerCdcError: the sink cannot run, for instance because a library is missing.
        """

    def replay_into(self, config: Config, sink: C) -> "AbstractContextManager[Replay]":
        """Opens a replay, which sends dead letters once more; the sink must not run meanwhile.

        Raises:
            SpannerCdcError: when it is entered: the sink runs, or the destination cannot be used.
        """
        raise SinkError(f"sink {sink.type} has no dead letters that can be replayed")

    def published_cuts(self, config: Config, sink: C) -> "Sequence[PublishedCut]":
        """The published cuts of the destination that are kept, oldest first.

        Raises:
            SpannerCdcError: the destination cannot be read, or keeps no cuts.
        """
        raise SinkError(
            f"a destination of type {sink.type} keeps no published cuts",
            hint="`spanner-cdc status CONFIG` has the newest one.",
        )

    def spark_options(self, sink: C, spark: SparkConfig) -> Mapping[str, str]:
        """The options of Spark's session: those of the configuration, and what the sink needs beside them."""
        del sink
        return spark.config

    def check_session(self, sink: C, session: "SparkSession") -> None:
        """Checks the session of the sink's process before anything is read, without asking the destination.

        Raises:
            ConfigurationError: what the sink writes would not be kept.
        """

    def sink_of_backfill(self, sink: C) -> C:
        """The options with which the rows of a backfill are delivered: an epoch is a partition of a table."""
        return sink


def spark_sink_type(config: Config) -> "SparkSinkType[SinkConfig]":
    """The kind of a configuration's sink.

    Raises:
        SinkError: it does not run in Spark.
    """
    kind = sink_type(config.sink.type)
    if not isinstance(kind, SparkSinkType):
        raise SinkError(f"sink.type: {config.sink.type!r} is registered, but cannot run in Spark")
    return kind
