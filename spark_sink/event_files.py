"""Finds and reads files of events: what :mod:`spark_sink.files` has written."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from spark_sink.avro_events import avro_events
from spark_sink.errors import EventFileError
from spark_sink.event_rows import FileEvent, rows_of

_DECODER = msgspec.json.Decoder(FileEvent)


def json_lines(path: Path, stream: BinaryIO) -> Iterator[FileEvent]:
    """The events of JSON lines.

    Raises:
        EventFileError: a line is no event.
    """
    for number, line in enumerate(stream, 1):
        try:
            yield _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # what it says might hold a row's values
            raise EventFileError(f"cannot read {path}: line {number} is no event as Datastream writes it") from None


_FORMATS: Mapping[str, Callable[[Path, BinaryIO], Iterator[FileEvent]]] = {".avro": avro_events, ".jsonl": json_lines}
"""By the ending of a file's name, without that of a compression."""

_FOREIGN = (".opencdc.jsonl", ".opencdc.pb")


def files_below(root: Path) -> list[Path]:
    """The files of events below a folder, or the one file, in the order of their paths.

    What is hidden, or being written, or no file of events by its name, is passed over.

    Raises:
        EventFileError: there is nothing at that path, it cannot be read, or it holds OpenCDC records.
    """

    def refuse(error: OSError) -> None:
        raise EventFileError(f"cannot read {error.filename}: {error.strerror}") from error

    if not root.exists():
        raise EventFileError(f"there are no files at {root}", hint="Give load() the path that sink.path names.")
    if root.is_file():
        return [root] if _is_of_events(root) else []
    found: list[Path] = []
    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for name in names if _is_of_events(path := Path(folder, name))]
    return sorted(found)


def _is_of_events(path: Path) -> bool:
    name = path.name.removesuffix(".gz")
    if name.startswith("."):
        return False
    if name.endswith(_FOREIGN):
        raise EventFileError(f"{path} holds OpenCDC records, not events as Datastream writes them")
    return name.endswith(tuple(_FORMATS))


def read_file(path: Path) -> Iterator[pa.RecordBatch]:
    """The events of a file, in its order.

    Raises:
        EventFileError: it cannot be read.
    """
    ending = Path(path.name.removesuffix(".gz")).suffix
    try:
        with path.open("rb") as stream:
            if path.name.endswith(".gz"):
                with gzip.GzipFile(fileobj=stream) as inner:
                    yield from rows_of(path, _FORMATS[ending](path, inner))  # type: ignore[arg-type]
            else:
                yield from rows_of(path, _FORMATS[ending](path, stream))
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise EventFileError(f"cannot read {path}: it is damaged, or not whole") from None
    except OSError as error:
        raise EventFileError(f"cannot read {path}: {error.strerror or error}") from error
