"""Registers the BigQuery sink as ``sink.type: bigquery``."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from connector.config.loading import Config
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig
from connector.config.sinks import DestinationObject, WatchedStream
from connector.core.schemas import TableSchema
from connector.extras import EXTRAS
from spark_sink.sinks.bigquery import checks
from spark_sink.sinks.bigquery.config import FORMER_NAMES, BigQueryConfig, check_options
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD, bigquery_table, table_errors
from spark_sink.sinks.shared.omitted_changes import omitted_changes
from spark_sink.sinks.shared.sink_type import SparkSinkType

if TYPE_CHECKING:
    from connector.config.replicas import Replica
    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed
    from spark_sink.sinks.shared.published_cut import PublishedCut

_DEFAULT_OPTIONS = BigQueryConfig(type="bigquery", dataset="dataset")
_BY_DEFAULT = _DEFAULT_OPTIONS.table_options()


class BigQuerySink(SparkSinkType[BigQueryConfig]):
    """Tables of BigQuery, as Datastream or the Dataflow template writes them."""

    former_names = FORMER_NAMES
    resumes_emptied = True

    def default_options(self) -> BigQueryConfig:
        """With any dataset."""
        return _DEFAULT_OPTIONS

    def check_options(self, sink: BigQueryConfig, envelope: EnvelopeConfig) -> None:
        """Checks the endpoints, and that the envelope is Datastream's."""
        check_options(sink, envelope)

    def destination(self, sink: BigQueryConfig, source: SourceConfig, envelope: EnvelopeConfig) -> Mapping[str, str]:
        """The tables that are written; each is of one mode, and the sink itself refuses another one (TableError)."""
        del envelope
        project = sink.target(source).project
        return {
            "sink.project": project,
            "sink.dataset": sink.dataset,
            "sink.prefix": sink.prefix,
        }

    def extras(self, sink: BigQueryConfig) -> Mapping[str, Sequence[str]]:
        """Google's clients."""
        return {"bigquery": EXTRAS["bigquery"]}

    def stream_decides(self, sink: BigQueryConfig) -> bool:
        """Mode ``merge``, views, and merging into partitions that expire need whole rows."""
        return sink.mode == MERGE or sink.views or (sink.mode == MERGE_LOAD and bool(sink.partition_expiry))

    def column_types(self, table: TableSchema) -> Mapping[str, Mapping[str, str]]:
        """In BigQuery's SQL."""
        made = bigquery_table(table, _BY_DEFAULT)
        return {"bigquery": {column.name: column.field.type_text for column in made.columns}}

    def table_problems(self, table: TableSchema) -> Sequence[str]:
        """The reasons why it cannot be merged."""
        return list(table_errors(bigquery_table(table, _BY_DEFAULT), _BY_DEFAULT))

    def stream_errors(self, sink: BigQueryConfig, stream: WatchedStream) -> list[str]:
        """Tables that BigQuery cannot hold, and partial rows."""
        return checks.stream_errors(sink, stream)

    def destination_errors(self, sink: BigQueryConfig, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
        """Datasets that do not exist."""
        return checks.dataset_errors(sink, source, stream)

    def warnings(self, sink: BigQueryConfig, stream: WatchedStream) -> list[str]:
        """Warnings about columns that merged rows lack."""
        return omitted_changes(stream) if sink.table_options().merges else []

    def objects(
        self, sink: BigQueryConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> Sequence[DestinationObject]:
        """The tables and views of its datasets."""
        del spark
        return checks.objects(sink, source, stream)

    def estimates(
        self, sink: BigQueryConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> list[str]:
        """Calls against quotas, and bytes read to merge."""
        return checks.estimates(sink, source, spark, stream)

    def delivery(self, config: Config, sink: BigQueryConfig, feed: "Feed") -> "Delivery":
        """Writes rows."""
        with checks.with_libraries():
            from spark_sink.sinks.bigquery.delivery import BigQueryDelivery
        return BigQueryDelivery(config, sink, feed)

    def replay_into(self, config: Config, sink: BigQueryConfig) -> "AbstractContextManager[Replay]":
        """Writes rows."""
        with checks.with_libraries():
            from spark_sink.sinks.bigquery.replay import replay_into
        return replay_into(config)

    def published_cuts(self, config: Config, sink: BigQueryConfig) -> "Sequence[PublishedCut]":
        """The newest rows of the table ``_cuts``, at most 10,000."""
        with checks.with_libraries():
            from connector.spool.reading import Spool
            from connector.spool.storage.locations import absolute
            from spark_sink.sinks.bigquery.cuts.store import BigQueryCuts
        spool = Spool.at(absolute(config.spool.path))
        if not spool.latest():
            return []
        return BigQueryCuts(spool, sink.target(config.source), sink.table_options(), sink=sink.name).cuts()

    def replica(
        self, sink: BigQueryConfig, source: SourceConfig, spool: str, envelope: EnvelopeConfig, spark: SparkConfig
    ) -> "Replica":
        """The tables, read by queries."""
        del envelope, spark  # the envelope is always Datastream's
        with checks.with_libraries():
            from spark_sink.sinks.bigquery.replica import BigQueryReplica
        return BigQueryReplica(sink, source, spool)


SINK = BigQuerySink(BigQueryConfig)
