"""Finds and reads files of events, as :mod:`spark_sink.sinks.files.writer` writes them."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from connector.spool.storage.locations import in_cloud_storage
from connector.spool.storage.opening import open_store
from connector.spool.storage.store import FileStore
from spark_sink.errors import EventFileError
from spark_sink.sources.files.avro import avro_events
from spark_sink.sources.files.opencdc import ENDINGS, opencdc_changes
from spark_sink.sources.files.table_rows import FileEvent, decoded_lines, rows_of

json_lines = partial(decoded_lines, decoder=msgspec.json.Decoder(FileEvent), what="an event as Datastream writes it")

_FORMATS: Mapping[str, Callable[[str, BinaryIO], Iterator[FileEvent]]] = {".avro": avro_events, ".jsonl": json_lines}
"""By the ending of a file's name without ``.gz``."""


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of events; ``path`` is absolute, or ``gs://bucket/object``."""

    path: str
    bytes: int


def files_below(root: str, *, opencdc: bool = False) -> list[EventFile]:
    """The files of events below a folder, or the one file, sorted by path.

    Hidden files, files that are being written, and files whose names are not those of event files are ignored.

    Args:
        root: an absolute path of the local disk, or ``gs://bucket/prefix``.
        opencdc: whether files of OpenCDC records are listed too.

    Raises:
        EventFileError: there is nothing at that path, it cannot be read, or it holds OpenCDC records that are not
            to be listed.
    """
    store = _store_at(root)
    walked = () if _is_local(root) and Path(root).is_file() else store.walk()
    found = [EventFile(store.full(file.path), file.size) for file in walked]
    if not found and not (_is_local(root) and Path(root).is_dir()):
        folder, _, name = root.rpartition("/")
        one = _store_at(folder or "/").find(name) if _is_local(root) or in_cloud_storage(folder) else None
        if one is None:
            raise EventFileError(f"there are no files at {root}", hint="Give load() the path that sink.path names.")
        found = [EventFile(root, one.size)]
    visible = [file for file in found if "/." not in file.path.removeprefix(root)]
    return sorted((file for file in visible if _is_of_events(file.path, opencdc=opencdc)), key=lambda file: file.path)


def _is_local(path: str) -> bool:
    return not in_cloud_storage(path)


def _store_at(path: str) -> FileStore:
    return open_store(path, failure=EventFileError, option="the path given to load()")


def is_of_opencdc(path: str) -> bool:
    """True if a file holds OpenCDC records, by its name."""
    return path.removesuffix(".gz").endswith(ENDINGS)


def _is_of_events(path: str, *, opencdc: bool) -> bool:
    name = path.removesuffix(".gz")
    if is_of_opencdc(path):
        if opencdc:
            return True
        raise EventFileError(f"{path} holds OpenCDC records, not events as Datastream writes them")
    return name.endswith(tuple(_FORMATS))


def read_file(path: str, each: Callable[[FileEvent], FileEvent] | None = None) -> Iterator[pa.RecordBatch]:
    """The events of a file, in the order of the file.

    Args:
        path: a file of events as Datastream writes them.
        each: changes an event before it becomes a row.

    Raises:
        EventFileError: it cannot be read.
    """
    read = _FORMATS[Path(path.removesuffix(".gz")).suffix]

    def rows(stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        events = read(path, stream)
        return rows_of(path, events if each is None else map(each, events))

    return _opened(path, rows)


def read_opencdc(path: str) -> Iterator[pa.RecordBatch]:
    """The changes of a file of OpenCDC records, in the order of the file.

    Raises:
        EventFileError: it cannot be read.
    """
    return _opened(path, lambda stream: opencdc_changes(path, path.removesuffix(".gz"), stream))


def _opened(path: str, rows: Callable[[BinaryIO], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    folder, _, name = path.rpartition("/")
    try:
        with _store_at(folder or "/").open(name) as stream:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=stream) as inner:
                    yield from rows(inner)  # type: ignore[arg-type]
            else:
                yield from rows(stream)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise EventFileError(f"cannot read {path}: it is damaged or incomplete") from None
    except OSError as error:
        raise EventFileError(f"cannot read {path}: {error.strerror or 'it is gone'}") from error
