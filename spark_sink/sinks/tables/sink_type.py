"""Registers tables of Delta, Iceberg or Parquet as ``sink.type: tables``."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from connector.config.loading import Config
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig
from connector.config.sinks import DestinationObject, Location, WatchedStream
from connector.core.schemas import TableSchema
from connector.envelope.envelope import WHOLE_ROWS
from connector.errors import ConfigurationError
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.omitted_changes import omitted_changes
from spark_sink.sinks.shared.sink_type import SparkSinkType
from spark_sink.sinks.tables import libraries
from spark_sink.sinks.tables.config import FORMER_NAMES, TablesConfig
from spark_sink.sinks.tables.lake_table import colliding_names, taken_names
from spark_sink.sinks.tables.reserved_names import FEED, FORMATS, kept_names
from spark_sink.sources.changes.known_tables import type_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connector.config.replicas import Replica
    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed
    from spark_sink.sinks.shared.published_cut import PublishedCut


class TablesSink(SparkSinkType[TablesConfig]):
    """Typed tables of a lakehouse."""

    former_names = FORMER_NAMES
    is_read_by_spark = True
    replays_in_order = True

    def default_options(self) -> TablesConfig:
        """Anywhere."""
        return TablesConfig()

    def check_options(self, sink: TablesConfig, envelope: EnvelopeConfig) -> None:
        """Checks the options against each other, and that the envelope is Datastream's."""
        try:
            sink.options  # noqa: B018 - checks them
        except ValueError as error:
            raise ValueError(f"sink.{error}") from None
        if envelope.format != "datastream":
            raise ValueError(f"envelope.format: sink tables needs the datastream envelope, not {envelope.format}")

    def destination(self, sink: TablesConfig, source: SourceConfig, envelope: EnvelopeConfig) -> Mapping[str, str]:
        """The tables that are written, and what their rows are."""
        del source, envelope
        return {"sink.format": sink.format, "sink.path": sink.options.where, "sink.mode": sink.mode}

    def locations(self, sink: TablesConfig) -> Sequence[Location]:
        """Dead letters, and the folder of tables, which Spark's own file systems write."""
        tables = [] if sink.path is None else [Location("sink.path", sink.path, by_spark=True)]
        return [*tables, Location("sink.dead_letters", sink.dead_letters)]

    def library_errors(self, sink: TablesConfig, spark: SparkConfig) -> Sequence[str]:
        """The error of an installed Spark that has no library of the format."""
        missing = libraries.missing_library(sink, spark.config)
        return [missing] if missing else []

    def session_errors(self, sink: TablesConfig, spark: SparkConfig) -> Sequence[str]:
        """A database that its catalog does not have, and a catalog that does not answer."""
        if sink.database is None:
            return []
        from spark_sink.sinks.tables.formats.databases import database_errors

        return database_errors(sink.database, sink, spark)

    def objects(
        self, sink: TablesConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> Sequence[DestinationObject]:
        """The tables of the format below the path, or all of the database; Spark is started for it, on this machine.

        The key is the one by which rows are merged.
        """
        del source, stream
        if missing := libraries.missing_library(sink, spark.config):
            raise SinkError(missing)
        from spark_sink.sinks.tables.reading.objects import objects

        return objects(sink, spark)

    def stream_decides(self, sink: TablesConfig) -> bool:
        """Rows are not completed."""
        return True

    def stream_errors(self, sink: TablesConfig, stream: WatchedStream) -> list[str]:
        """Names that collide, and those that the format keeps for itself."""
        errors = [f"sink: {why}" for why in colliding_names([table.table for table in stream.tables])]
        if stream.completes_rows:
            errors.append(
                "source.complete_rows: sink tables does not complete rows: mode merge needs no whole ones, it leaves"
                " a column that was not captured as it is"
            )
        return [*errors, *(f"sink: {why}" for table in stream.tables for why in self._problems(table, sink))]

    def warnings(self, sink: TablesConfig, stream: WatchedStream) -> list[str]:
        """Warnings about columns that rows lack."""
        found: list[str] = []
        if sink.mode != "append":
            found += omitted_changes(stream)
        if sink.mode == "append" and stream.value_capture_type not in WHOLE_ROWS:
            found.append(
                f"sink.mode: change stream {stream.name} captures {stream.value_capture_type}: an appended UPDATE has"
                " only the columns that _present names, the others are NULL"
            )
        return found

    def column_types(self, table: TableSchema) -> Mapping[str, Mapping[str, str]]:
        """In Spark SQL."""
        return {"tables": {column.name: type_name(column.type) for column in table.columns}}

    def table_problems(self, table: TableSchema) -> Sequence[str]:
        """Columns with the name of one that is added, and names that one of the formats keeps for itself."""
        feed = {"format": "delta", "table_properties": {FEED: "true"}}
        sinks = [TablesConfig.model_validate(options) for options in (*({"format": name} for name in FORMATS), feed)]
        return list(dict.fromkeys(why for sink in sinks for why in self._problems(table, sink)))

    def _problems(self, table: TableSchema, sink: TablesConfig) -> list[str]:
        columns = [column.name for column in table.columns]
        taken = taken_names(table.table, columns, sink.mode)
        kept = kept_names(
            table.table,
            columns,
            format=sink.format,
            merges=sink.mode != "append",
            below_path=sink.database is None,
            properties=sink.table_properties,
        )
        return [*([taken] if taken else []), *kept]

    def spark_options(self, sink: TablesConfig, spark: SparkConfig) -> Mapping[str, str]:
        """With the format's library."""
        return libraries.spark_options(sink, spark)

    def check_session(self, sink: TablesConfig, session: "SparkSession") -> None:
        """Spark's own catalog has tables of the format, and keeps them."""
        if sink.database is None:
            return
        from spark_sink.sinks.tables.formats.databases import unfit_catalog

        if unfit := unfit_catalog(session, sink.database, sink.format):
            raise ConfigurationError([unfit])

    def delivery(self, config: Config, sink: TablesConfig, feed: "Feed") -> "Delivery":
        """Merges or appends in Spark."""
        from spark_sink.sinks.tables.delivery import TablesDelivery

        return TablesDelivery(config, sink, feed)

    def replica(
        self, sink: TablesConfig, source: SourceConfig, spool: str, envelope: EnvelopeConfig, spark: SparkConfig
    ) -> "Replica":
        """The tables, read by Spark."""
        del source, envelope
        from spark_sink.sinks.tables.reading.replica import TablesReplica

        return TablesReplica(sink, spool, spark)

    def replay_into(self, config: Config, sink: TablesConfig) -> "AbstractContextManager[Replay]":
        """Merges or appends in Spark."""
        from spark_sink.sinks.tables.replay import replay_into

        return replay_into(config)

    def published_cuts(self, config: Config, sink: TablesConfig) -> "Sequence[PublishedCut]":
        """The rows of the table of cuts, which Spark reads."""
        if sink.format == "parquet":
            return super().published_cuts(config, sink)
        from spark_sink.sinks.tables.cuts.listing import published_cuts

        return published_cuts(config, sink)


SINK = TablesSink(TablesConfig)
