"""The published cuts of a configuration's tables, for the command ``cuts``."""

from collections.abc import Sequence

from connector.config.loading import Config
from spark_sink.sinks.shared.feed import existing_spool
from spark_sink.sinks.shared.published_cut import PublishedCut
from spark_sink.sinks.tables.config import TablesConfig
from spark_sink.sinks.tables.cuts.cut_records import CutRecords
from spark_sink.sinks.tables.formats.started import started


def published_cuts(config: Config, sink: TablesConfig) -> Sequence[PublishedCut]:
    """The published cuts that are kept, oldest first; Spark is started for them.

    Raises:
        SpoolError: there is no spool.
        SinkError: Spark cannot be started, or cannot read the table of cuts.
    """
    spool = existing_spool(config, hint="Set spool.path to the spool of the sink.")
    with started(config.spark, sink) as spark:
        return CutRecords(spark, sink.options, spool.header().spool_id, sink.name, sink.cuts.keep).cuts()
