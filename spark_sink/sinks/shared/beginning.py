"""The start of a sink: records its destination and where it starts, and reports what it cannot deliver."""

import logging
import time

from connector import log
from connector.config.destination import destination_of
from connector.config.loading import Config
from connector.config.sink_start import keep_start, starts_by_minute
from connector.core.filters import RecordFilter
from connector.core.timestamps import format_rfc3339
from connector.spool.backfill.completeness import incomplete_tables, tables_to_fill
from connector.spool.backfill.records import backfills
from connector.spool.destinations import keep_destination
from connector.spool.reading import Spool
from connector.spool.sink_start import SinkStart
from connector.spool.storage.locations import absolute

PROGRAM = "spark_sink"
"""The name before the lines of a sink's process."""


def begin(config: Config) -> None:
    """Records the destination of a sink, whose lock is held, and where it starts if it is new.

    Raises:
        ConfigurationError: the sink has delivered to another destination, or is to start with what is not kept.
        SpoolError: the spool cannot be read or written.
    """
    spool, name = Spool.at(absolute(config.spool.path)), config.sink.name
    keep_destination(spool, name, destination_of(config))
    by_minute, tables = starts_by_minute(config), config.source.tables
    keeps = RecordFilter(tables.include, tables.exclude).keeps
    start = keep_start(spool, name, config.sink.start, by_minute=by_minute, now=time.time_ns(), keeps=keeps)
    if start is not None:
        _say(config, spool, start)


def _say(config: Config, spool: Spool, start: SinkStart) -> None:
    """Says what a new sink does not deliver; nothing if a backfill that is not done, or not recorded, delivers it."""
    lacks_epochs, lacks_rows = start.epoch > 0, False
    if config.source.backfill is not None and not lacks_epochs:
        to_fill = tables_to_fill(start, backfills(spool), is_backfilled=True)
        lacks_rows = not to_fill.isdisjoint(incomplete_tables(spool, config.sink.name))
        if not lacks_rows:
            return
    skipped = f", and starts after epoch {start.epoch} of the spool at {spool.path}" if lacks_epochs else ""
    log.say(
        PROGRAM,
        f"sink {config.sink.name} is new{skipped}: it delivers what was committed"
        f" after {format_rfc3339(start.after)}, and its tables are incomplete before that; `spanner-cdc backfill"
        " CONFIG` delivers the rows as they are now",
        action="sink_lacks_epochs" if lacks_epochs else "sink_starts",
        level=logging.WARNING if lacks_epochs or lacks_rows else logging.INFO,
        first_epoch=start.epoch + 1,
    )
