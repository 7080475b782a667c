"""Registers the BigQuery sink as ``sink.type: bigquery``, with the checks that are made before it writes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from connector.config.loading import Config
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig
from connector.config.sinks import DestinationObject, WatchedStream
from connector.core.schemas import TableSchema
from connector.envelope.envelope import WHOLE_ROWS
from connector.errors import SpannerCdcError
from connector.extras import EXTRAS, with_extra
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.config import FORMER_NAMES, BigQueryConfig, check_options
from spark_sink.sinks.bigquery.pacing.costs import SinkLoad, notes
from spark_sink.sinks.bigquery.rows.update_pairs import OLD_VALUES
from spark_sink.sinks.bigquery.tables.table import (
    EXPIRY_NEEDS,
    MERGE,
    MERGE_LOAD,
    SCHEMA_IN_DATASET,
    BigQueryTable,
    BigQueryTarget,
    bigquery_table,
    dataset_of,
    errors_of_stream,
    no_whole_rows,
    table_errors,
    view_name,
)
from spark_sink.sinks.shared.omitted_changes import omitted_changes
from spark_sink.sinks.shared.sink_type import SparkSinkType

if TYPE_CHECKING:
    from connector.config.replicas import Replica
    from spark_sink.sinks.bigquery.client import BigQueryClient, ExistingTable
    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed
    from spark_sink.sinks.shared.published_cut import PublishedCut

_DEFAULT_OPTIONS = BigQueryConfig(type="bigquery", dataset="dataset")
_BY_DEFAULT = _DEFAULT_OPTIONS.table_options()

_CONCURRENT_LOOKUPS = 8
"""Tables that are looked up at the same time: each lookup takes a tenth of a second."""

_PATIENCE = 10.0
"""Seconds that BigQuery has to answer."""


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
        """Tables that BigQuery cannot hold, and a value capture type that the mode or its views cannot work with."""
        table_options = sink.table_options(stream.default_schema)
        capture = _capture(stream)
        errors = errors_of_stream(table_options, stream.name, capture, stream.tables)
        if sink.update_pairs and stream.value_capture_type not in OLD_VALUES:
            errors.append(
                f"sink.update_pairs: updates have no old values, because change stream {stream.name} captures"
                f" {stream.value_capture_type}: set its value_capture_type to {' or '.join(OLD_VALUES)}"
            )
        return [*errors, *_errors_of_views(sink, stream, capture)] if sink.views else errors

    def destination_errors(self, sink: BigQueryConfig, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
        """Datasets that BigQuery does not have and for which no location is configured, and unfit tables."""
        target = sink.target(source)
        try:
            client = _client(target)
            missing = [
                f"sink.dataset: dataset {dataset} does not exist in project {target.project}:"
                f" bq mk --location=LOCATION --dataset {target.project}:{dataset}, or set sink.location"
                for dataset in sorted(_datasets(sink, stream))
                if SCHEMA_IN_DATASET not in dataset and not client.dataset_exists(dataset) and not sink.location
            ]
            return missing or list(_errors_of_expiry(client, sink, stream))
        except SpannerCdcError as error:
            return [f"sink: {error}"]

    def warnings(self, sink: BigQueryConfig, stream: WatchedStream) -> list[str]:
        """Warnings about columns that merged rows lack."""
        return omitted_changes(stream) if sink.table_options().merges else []

    def objects(
        self, sink: BigQueryConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> Sequence[DestinationObject]:
        """The tables and views of its datasets, with those that others have created."""
        del spark
        datasets = sorted(dataset for dataset in _datasets(sink, stream) if SCHEMA_IN_DATASET not in dataset)
        client = _client(sink.target(source))
        names = [(dataset, name) for dataset in datasets for name in client.names(dataset)]
        return [
            DestinationObject(
                f"{dataset}.{name}",
                {field.name: field.type_text for field in table.fields.values()},
                table.primary_key,
            )
            for (dataset, name), table in zip(names, _found(client, names), strict=True)
            if table is not None  # else it has just been dropped
        ]

    def estimates(
        self, sink: BigQueryConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> list[str]:
        """The calls and the bytes read in a day; where BigQuery does not say how large its tables are, the reason."""
        tables = _tables(sink, stream)
        sizes: list[int] = []
        unknown = []
        try:
            if sink.table_options().merges:
                found = _found(_client(sink.target(source)), [(table.dataset, table.name) for table in tables])
                sizes = [table.bytes for table in found if table is not None and table.bytes is not None]
        except SpannerCdcError as error:
            unknown.append(f"sizes unknown: {error}")
        return [*notes(SinkLoad(sink.mode, len(tables), spark.trigger_interval, sink.max_staleness, sizes)), *unknown]

    def delivery(self, config: Config, sink: BigQueryConfig, feed: "Feed") -> "Delivery":
        """Writes rows."""
        with _with_libraries():
            from spark_sink.sinks.bigquery.delivery import BigQueryDelivery
        return BigQueryDelivery(config, sink, feed)

    def replay_into(self, config: Config, sink: BigQueryConfig) -> "AbstractContextManager[Replay]":
        """Writes rows."""
        with _with_libraries():
            from spark_sink.sinks.bigquery.replay import replay_into
        return replay_into(config)

    def published_cuts(self, config: Config, sink: BigQueryConfig) -> "Sequence[PublishedCut]":
        """The newest rows of the table ``_cuts``, at most 10,000."""
        with _with_libraries():
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
        with _with_libraries():
            from spark_sink.sinks.bigquery.replica import BigQueryReplica
        return BigQueryReplica(sink, source, spool)


def _with_libraries() -> AbstractContextManager[None]:
    """Surrounds imports of BigQuery's libraries.

    Raises:
        SinkError: when it is left: they are not installed.
    """
    return with_extra("bigquery", "sink.type: bigquery needs", SinkError)


def _client(target: BigQueryTarget) -> "BigQueryClient":
    with _with_libraries():
        from spark_sink.sinks.bigquery.client import BigQueryClient
    return BigQueryClient(target, patience=_PATIENCE)


def _found(client: "BigQueryClient", names: Sequence[tuple[str, str]]) -> "list[ExistingTable | None]":
    """Looks tables up by dataset and name; after an error the others are not looked up any more."""
    threads = ThreadPoolExecutor(_CONCURRENT_LOOKUPS)
    try:
        return list(threads.map(lambda name: client.find(*name), names))
    finally:
        threads.shutdown(cancel_futures=True)


def _tables(sink: BigQueryConfig, stream: WatchedStream) -> list[BigQueryTable]:
    table_options = sink.table_options(stream.default_schema)
    return [bigquery_table(table, table_options) for table in stream.tables]


def _capture(stream: WatchedStream) -> str:
    """The value capture type of the rows that the sink gets."""
    return WHOLE_ROWS[0] if stream.completes_rows else stream.value_capture_type


def _datasets(sink: BigQueryConfig, stream: WatchedStream | None) -> Collection[str]:
    """The datasets of the watched tables and of their cuts; the option itself where no table is known."""
    if not stream or not stream.tables:
        return {sink.dataset}
    own = {dataset_of("", sink.table_options(stream.default_schema))} if stream.default_schema else set()
    return own | {table.dataset for table in _tables(sink, stream)}


def _errors_of_views(sink: BigQueryConfig, stream: WatchedStream, capture: str) -> Iterator[str]:
    """Partial rows, and views that would have the name of a table."""
    if capture not in WHOLE_ROWS:
        yield f"sink.views: {no_whole_rows(stream.name, capture, needed_by='views need')}"
    tables = {(table.dataset, table.name): table for table in _tables(sink, stream)}
    for (dataset, name), table in tables.items():
        other = tables.get((dataset, view_name(name)))
        if other is not None:
            yield (
                f"sink.views: the view of table {table.source} would be {dataset}.{view_name(name)} in BigQuery, as"
                f" table {other.source} is: exclude one of them (source.tables.exclude)"
            )


def _errors_of_expiry(client: "BigQueryClient", sink: BigQueryConfig, stream: WatchedStream | None) -> Iterator[str]:
    """Existing tables whose rows BigQuery deletes, and into which partial rows would be merged."""
    if stream is None or sink.mode != MERGE_LOAD or _capture(stream) in WHOLE_ROWS:
        return
    names = [(table.dataset, table.name) for table in _tables(sink, stream)]
    for (dataset, name), found in zip(names, _found(client, names), strict=True):
        if found is not None and found.expires:
            yield (
                f"sink: table {dataset}.{name} has partitions that expire:"
                f" {no_whole_rows(stream.name, _capture(stream), needed_by=EXPIRY_NEEDS)}, or keep them (ALTER TABLE"
                f" {dataset}.{name} SET OPTIONS (partition_expiration_days = NULL))"
            )


SINK = BigQuerySink(BigQueryConfig)
