"""The checks that ``spanner-cdc check`` and ``run`` make of a BigQuery sink before it writes."""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from connector.config.sections import SourceConfig, SparkConfig
from connector.config.sinks import DestinationObject, WatchedStream
from connector.envelope.envelope import WHOLE_ROWS
from connector.errors import SpannerCdcError
from connector.extras import with_extra
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.pacing.costs import SinkLoad, notes
from spark_sink.sinks.bigquery.rows.update_pairs import OLD_VALUES
from spark_sink.sinks.bigquery.tables.table import (
    EXPIRY_NEEDS,
    MERGE_LOAD,
    SCHEMA_IN_DATASET,
    BigQueryTable,
    BigQueryTarget,
    bigquery_table,
    dataset_of,
    errors_of_stream,
    no_whole_rows,
    view_name,
)

if TYPE_CHECKING:
    from spark_sink.sinks.bigquery.client import BigQueryClient, ExistingTable

_CONCURRENT_LOOKUPS = 8
"""Tables that are looked up at the same time: each lookup takes a tenth of a second."""

_PATIENCE = 10.0
"""Seconds that BigQuery has to answer."""


def with_libraries() -> AbstractContextManager[None]:
    """Surrounds imports of BigQuery's libraries.

    Raises:
        SinkError: when it is left: they are not installed.
    """
    return with_extra("bigquery", "sink.type: bigquery needs", SinkError)


def stream_errors(sink: BigQueryConfig, stream: WatchedStream) -> list[str]:
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


def _capture(stream: WatchedStream) -> str:
    """The value capture type of the rows that the sink gets."""
    return WHOLE_ROWS[0] if stream.completes_rows else stream.value_capture_type


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


def dataset_errors(sink: BigQueryConfig, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
    """Asks BigQuery for datasets that do not exist and for which no location is configured, and for unfit tables."""
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


def _datasets(sink: BigQueryConfig, stream: WatchedStream | None) -> Collection[str]:
    """The datasets of the watched tables and of their cuts; the option itself where no table is known."""
    if not stream or not stream.tables:
        return {sink.dataset}
    own = {dataset_of("", sink.table_options(stream.default_schema))} if stream.default_schema else set()
    return own | {table.dataset for table in _tables(sink, stream)}


def objects(sink: BigQueryConfig, source: SourceConfig, stream: WatchedStream) -> list[DestinationObject]:
    """The tables and views of the sink's datasets, with those that others have created.

    Raises:
        SinkError: BigQuery does not answer, or refuses.
    """
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


def _client(target: BigQueryTarget) -> "BigQueryClient":
    with with_libraries():
        from spark_sink.sinks.bigquery.client import BigQueryClient
    return BigQueryClient(target, patience=_PATIENCE)


def _found(client: "BigQueryClient", names: Sequence[tuple[str, str]]) -> "list[ExistingTable | None]":
    """Looks tables up by dataset and name; after an error the others are not looked up any more."""
    threads = ThreadPoolExecutor(_CONCURRENT_LOOKUPS)
    try:
        return list(threads.map(lambda name: client.find(*name), names))
    finally:
        threads.shutdown(cancel_futures=True)


def estimates(sink: BigQueryConfig, source: SourceConfig, spark: SparkConfig, stream: WatchedStream) -> list[str]:
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


def _tables(sink: BigQueryConfig, stream: WatchedStream) -> list[BigQueryTable]:
    table_options = sink.table_options(stream.default_schema)
    return [bigquery_table(table, table_options) for table in stream.tables]
