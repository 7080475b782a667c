"""Finds and reads files of events: what :mod:`spark_sink.files.writer` has written."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import pyarrow as pa

from connector.storage.locations import in_cloud_storage, with_extra_gcs
from spark_sink.errors import EventFileError
from spark_sink.read_back.avro import avro_events
from spark_sink.sink.table_rows import FileEvent, rows_of

if TYPE_CHECKING:
    from connector.storage.bucket import Bucket

_DECODER = msgspec.json.Decoder(FileEvent)


def json_lines(path: str, stream: BinaryIO) -> Iterator[FileEvent]:
    """The events of JSON lines.

    Raises:
        EventFileError: a line is no event.
    """
    for number, line in enumerate(stream, 1):
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # what it says might hold a row's values
            raise EventFileError(f"cannot read {path}: line {number} is no event as Datastream writes it") from None


_FORMATS: Mapping[str, Callable[[str, BinaryIO], Iterator[FileEvent]]] = {".avro": avro_events, ".jsonl": json_lines}
"""By the ending of a file's name, without that of a compression."""

_FOREIGN = (".opencdc.jsonl", ".opencdc.pb")


@dataclass(frozen=True, slots=True)
class EventFile:
    """A file of events; ``path`` is absolute, or ``gs://bucket/object``."""

    path: str
    bytes: int


def files_below(root: str) -> list[EventFile]:
    """The files of events below a folder, or the one file, in the order of their paths.

    What is hidden, or being written, or no file of events by its name, is passed over.

    Args:
        root: an absolute path of the local disk, or ``gs://bucket/prefix``.

    Raises:
        EventFileError: there is nothing at that path, it cannot be read, or it holds OpenCDC records.
    """
    found = _in_bucket(root) if in_cloud_storage(root) else _on_disk(Path(root))
    if found is None:
        raise EventFileError(f"there are no files at {root}", hint="Give load() the path that sink.path names.")
    visible = [file for file in found if "/." not in file.path.removeprefix(root)]
    return sorted((file for file in visible if _is_of_events(file.path)), key=lambda file: file.path)


def _on_disk(root: Path) -> list[EventFile] | None:
    def refuse(error: OSError) -> None:
        raise EventFileError(f"cannot read {error.filename}: {error.strerror}") from error

    if not root.exists():
        return None
    if root.is_file():
        return [EventFile(str(root), root.stat().st_size)]
    found: list[EventFile] = []
    for folder, _, names in os.walk(root, onerror=refuse):
        found += [EventFile(str(path), path.lstat().st_size) for name in names if (path := Path(folder, name))]
    return found


def _in_bucket(root: str) -> list[EventFile] | None:
    bucket = bucket_at(root)
    found = [EventFile(f"{root}/{path}", size) for path, size in bucket.sizes().items()]
    if not found:
        folder, _, name = root.rpartition("/")
        one = bucket_at(folder).find(name) if in_cloud_storage(folder) else None
        found = [EventFile(root, one.size)] if one is not None else []
    return found or None


def bucket_at(url: str) -> "Bucket":
    """What lies below a URL of Cloud Storage.

    Raises:
        EventFileError: the extra ``gcs`` is not there.
    """
    with with_extra_gcs(EventFileError):
        from connector.storage.bucket import Bucket
    return Bucket(url, failure=EventFileError, option="the path given to load()")


def _is_of_events(path: str) -> bool:
    name = path.removesuffix(".gz")
    if name.endswith(_FOREIGN):
        raise EventFileError(f"{path} holds OpenCDC records, not events as Datastream writes them")
    return name.endswith(tuple(_FORMATS))


def read_file(path: str) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order.

    Raises:
        EventFileError: it cannot be read.
    """
    ending = Path(path.removesuffix(".gz")).suffix
    try:
        with _opened(path) as stream:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=stream) as inner:
                    yield from rows_of(path, _FORMATS[ending](path, inner))  # type: ignore[arg-type]
            else:
                yield from rows_of(path, _FORMATS[ending](path, stream))
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise EventFileError(f"cannot read {path}: it is damaged, or not whole") from None
    except OSError as error:
        raise EventFileError(f"cannot read {path}: {error.strerror or 'it is gone'}") from error


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    if not in_cloud_storage(path):
        with Path(path).open("rb") as stream:
            yield stream
        return
    folder, _, name = path.rpartition("/")
    with TemporaryFile() as stream:  # without a name: whatever kills the process, the system frees it
        bucket_at(folder).download(name, stream)
        stream.seek(0)
        yield stream
