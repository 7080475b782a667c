"""The published cuts of a configuration's tables, for the command ``cuts``."""

from collections.abc import Sequence

from connector.config.loading import Config
from connector.errors import SpoolError
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
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
    spool = Spool.at(absolute(config.spool.path))
    try:
        spool.check_source(config.source.name)
    except FileNotFoundError:
        raise SpoolError(
            f"there is no spool at {spool.path}", hint="Set spool.path to the spool of the sink."
        ) from None
    with started(config, sink) as spark:
        return CutRecords(spark, sink.options, spool.header().spool_id, sink.name, sink.cuts.keep).cuts()
