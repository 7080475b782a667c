"""``spanner-cdc check``: finds every error of a configuration and of what it points at, at once."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from connector.check.conditions import errors_of_conditions
from connector.check.keeping import warnings_of_keep
from connector.check.needs import NEEDS, Needs
from connector.check.offline import offline_errors, sink_locations
from connector.check.starts import start_of_spool
from connector.config.destination import check_kept
from connector.config.loading import Config
from connector.config.sections import DOCUMENTED_HEARTBEAT
from connector.config.sink_start import check_start
from connector.config.sinks import WatchedStream, sink_type
from connector.config.spark_checkpoint import check_checkpoint
from connector.core.records import INITIAL_TOKEN
from connector.core.timestamps import format_duration
from connector.errors import ConfigurationError, DataLostError, SpannerCdcError, SpoolError
from connector.log import Log
from connector.reader.change_stream import OpenStream, opened
from connector.reader.starting import lost_range, start_of
from connector.spool.manifest import CutToken, Manifest, SegmentFile
from connector.spool.reading import Spool
from connector.spool.storage.locations import in_cloud_storage, with_extra_gcs

_log = Log(__name__)

_TIMEOUT = 10.0
"""Seconds that Cloud Storage has to answer."""


@dataclass(frozen=True, slots=True)
class CheckFindings:
    """The result of a check.

    Attributes:
        errors: what keeps the configuration from working.
        warnings: what users should know, and what keeps nothing from working.
        estimates: what the sink will need of its destination; empty if there are errors.
    """

    errors: list[str]
    warnings: list[str] = field(default_factory=list)
    estimates: list[str] = field(default_factory=list)


async def findings_of(config: Config, *, needs: Needs = NEEDS["run"]) -> CheckFindings:
    """Checks everything that a valid configuration points at, as far as a command needs it; Spanner is opened once."""
    errors = [*offline_errors(config, needs), *_errors_of_buckets(config, needs)]
    is_usable = not any(error.startswith("spool.path:") for error in errors) or not in_cloud_storage(config.spool.path)
    of_spool, newest = _errors_of_spool(config) if is_usable else ([], None)
    errors += of_spool
    if needs.sink and newest is not None:
        errors += [*_errors_of(check_kept, config), *_errors_of(check_start, config)]
    if needs.sink and needs.spark and not of_spool and is_usable:
        errors += _errors_of(partial(check_checkpoint, of_copies=True), config)
    kind, sink = sink_type(config.sink.type), config.sink
    warnings = list(warnings_of_keep(Spool.at(config.spool.path), config.spool)) if newest and not of_spool else []
    if config.source.heartbeat < DOCUMENTED_HEARTBEAT:
        warnings.append(
            f"source.heartbeat: {format_duration(config.source.heartbeat)} is shorter than the 1s that Spanner's"
            " documentation names; if Spanner refuses it, reading ends with one line, and 1s is to be set"
        )
    estimates: list[str] = []
    watched: WatchedStream | None = None
    try:
        async with opened(config.source, started=newest is not None) as stream:
            stream.warn_of_tables()
            watched = watched_stream(stream, config)
            if needs.sink:
                errors += kind.stream_errors(sink, watched)
                warnings += kind.warnings(sink, watched)
            look = partial(errors_of_conditions, stream, reads_tables=needs.tables, compares=needs.compares)
            errors += await asyncio.to_thread(look)
            await _check_range(stream, config, newest, is_readable=not of_spool)
    except ConfigurationError as error:
        errors += error.errors
    except SpannerCdcError as error:
        errors.append(f"source: {error}")
    if needs.sink:
        errors += await asyncio.to_thread(kind.destination_errors, sink, config.source, watched)
        if needs.spark and not errors:
            errors += await asyncio.to_thread(kind.session_errors, sink, config.spark)
        if not errors and watched is not None:
            estimates = await asyncio.to_thread(kind.estimates, sink, config.source, config.spark, watched)
    return CheckFindings(list(dict.fromkeys(errors)), warnings, estimates)


def watched_stream(stream: OpenStream, config: Config) -> WatchedStream:
    """The description of a change stream that sinks get, with the tables that the configuration keeps."""
    found = stream.stream
    return WatchedStream(
        found.name,
        found.value_capture_type,
        stream.dialect.name,
        stream.source.default_schema,
        stream.kept_tables,
        config.source.complete_rows,
        config.source.backfill is not None,
        found.options,
    )


def warn(config: Config, stream: OpenStream) -> None:
    """Logs what users should know of the sink, before anything is read."""
    kind, watched = sink_type(config.sink.type), watched_stream(stream, config)
    for line in kind.warnings(config.sink, watched):
        _log.warning("the sink's output has a limitation", what=line)
    of_all = kind.stream_errors(config.sink, replace(watched, tables=()))
    for line in kind.stream_errors(config.sink, watched):
        if line not in of_all:
            _log.warning("the destination cannot have a table as it is; the others are delivered", why=line)


async def check_sink(config: Config) -> None:
    """Checks that the sink can go to its destination, and work with the change stream, before anything starts.

    Tables are left to the sink: one that its destination cannot hold keeps no other from being delivered.

    Raises:
        ConfigurationError: it cannot.
        SpannerCdcError: Spanner cannot be reached.
    """
    check_kept(config)
    check_start(config)
    check_checkpoint(config)
    kind = sink_type(config.sink.type)
    if not kind.stream_decides(config.sink):
        return
    has_epochs = Spool.at(config.spool.path).latest() > 0
    async with opened(config.source, started=has_epochs) as stream:
        errors = kind.stream_errors(config.sink, replace(watched_stream(stream, config), tables=()))
    if errors:
        raise ConfigurationError(errors)


def _errors_of_buckets(config: Config, needs: Needs) -> list[str]:
    """Buckets that the command cannot use, and dead letters where executors cannot write them."""
    errors = _errors_of_bucket("spool.path", config.spool.path, None)
    for location in (one for one in sink_locations(config, needs) if not one.by_spark):
        errors += _errors_of_bucket(location.option, location.path, location.endpoint)
    local = needs.sink and not in_cloud_storage(config.sink.dead_letters)
    if needs.spark and local and not config.spark.master.startswith("local"):
        errors.append("sink.dead_letters: the executors of a cluster do not share a disk: use gs://bucket/prefix")
    return errors


async def _check_range(stream: OpenStream, config: Config, newest: Manifest | None, *, is_readable: bool) -> None:
    """Asks Spanner whether it retains what would be read next; the start counts only while the spool is empty."""
    source = config.source
    end = stream.end()
    if newest is None:
        spool = Spool.at(config.spool.path)
        stands = is_readable and await start_of_spool(spool, stream, source, end) is None
        if (stands or not is_readable) and source.backfill is None:
            await start_of(stream, source.start, end)
        return
    spool = Spool.at(config.spool.path)
    spool.header().check_placements(stream.placements, spool.path)
    if end is None or end > newest.watermark_high:
        try:
            await stream.probe(_first_start(newest, spool.cut(newest)))
        except DataLostError as error:
            raise await lost_range(stream, error, newest.watermark_high, spool=config.spool.path) from error


def _errors_of(checked: Callable[[Config], None], config: Config) -> list[str]:
    """The errors of a check that reads the spool."""
    try:
        checked(config)
    except ConfigurationError as error:
        return error.errors
    except SpannerCdcError as error:
        return [f"spool.path: {error}"]
    return []


def _first_start(newest: Manifest, cut: Iterable[CutToken]) -> int:
    """The start of the first queries after an epoch; the initial query always starts at its own start."""
    initial = [at.start_timestamp for at in cut if at.token == INITIAL_TOKEN]
    return min(initial, default=newest.watermark_high)


def _errors_of_spool(config: Config) -> tuple[list[str], Manifest | None]:
    """Errors of the spool, and its newest epoch, or None where it has none."""
    spool = Spool.at(config.spool.path)
    try:
        spool.check_source(config.source.name, config.source.rules_fingerprint)
        first, latest = spool.floor(), spool.latest()
    except FileNotFoundError:
        return [], None  # a new spool
    except SpannerCdcError as error:
        return [f"spool.path: {error}"], None
    errors, newest = list[str](), None
    for epoch in range(first, latest + 1):
        try:
            for manifest in spool.manifests(epoch, epoch):
                newest = manifest
                if epoch == latest:
                    spool.cut(manifest)
                errors += _errors_of_segments(spool, manifest.files)
                for key in manifest.schema_keys.values():
                    spool.schema(key)
        except SpannerCdcError as error:
            if epoch >= spool.floor():  # else it was pruned meanwhile
                errors.append(f"spool.path: {error}")
    return list(dict.fromkeys(errors)), newest


def _errors_of_segments(spool: Spool, files: Iterable[SegmentFile]) -> list[str]:
    errors = []
    for file in files:
        try:
            next(spool.batches(file), None)
        except SpannerCdcError as error:
            errors.append(f"spool.path: {error}")
    return errors


def _errors_of_bucket(field: str, url: str, endpoint: str | None) -> list[str]:
    if not in_cloud_storage(url):
        return []
    try:
        with with_extra_gcs(SpoolError):
            from connector.spool.storage.bucket import Bucket
        bucket = Bucket(url, failure=SpoolError, option=field, endpoint=endpoint, patience=_TIMEOUT)
        missing = bucket.missing_permissions()
    except SpoolError as error:
        return [f"{field}: {error}"]
    if missing:
        return [f"{field}: this account lacks {', '.join(missing)} for {url}; roles/storage.objectUser has all of them"]
    return []
