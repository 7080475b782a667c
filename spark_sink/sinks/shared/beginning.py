"""The start of a sink: records its destination, and reports what it cannot deliver."""

import logging

from connector import log
from connector.config.destination import destination_of
from connector.config.loading import Config
from connector.core.timestamps import format_rfc3339
from connector.spool.consumers import find
from connector.spool.destinations import keep_destination
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute

PROGRAM = "spark_sink"
"""The name before the lines of a sink's process."""


def begin(config: Config) -> None:
    """Records the destination of a sink, whose lock is held; warns if a new sink misses the spool's first epochs.

    Raises:
        ConfigurationError: the sink has delivered to another destination.
        SpoolError: the spool cannot be read or written.
    """
    spool, name = Spool.at(absolute(config.spool.path)), config.sink.name
    is_new = find(spool, name) is None
    keep_destination(spool, name, destination_of(config))
    first = spool.floor()
    if is_new and first > 1:
        since = next(spool.manifests(first, first)).watermark_low
        log.say(
            PROGRAM,
            f"warning: sink {name} is new, and epochs 1 to {first - 1} of the spool at {spool.path} are deleted. It"
            f" delivers what was committed after {format_rfc3339(since)}; `spanner-cdc backfill CONFIG` delivers the"
            " rows as they are now",
            action="sink_lacks_epochs",
            level=logging.WARNING,
            first_epoch=first,
        )
