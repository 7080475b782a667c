"""The start of a sink: records its destination, its dead-letter store and where it starts; says what it lacks."""

import logging
import time

from connector import log
from connector.config.destination import destination_of
from connector.config.loading import Config
from connector.config.sink_start import keep_start, starts_by_minute
from connector.config.sinks import sink_type
from connector.core.filters import RecordFilter
from connector.core.timestamps import format_rfc3339
from connector.errors import SpoolInUseError
from connector.spool.backfill.completeness import incomplete_tables, tables_to_fill
from connector.spool.backfill.records import backfills
from connector.spool.consumers import sink_lock
from connector.spool.destinations import keep_destination
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from connector.spool.sink_start import SinkStart
from connector.spool.storage.locations import absolute
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.replayed_spools import (
    check_root,
    count_unreported,
    is_same_root,
    open_dead_letters,
    own_dead_letters,
    record_root,
)

PROGRAM = "spark_sink"
"""The name before the lines of a sink's process."""


def begin(config: Config) -> None:
    """Records the destination of a sink, whose lock is held, its dead-letter store, and where it starts if it is new.

    Raises:
        ConfigurationError: the sink has delivered to another destination, has dead letters at another root, or is to
            start with what is not kept.
        SpoolError: the spool cannot be read or written.
    """
    spool, name = Spool.at(absolute(config.spool.path)), config.sink.name
    keep_destination(spool, name, destination_of(config))
    store = DeadLetters.of(sink_type(config.sink.type), config.sink)
    _keep_root(spool, name, store)
    count_unreported(spool, name, store)
    by_minute, tables = starts_by_minute(config), config.source.tables
    keeps = RecordFilter(tables.include, tables.exclude).keeps
    start = keep_start(spool, name, config.sink.start, by_minute=by_minute, now=time.time_ns(), keeps=keeps)
    if start is not None:
        _say(config, spool, start)


def begin_backfill(config: Config, stream: Spool) -> None:
    """Records the dead-letter store of a backfill's sink, unless that runs and has recorded it.

    Args:
        config: the sink's configuration.
        stream: the change stream's spool.

    Raises:
        ConfigurationError: the sink has dead letters at another root.
        SinkError: it runs, with another root.
        SpoolError: the spool cannot be read or written.
    """
    name, store = config.sink.name, DeadLetters.of(sink_type(config.sink.type), config.sink)
    recorded = report_of(stream, name).dead_letters
    if recorded and is_same_root(recorded, store.root):
        return
    check_root(stream, name, store)
    try:
        with stream.storage.locked(sink_lock(name), "the sink runs"):
            _keep_root(stream, name, store)
    except SpoolInUseError:
        recorded = report_of(stream, name).dead_letters
        if recorded and not is_same_root(recorded, store.root):
            raise SinkError(
                f"sink {name} runs with its dead letters at {recorded}, and sink.dead_letters is {store.root}",
                hint="Name that folder by its whole path, or run this where the sink runs.",
            ) from None


def _keep_root(spool: Spool, name: str, store: DeadLetters) -> None:
    """Records the root of a sink's store; not if an older program has left dead letters that are not there."""
    check_root(spool, name, store)
    recorded = report_of(spool, name).dead_letters
    if not recorded and (left := open_dead_letters(spool, name)) and left > own_dead_letters(spool, store):
        return
    record_root(spool, name, store.root)


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
