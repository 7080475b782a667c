"""``spanner-cdc check``: every fault of a configuration and of what it points at, at once."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from connector.config.loading import Config
from connector.config.sinks import Location, WatchedStream, sink_type
from connector.core.records import INITIAL_TOKEN
from connector.errors import ConfigurationError, DataLostError, SpannerCdcError, SpoolError
from connector.log import Log
from connector.reader.change_stream import OpenStream, opened
from connector.spool.manifest import CutToken, Manifest, SegmentFile
from connector.spool.reading import Spool
from connector.storage.locations import in_cloud_storage, with_extra_gcs

_log = Log(__name__)

_NEEDED_BYTES = 100 * 1024 * 1024

_PATIENCE = 10.0
"""Seconds that Cloud Storage has to answer."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a check.

    Attributes:
        faults: what is wrong with what the configuration points at.
        warnings: what to know of it that is not wrong.
        estimates: what the sink will need of its destination; empty where there are faults.
    """

    faults: list[str]
    warnings: list[str] = field(default_factory=list)
    estimates: list[str] = field(default_factory=list)


async def findings_of(config: Config, *, emulator_host: str | None) -> Findings:
    """Checks everything that a valid configuration points at; Spanner is opened once."""
    faults, newest = _faults_of_spool(config)
    kind, sink = sink_type(config.sink.type), config.sink
    warnings: list[str] = []
    estimates: list[str] = []
    watched: WatchedStream | None = None
    faults += _faults_of_locations(config, kind.locations(sink))
    try:
        async with opened(config.source, emulator_host=emulator_host, begun=newest is not None) as stream:
            stream.warn_of_tables()
            watched = watched_stream(stream)
            faults += kind.stream_errors(sink, watched)
            warnings = kind.warnings(sink, watched)
            await _check_range(stream, config, newest)
    except ConfigurationError as error:
        faults += error.faults
    except SpannerCdcError as error:
        faults.append(f"source: {error}")
    faults += await asyncio.to_thread(kind.destination_errors, sink, config.source, watched)
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        faults.append("spark: there is no Java on PATH and no JAVA_HOME; Spark needs Java 17")
    if not faults and watched is not None:
        estimates = await asyncio.to_thread(kind.estimates, sink, config.source, config.spark, watched)
    return Findings(faults, warnings, estimates)


def watched_stream(stream: OpenStream) -> WatchedStream:
    """What a sink is told of a change stream: the tables that the configuration keeps."""
    found = stream.stream
    tables = tuple(table for table in found.tables if stream.filter.keeps(table.table))
    return WatchedStream(
        found.name, found.value_capture_type, stream.dialect.name, stream.source.default_schema, tables
    )


def warn(config: Config, stream: OpenStream) -> None:
    """Logs what users should know of the sink, before anything is read."""
    for line in sink_type(config.sink.type).warnings(config.sink, watched_stream(stream)):
        _log.warning("to know before the sink's output is read", what=line)


async def check_sink(config: Config, *, emulator_host: str | None) -> None:
    """Checks that the sink can work with the change stream, where that depends on the stream, before anything starts.

    Tables are left to the sink: it continues with the others where one is gone.

    Raises:
        ConfigurationError: it cannot.
        SpannerCdcError: Spanner cannot be asked.
    """
    kind = sink_type(config.sink.type)
    if not kind.stream_decides(config.sink):
        return
    begun = Spool.at(config.spool.path).latest() > 0
    async with opened(config.source, emulator_host=emulator_host, begun=begun) as stream:
        faults = kind.stream_errors(config.sink, replace(watched_stream(stream), tables=()))
    if faults:
        raise ConfigurationError(faults)


def _faults_of_locations(config: Config, locations: Iterable[Location]) -> list[str]:
    """What is wrong with where the sink writes files."""
    faults = []
    for location in locations:
        faults += _faults_of_location(location.option, location.path, location.endpoint)
    if not config.spark.master.startswith("local") and not in_cloud_storage(config.sink.dead_letters):
        faults.append("sink.dead_letters: the executors of a cluster have disks of their own: take gs://bucket/prefix")
    return faults


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
