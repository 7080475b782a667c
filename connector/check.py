"""``spanner-cdc check``: every fault of a configuration and of what it points at, at once."""

import os
import shutil
from pathlib import Path

from connector.config import Config
from connector.errors import ConfigurationError, SpannerCdcError
from connector.manifest import SourceName
from connector.reader import opened
from connector.spool import Spool

_NEEDED_BYTES = 100 * 1024 * 1024


async def faults_of(config: Config, *, emulator_host: str | None) -> list[str]:
    """Everything that is wrong with what a valid configuration points at; empty if nothing is."""
    faults = [*_faults_of_spool(config), *_faults_of_folder("sink.path", config.sink.path)]
    try:
        async with opened(config.source, emulator_host=emulator_host) as stream:
            end = None if config.source.end is None else stream.resolve(config.source.end)
            await stream.check_start(stream.resolve(config.source.start), end)
    except ConfigurationError as error:
        faults += error.faults
    except SpannerCdcError as error:
        faults.append(f"source: {error}")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        faults.append("spark: there is no Java on PATH and no JAVA_HOME; Spark needs Java 17")
    return faults


def _faults_of_spool(config: Config) -> list[str]:
    source = config.source
    name = SourceName(
        project=source.project, instance=source.instance, database=source.database, change_stream=source.change_stream
    )
    faults = _faults_of_folder("spool.path", config.spool.path)
    spool = Spool.at(config.spool.path)
    try:
        spool.check_source(name)
        latest = spool.latest()
        for manifest in spool.manifests(max(latest, 1), latest):
            for file in manifest.files:
                for _ in spool.batches(file):
                    break
    except FileNotFoundError:
        pass  # a spool that begins
    except SpannerCdcError as error:
        faults.append(f"spool.path: {error}")
    return faults


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
