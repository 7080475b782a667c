"""Checks of a configuration that call no server: ``run`` and ``read`` refuse it at once.

Missing libraries and Java, folders that cannot be written to, a full disk, a status port that is taken.
"""

import errno
import itertools
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

from connector.check.needs import Needs
from connector.config.emulator_address import emulator_problem
from connector.config.loading import Config
from connector.config.sinks import Location, sink_type
from connector.errors import ConfigurationError, SpoolError, SpoolInUseError, advice
from connector.extras import EXTRAS, is_installed, lacks
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute, in_cloud_storage, unbilled
from connector.spool.writing import WRITER_LOCK, sole_writer
from connector.telemetry.listening import no_listening

_NEEDED_BYTES = 100 * 1024 * 1024
_JAVA, _JAVA_TIMEOUT = 17, 20.0
_OLDEST_SPARK, _OLDEST_FOR_EXECUTORS = (4, 0), (4, 1)


def refuse(config: Config, needs: Needs) -> None:
    """Checks all that can be checked without calling anyone, before a command starts.

    A disk that is nearly full is at most a warning for a spool that exists: a running sink empties it.

    Raises:
        ConfigurationError: with every error.
        SpoolInUseError: the status port is taken, most likely by the daemon that holds the spool.
    """
    errors = offline_errors(config, needs, starts=True)
    if errors:
        raise ConfigurationError(errors)


def offline_errors(config: Config, needs: Needs, *, starts: bool = False) -> list[str]:
    """Every error of the machine, of its libraries and of the local folders that a command needs.

    Args:
        config: the configuration.
        needs: of the command.
        starts: whether it starts now: then only a folder that does not exist yet needs room on its disk.

    Raises:
        SpoolInUseError: it starts, and the daemon that holds the spool has taken the status port.
    """
    folders = [Location("spool.path", config.spool.path), *sink_locations(config, needs)]
    if needs.spark:
        folders.append(Location("spark.checkpoint", config.spark.checkpoint))
    errors = [*_errors_of_libraries(config, needs), *_errors_of_shared_folders(folders)]
    if (emulator := config.source.emulator_host) and (problem := emulator_problem(emulator, "source")):
        errors.append(problem)
    for one in (folder for folder in folders if not folder.by_spark):
        errors += errors_of_folder(one.option, one.path, needs_room=not (starts and Path(one.path).exists()))
    if _starts_spark(config, needs):
        errors += _errors_of_java()
    if needs.status and (taken := _errors_of_port(config.status.host, config.status.port)):
        errors += _unless_by_own_daemon(config, taken, is_refused=starts and not errors)
    return list(dict.fromkeys(errors))


def _starts_spark(config: Config, needs: Needs) -> bool:
    return needs.spark or (needs.compares and sink_type(config.sink.type).is_read_by_spark)


def sink_locations(config: Config, needs: Needs) -> Iterable[Location]:
    """The locations that the sink writes, if the command has one that does."""
    return sink_type(config.sink.type).locations(config.sink) if needs.sink and needs.spark else ()


def _unless_by_own_daemon(config: Config, taken: list[str], *, is_refused: bool) -> list[str]:
    """The errors of a port, unless the daemon of this very spool runs, and has most likely taken it.

    Raises:
        SpoolInUseError: that daemon runs, and a second one ``is_refused``.
    """
    spool = Spool.at(config.spool.path)
    try:
        if spool.storage.exists(WRITER_LOCK):
            with sole_writer(spool):
                return taken
    except SpoolInUseError:
        if is_refused:
            raise
        return []
    except SpoolError:
        return taken  # which is wrong for certain
    return taken


def _errors_of_shared_folders(locations: Sequence[Location]) -> Iterator[str]:
    """Places that are the same, or one inside the other: what cleans one would meet the files of the other."""
    for one, other in itertools.combinations(locations, 2):
        first, second = _resolved(one.path), _resolved(other.path)
        if first == second:
            yield f"{other.option}: {other.path} is {one.option}, too: give each a folder of its own"
        elif first.is_relative_to(second) or second.is_relative_to(first):
            inner, outer = (one, other) if first.is_relative_to(second) else (other, one)
            yield f"{inner.option}: {inner.path} is inside {outer.option}: give each a folder of its own"


def _resolved(path: str) -> PurePosixPath:
    place = unbilled(absolute(path))
    return PurePosixPath(place if "://" in place else Path(place).resolve())


def errors_of_folder(field: str, path: str, *, needs_room: bool = True) -> list[str]:
    """The reasons why a local folder cannot be written to; none for a path in Cloud Storage."""
    if "://" in path:
        return []
    folder = Path(path).absolute()
    try:
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir():
            return [f"{field}: {folder} is not a folder"]
        if not os.access(folder, os.W_OK | os.X_OK):
            why = ": its file system is read-only" if os.statvfs(folder).f_flag & os.ST_RDONLY else ""
            return [f"{field}: {folder} cannot be written to{why}"]
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return [f"{field}: {folder}: {error.strerror or error}. {advice(error, access='write')}".rstrip()]
    if needs_room and free < _NEEDED_BYTES:
        return [f"{field}: only {free // 1_000_000} MB are free at {folder}"]
    return []


def _errors_of_libraries(config: Config, needs: Needs) -> Iterator[str]:
    wanted: dict[str, tuple[str, Sequence[str]]] = {}
    if _starts_spark(config, needs):
        wanted["spark"] = ("Spark", EXTRAS["spark"])
    locations = {"spool.path": config.spool.path}
    if needs.sink:
        extras = sink_type(config.sink.type).extras(config.sink)
        wanted |= {extra: (f"sink.type: {config.sink.type}", modules) for extra, modules in extras.items()}
        places = sink_type(config.sink.type).locations(config.sink)
        locations |= {one.option: one.path for one in places if not one.by_spark}
        if config.source.complete_rows:  # the sink's tasks read Spanner
            wanted["reader"] = ("source.complete_rows", EXTRAS["reader"])
    for option, path in locations.items():
        if in_cloud_storage(path):
            wanted.setdefault("gcs", (f"{option}: gs://", EXTRAS["gcs"]))
    for extra, (what, modules) in wanted.items():
        if not is_installed(*modules):
            yield lacks(extra, what)
        elif extra == "spark":
            yield from _errors_of_spark(config)
            if needs.sink:
                yield from sink_type(config.sink.type).library_errors(config.sink, config.spark)


def _errors_of_spark(config: Config) -> Iterator[str]:
    """PySpark that is too old."""
    on_executors = config.source.reader == "executors"
    oldest = _OLDEST_FOR_EXECUTORS if on_executors else _OLDEST_SPARK
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return  # a cluster's own, which is on the import path without metadata
    numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:2])
    if numbers < oldest:
        what = "source.reader: executors needs" if on_executors else "the sinks need"
        yield f"{what} PySpark {'.'.join(map(str, oldest))} or newer, not {found}: pip install -U pyspark"


def _errors_of_java() -> list[str]:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return ["spark: there is no Java on PATH and no JAVA_HOME; Spark needs Java 17 or newer"]
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT, check=False
        )
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return [f"spark: {java} cannot be run ({error.strerror}). {advice(error)}"]
        return [f"spark: {java} cannot be run ({error.strerror}): correct JAVA_HOME; Spark needs Java 17 or newer"]
    except subprocess.TimeoutExpired:
        return []  # a slow machine, and no proof of anything
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is not None and int(found[1]) < _JAVA:
        return [f"spark: {java} is Java {found[1]}; Spark needs Java 17 or newer"]
    return []


def _errors_of_port(host: str, port: int) -> list[str]:
    if port == 0:
        return []
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        return [no_listening(host, port, error)]
    return []
