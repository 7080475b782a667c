"""``spanner-cdc check``: every fault of a configuration and of what it points at, at once."""

import asyncio
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from connector.bigquery_costs import Load, notes
from connector.bigquery_table import (
    MERGE,
    SCHEMA_IN_DATASET,
    BigQueryTable,
    BigQueryTarget,
    bigquery_table,
    faults_of_stream,
)
from connector.commands.sink_warnings import warnings_of_files
from connector.config import BigQueryConfig, Config, FilesConfig, parse_duration
from connector.core.records import INITIAL_TOKEN
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import collisions
from connector.errors import ConfigurationError, DataLostError, SpannerCdcError, SpoolError
from connector.log import Log
from connector.reader.change_stream import OpenStream, opened
from connector.spool.manifest import CutToken, Manifest, SegmentFile
from connector.spool.reading import Spool
from connector.storage.locations import in_cloud_storage, with_extra_bigquery, with_extra_gcs

_log = Log(__name__)

_NEEDED_BYTES = 100 * 1024 * 1024
_AT_A_TIME = 8
"""Tables of BigQuery that are asked for at the same time: each takes a tenth of a second."""

_PATIENCE = 10.0
"""Seconds that Cloud Storage has to answer."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong with what a configuration points at, and what to know of it that is not wrong."""

    faults: list[str]
    warnings: list[str]


async def faults_of(config: Config, *, emulator_host: str | None) -> list[str]:
    """Everything that is wrong with what a valid configuration points at; empty if nothing is."""
    return (await findings_of(config, emulator_host=emulator_host)).faults


async def findings_of(config: Config, *, emulator_host: str | None) -> Findings:
    """Everything that is to be said of what a valid configuration points at."""
    faults, newest = _faults_of_spool(config)
    warnings: list[str] = []
    sink = config.sink
    faults += _faults_of_place(config)
    datasets = {sink.dataset} if isinstance(sink, BigQueryConfig) else set()
    try:
        async with opened(config.source, emulator_host=emulator_host, begun=newest is not None) as stream:
            stream.warn_of_tables()
            faults += faults_of_sink(config, stream)
            warnings = warnings_of(config, stream)
            if isinstance(sink, BigQueryConfig):
                shape = sink.shape(stream.source.default_schema)
                datasets = {bigquery_table(table, shape).dataset for table in _tables_of(stream)} or datasets
            await _check_range(stream, config, newest)
    except ConfigurationError as error:
        faults += error.faults
    except SpannerCdcError as error:
        faults.append(f"source: {error}")
    if isinstance(sink, BigQueryConfig):
        faults += _faults_of_bigquery(sink.target(config.source), sorted(datasets), sink.location)
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        faults.append("spark: there is no Java on PATH and no JAVA_HOME; Spark needs Java 17")
    return Findings(faults, warnings)


def warnings_of(config: Config, stream: OpenStream) -> list[str]:
    """What to know of the sink before it writes, which keeps nothing from being written."""
    sink, found = config.sink, stream.stream
    if not isinstance(sink, FilesConfig):
        return []
    return list(warnings_of_files(sink, found.name, found.value_capture_type, stream.dialect.name, _tables_of(stream)))


def warn(config: Config, stream: OpenStream) -> None:
    """Logs these, before anything is read."""
    for line in warnings_of(config, stream):
        _log.warning("to know before the sink's files are read", what=line)


def faults_of_sink(config: Config, stream: OpenStream) -> list[str]:
    """What keeps the stream's tables out of the destination."""
    sink = config.sink
    tables = _tables_of(stream)
    if isinstance(sink, BigQueryConfig):
        shape = sink.shape(stream.source.default_schema)
        return faults_of_stream(shape, stream.stream.name, stream.stream.value_capture_type, tables)
    return _faults_of_names(tables) if sink.format == "avro" or sink.schema_files else []


def _tables_of(stream: OpenStream) -> list[TableSchema]:
    return [table for table in stream.stream.tables if stream.filter.keeps(table.table)]


async def notes_of(config: Config, *, emulator_host: str | None) -> list[str]:
    """What a configuration without faults takes of its destination's quotas, and warnings; empty for files.

    Where BigQuery does not tell how large its tables are, it says why.

    Raises:
        SpannerCdcError: Spanner cannot be asked.
    """
    sink = config.sink
    if not isinstance(sink, BigQueryConfig):
        return []
    # Tables that are not there any more are among the faults, or were warned of.
    async with opened(config.source, emulator_host=emulator_host, begun=True) as stream:
        shape = sink.shape(stream.source.default_schema)
        tables = [bigquery_table(table, shape) for table in _tables_of(stream)]
    trigger = parse_duration(config.spark.trigger)
    assert isinstance(trigger, int)
    sizes: list[int] = []
    unknown = []
    try:
        sizes = await asyncio.to_thread(_sizes_of, sink.target(config.source), tables) if shape.merges else []
    except SpannerCdcError as error:
        unknown.append(f"sizes unknown: {error}")
    return [*notes(Load(sink.mode, len(tables), trigger, sink.max_staleness, sizes)), *unknown]


def _sizes_of(target: BigQueryTarget, tables: Sequence[BigQueryTable]) -> list[int]:
    """Bytes of the tables that are there.

    Raises:
        SpoolError: BigQuery does not tell of one; the others are not asked for any more.
    """
    with with_extra_bigquery(SpoolError):
        from connector.bigquery_client import BigQueryClient
    client = BigQueryClient(target, failure=SpoolError, patience=_PATIENCE)
    threads = ThreadPoolExecutor(_AT_A_TIME)
    try:
        found = list(threads.map(lambda table: client.find(table.dataset, table.name), tables))
    finally:
        threads.shutdown(cancel_futures=True)
    return [table.bytes for table in found if table is not None and table.bytes is not None]


async def check_sink(config: Config, *, emulator_host: str | None) -> None:
    """Asks whether a BigQuery sink that needs whole rows gets them, before anything is written.

    Raises:
        ConfigurationError: it cannot.
        SpannerCdcError: Spanner cannot be asked.
    """
    if not isinstance(config.sink, BigQueryConfig) or config.sink.mode != MERGE:
        return
    begun = Spool.at(config.spool.path).latest() > 0
    async with opened(config.source, emulator_host=emulator_host, begun=begun) as stream:
        faults = faults_of_stream(config.sink.shape(), stream.stream.name, stream.stream.value_capture_type, ())
    if faults:
        raise ConfigurationError(faults)


def _faults_of_place(config: Config) -> list[str]:
    """What is wrong with where the sink writes files."""
    sink = config.sink
    if isinstance(sink, FilesConfig):
        faults = _faults_of_location("sink.path", sink.path, sink.endpoint)
        faults += _faults_of_location("sink.dead_letters", sink.dead_letters, sink.endpoint)
    else:
        faults = _faults_of_location("sink.dead_letters", sink.dead_letters)
    if not config.spark.master.startswith("local") and not in_cloud_storage(sink.dead_letters):
        faults.append("sink.dead_letters: the executors of a cluster have disks of their own: take gs://bucket/prefix")
    return faults


def _faults_of_bigquery(target: BigQueryTarget, datasets: Iterable[str], location: str | None) -> list[str]:
    """Whether BigQuery can be asked, and has the datasets, or may be given them."""
    try:
        with with_extra_bigquery(SpoolError):
            from connector.bigquery_client import BigQueryClient
        client = BigQueryClient(target, failure=SpoolError, patience=_PATIENCE)
        return [
            f"sink.dataset: there is no dataset {dataset} in project {target.project}:"
            f" bq mk --location=LOCATION --dataset {target.project}:{dataset}, or set sink.location"
            for dataset in datasets
            if SCHEMA_IN_DATASET not in dataset and not client.dataset_exists(dataset) and not location
        ]
    except SpannerCdcError as error:
        return [f"sink: {error}"]


async def _check_range(stream: OpenStream, config: Config, newest: Manifest | None) -> None:
    """The start is used only while the spool is empty; what is asked of Spanner is where reading would begin."""
    source = config.source
    end = None if source.end is None else stream.resolve(source.end)
    if newest is None:
        await stream.check_start(stream.resolve(source.start), end)
    elif end is None or end > newest.watermark_high:
        try:
            await stream.probe(_begin(newest, Spool.at(config.spool.path).cut(newest)))
        except DataLostError as error:
            raise await stream.lost_range(error, newest.watermark_high, spool=config.spool.path) from error


def _begin(newest: Manifest, cut: Iterable[CutToken]) -> int:
    """Where the first queries after an epoch begin: the initial query always at its start."""
    initial = [at.start_timestamp for at in cut if at.token == INITIAL_TOKEN]
    return initial[0] if initial else newest.watermark_high


def _faults_of_spool(config: Config) -> tuple[list[str], Manifest | None]:
    """What is wrong with the spool, and its newest epoch, or None where it has none."""
    source = config.source
    faults = _faults_of_location("spool.path", config.spool.path)
    if faults and in_cloud_storage(config.spool.path):
        return faults, None
    spool = Spool.at(config.spool.path)
    try:
        spool.check_source(source.name)
        first, latest = spool.floor(), spool.latest()
    except FileNotFoundError:
        return faults, None  # a spool that begins
    except SpannerCdcError as error:
        return [*faults, f"spool.path: {error}"], None
    newest = None
    for epoch in range(first, latest + 1):
        try:
            for manifest in spool.manifests(epoch, epoch):
                newest = manifest
                if epoch == latest:
                    spool.cut(manifest)
                faults += _faults_of_segments(spool, manifest.files)
                for key in manifest.schema_keys.values():
                    spool.schema(key)
        except SpannerCdcError as error:
            if epoch >= spool.floor():  # else it was pruned meanwhile
                faults.append(f"spool.path: {error}")
    return list(dict.fromkeys(faults)), newest


def _faults_of_names(tables: Iterable[TableSchema]) -> list[str]:
    return [f"sink.format: {fault}" for table in tables for fault in collisions(table)]


def _faults_of_segments(spool: Spool, files: Iterable[SegmentFile]) -> list[str]:
    faults = []
    for file in files:
        try:
            next(spool.batches(file), None)
        except SpannerCdcError as error:
            faults.append(f"spool.path: {error}")
    return faults


def _faults_of_location(field: str, path: str, endpoint: str | None = None) -> list[str]:
    return _faults_of_bucket(field, path, endpoint) if in_cloud_storage(path) else _faults_of_folder(field, path)


def _faults_of_bucket(field: str, url: str, endpoint: str | None) -> list[str]:
    try:
        with with_extra_gcs(SpoolError):
            from connector.storage.bucket import Bucket
        bucket = Bucket(url, failure=SpoolError, option=field, endpoint=endpoint, patience=_PATIENCE)
        missing = bucket.missing_permissions()
    except SpoolError as error:
        return [f"{field}: {error}"]
    if missing:
        return [f"{field}: this account lacks {', '.join(missing)} for {url}; roles/storage.objectUser has all of them"]
    return []


def _faults_of_folder(field: str, path: str) -> list[str]:
    folder = Path(path).absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        return [f"{field}: {folder} is no folder"]
    if not os.access(folder, os.W_OK | os.X_OK):
        return [f"{field}: {folder} cannot be written to"]
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        return [f"{field}: only {free // 1_000_000} MB are free at {folder}"]
    return []
