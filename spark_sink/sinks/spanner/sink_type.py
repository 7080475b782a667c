"""Registers the Spanner sink as ``sink.type: spanner``."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from connector.config.address import DatabaseAddress
from connector.config.loading import Config
from connector.config.replicas import DatabaseCopy
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig
from connector.config.sinks import DestinationObject, WatchedStream
from connector.core.column_kinds import type_code
from connector.core.schemas import TableSchema
from connector.envelope.envelope import WHOLE_ROWS
from connector.errors import ConfigurationError, SpannerCdcError
from connector.extras import EXTRAS
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.sinks.shared.omitted_changes import omitted_changes
from spark_sink.sinks.shared.sink_type import SparkSinkType
from spark_sink.sinks.spanner.config import FORMER_NAMES, OWN_TABLE, Applying, SpannerConfig

if TYPE_CHECKING:
    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed
    from spark_sink.sinks.shared.published_cut import PublishedCut


class SpannerSink(SparkSinkType[SpannerConfig]):
    """Another Spanner database."""

    repeats_replay = True
    former_names = FORMER_NAMES
    waits_for_backfill = True
    own_tables = frozenset({OWN_TABLE})

    def default_options(self) -> SpannerConfig:
        """With any database."""
        return SpannerConfig(database="any")

    def check_options(self, sink: SpannerConfig, envelope: EnvelopeConfig) -> None:
        """Checks that the envelope is Datastream's."""
        if envelope.format != "datastream":
            raise ValueError(f"envelope.format: sink spanner needs the datastream envelope, not {envelope.format}")

    def destination(self, sink: SpannerConfig, source: SourceConfig, envelope: EnvelopeConfig) -> Mapping[str, str]:
        """The database; and the mode, because a micro-batch that was started in one cannot be ended in the other.

        Every command that delivers asks for it before it writes.

        Raises:
            ConfigurationError: it is the source itself.
        """
        del envelope
        return {"sink.database": _target(sink, source).path, "sink.mode": sink.mode}

    def extras(self, sink: SpannerConfig) -> Mapping[str, Sequence[str]]:
        """The libraries that call Spanner."""
        return {"reader": EXTRAS["reader"]}

    def stream_decides(self, sink: SpannerConfig) -> bool:
        """Completed rows are refused."""
        return True

    def stream_errors(self, sink: SpannerConfig, stream: WatchedStream) -> list[str]:
        """Completed rows."""
        if not stream.completes_rows:
            return []
        return [
            "source.complete_rows: sink spanner needs no whole rows: it leaves a column that was not captured as it is"
        ]

    def destination_errors(self, sink: SpannerConfig, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
        """The tables and columns that the destination lacks and does not get; and that it is not the source."""
        try:
            target = _target(sink, source)
        except ConfigurationError as error:
            return error.errors
        from spark_sink.sinks.spanner.destination_tables import (
            IN_ORDER,
            circular_references,
            destination_at,
        )
        from spark_sink.sinks.spanner.writing.destination_names import DestinationNames
        from spark_sink.sinks.spanner.writing.planning import WritePlanner

        try:
            found = asyncio.run(destination_at(target))
        except ConfigurationError as error:
            return [f"sink.database: {line}" for line in error.errors]
        except SpannerCdcError as error:
            return [f"sink.database: {error}"]
        applying = Applying.of(sink)
        there = DestinationNames(applying, found.tables)
        tables = [table for table in stream.tables if table.table not in self.own_tables] if stream else []
        keys = {table.table: table.primary_keys for table in tables}
        planner = WritePlanner(applying, found.tables, keys)
        widened = WritePlanner(replace(applying, metadata=False), found.tables, keys)
        errors = []
        for table in tables:
            columns = [column.name for column in table.columns]
            if not sink.creates(table.table):
                why = planner.why_not(table.table, columns)
            elif known := found.tables.get(there.table(table.table)):
                why = widened.why_not(table.table, [name for name in columns if name.lower() in known.names])
            else:
                why = ""
            errors += [f"sink.database: {why}"] if why else []
        if stream is not None and stream.is_backfilled:
            names = {there.table(table.table) for table in tables}
            errors += [f"source.backfill: {why}; {IN_ORDER}" for why in circular_references(found.relations, names)]
        return errors

    def objects(
        self, sink: SpannerConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> Sequence[DestinationObject]:
        """The tables of the database, with the type codes of their columns."""
        del spark, stream
        from spark_sink.sinks.spanner.destination_tables import destination_at

        there = asyncio.run(destination_at(sink.address(source)))
        return [
            DestinationObject(name, dict(sorted(table.types.items())), table.key)
            for name, table in sorted(there.tables.items())
        ]

    def warnings(self, sink: SpannerConfig, stream: WatchedStream) -> list[str]:
        """Warnings about what the stream omits: a stream that captures only changes can update no missing row."""
        omitted = omitted_changes(stream)
        if stream.value_capture_type in WHOLE_ROWS or stream.is_backfilled:
            return omitted
        what = "an UPDATE of a row that the destination lacks becomes a dead letter: begin with a backfill or a copy"
        return [*omitted, f"source.change_stream: {stream.name} captures {stream.value_capture_type}: {what}"]

    def column_types(self, table: TableSchema) -> Mapping[str, Mapping[str, str]]:
        """By their type codes, which both dialects share: a value is written as it is."""
        return {"spanner": {column.name: type_code(column.type) for column in table.columns}}

    def sink_of_backfill(self, sink: SpannerConfig) -> SpannerConfig:
        """By rows: they are of no transaction."""
        return sink.model_copy(update={"mode": "rows"})

    def delivery(self, config: Config, sink: SpannerConfig, feed: "Feed") -> "Delivery":
        """Writes mutations."""
        from spark_sink.sinks.spanner.delivery import SpannerDelivery

        return SpannerDelivery(config, sink, feed)

    def replica(
        self, sink: SpannerConfig, source: SourceConfig, spool: str, envelope: EnvelopeConfig, spark: SparkConfig
    ) -> DatabaseCopy:
        """The database."""
        del envelope, spark
        from spark_sink.sinks.shared.feed import delivered_up_to

        delivered = delivered_up_to(Spool.at(absolute(spool)), sink.name)
        return DatabaseCopy(sink.address(source), delivered, sink.tables, sink.columns)

    def published_cuts(self, config: Config, sink: SpannerConfig) -> "Sequence[PublishedCut]":
        """The newest one: the destination has only the rows of now."""
        from spark_sink.sinks.spanner.connection import key_of
        from spark_sink.sinks.spanner.destination_tables import destination_at
        from spark_sink.sinks.spanner.writing.cut_store import SpannerCutStore

        target = sink.address(config.source)
        there = asyncio.run(destination_at(target))
        try:
            key = key_of(Spool.at(absolute(config.spool.path)), sink.name)
        except FileNotFoundError:
            return []
        own = there.tables.get(OWN_TABLE)
        if own is None or "cut" not in own.columns:
            return []
        return SpannerCutStore(target, sink.transaction_tag, there.dialect.name, key).cuts()

    def replay_into(self, config: Config, sink: SpannerConfig) -> "AbstractContextManager[Replay]":
        """Writes their rows as the source has them."""
        from spark_sink.sinks.spanner.replay import replay_into

        return replay_into(config)


def _target(sink: SpannerConfig, source: SourceConfig) -> DatabaseAddress:
    """The address of the destination.

    Raises:
        ConfigurationError: it is the source itself, or lacks a name of its own.
    """
    target = sink.address(source)
    if target.is_database_of(source.address):
        raise ConfigurationError([f"sink.database: {target.path} is the source itself: name another database"])
    return target


SINK = SpannerSink(SpannerConfig)
