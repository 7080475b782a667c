"""The dead-letter place of a sink: events that the destination refuses, each with the reason, until they are replayed.

Letters of a table that are refused together are one file, ``{table}/{name}.jsonl``, one letter a line::

    {"reason": "...", "event": {"stream_name": "...", ..., "payload": "{...}", "before": null, "epoch": 7}}

``event`` holds the envelope's columns (:data:`connector.envelope.envelope.SCHEMA`) by their names and gives them back
exactly: timestamps as RFC 3339; ``payload`` and ``before`` as strings, so that their JSON keeps every byte it came
with, in Spanner's own encoding. It is not the line of a file of events, where values are converted by the table's
schema and old values are absent: what was refused for its schema must not need it to be kept.

A file appears whole or not at all, and is durable when a call returns; on a local disk it is private to its user.
Several processes may write at once. The letters hold rows, and so may reasons: neither is logged.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec
import orjson
import pyarrow as pa

from connector.core.timestamps import format_rfc3339, parse
from connector.envelope.envelope import SCHEMA, SOURCE_METADATA
from connector.storage.locations import in_cloud_storage, with_extra_gcs
from spark_sink.errors import SinkError
from spark_sink.sink.destination import LocalDestination


class Replay(Protocol):
    """What takes letters once more."""

    def send(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]] | None:
        """Sends the rows of a file of that name, which are of one table.

        Returns which were refused again, by their index, and why; None if they have to wait.

        The same rows come again where the process ended before they were gone from the place; they are gone when this
        is called for others, or the replay ends without an error.
        """

    def tried(self, table: str, *, left: int) -> None:
        """Letters of a table, by its name in the source, were sent; when they are gone so many are left."""


_OPTION = "sink.dead_letters"
_ENDING = ".jsonl"
_LONGEST = 200
"""Characters of a part of a path: a disk takes 255 bytes, of which the temporary name needs some."""

_SLICE = 1024
"""Rows that are Python's objects at a time."""


@dataclass(frozen=True, slots=True)
class LetterFile:
    """A file of letters, as it was when it was read.

    ``path`` is relative to the root; ``reasons`` counts the letters of each; ``oldest`` is the smallest change sequence
    number; ``version`` changes whenever the file is written. A very long name of a table is cut.
    """

    path: str
    table: str
    reasons: Mapping[str, int]
    oldest: str
    version: str

    @property
    def name(self) -> str:
        """The name under which it was put; a very long one is cut."""
        return _name(self.path)

    @property
    def letters(self) -> int:
        """How many."""
        return sum(self.reasons.values())


class DeadLetters:
    """The dead-letter place of a sink.

    Args:
        root: an absolute path of the local disk, or ``gs://bucket/prefix``; nothing is made before the first letter.
        endpoint: of a Cloud Storage emulator, or empty.

    Raises:
        SinkError: from every method, where the place refuses.
    """

    def __init__(self, root: str, endpoint: str = "") -> None:
        self.root = root
        self._place = _place_at(root, endpoint)

    def put(self, table: str, name: str, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Keeps rows, durably; without rows it does nothing.

        Args:
            table: whose rows they are.
            name: of the file. The same one again takes the file's place: a micro-batch that is done again may find
                other words for a reason.
            rows: of the envelope's columns.
            reasons: one for each.
        """
        if rows.num_rows:
            self._place.write(f"{_safe(table)}/{_safe(name)}{_ENDING}", _encoded(rows, reasons), None)

    def discard(self, table: str, name: str, *, but: Iterable[str] = ()) -> None:
        """Removes the files of a table whose names begin with ``name`` and a ``_``.

        Those stay that begin with one of ``but`` and a ``_``.
        """
        kept = tuple(f"{_safe(table)}/{_safe(other)}_" for other in but)
        self._delete(path for path in self._place.paths(_safe(table), f"{_safe(name)}_") if not path.startswith(kept))

    def discard_all(self, unwanted: Callable[[str], bool]) -> None:
        """Removes the files of all tables that are unwanted by their names."""
        self._delete(path for path in self._place.paths() if unwanted(_name(path)))

    def files(self, table: str | None = None) -> list[LetterFile]:
        """The files, or those of a table: the one with the oldest change first, those with the same by name.

        Raises:
            SinkError: a line is no letter.
        """
        found = [self._counted(path) for path in self._place.paths("" if table is None else _safe(table))]
        return sorted(filter(None, found), key=lambda file: (file.oldest, file.path.partition("/")[2], file.path))

    def read(self, file: LetterFile) -> tuple[pa.RecordBatch, list[str]]:
        """The rows, with :data:`connector.envelope.envelope.SCHEMA`, exactly as they were put, and their reasons.

        Raises:
            FileNotFoundError: it is gone, or another has taken its place.
            SinkError: a line is no letter.
        """
        data, version = self._place.read(file.path)
        if version != file.version:
            raise FileNotFoundError(file.path)
        return _decoded(self._full(file.path), data)

    def remove(self, file: LetterFile) -> bool:
        """Removes a file, unless another has taken its place; True if there is none any more."""
        return self._place.delete(file.path, file.version)

    def replace(self, file: LetterFile, rows: pa.RecordBatch, reasons: Sequence[str]) -> bool:
        """Leaves only these rows of a file, unless another has taken its place; True if they are what is there."""
        if not rows.num_rows:
            return self.remove(file)
        return self._place.write(file.path, _encoded(rows, reasons), file.version)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._place.delete(path, self._place.read(path)[1])

    def _counted(self, path: str) -> LetterFile | None:
        try:
            data, version = self._place.read(path)
        except FileNotFoundError:
            return None
        headings = list(_parsed(self._full(path), data, _HEADINGS))
        reasons = Counter(heading.reason for heading in headings)
        oldest = min((heading.event.change_sequence_number or "" for heading in headings), default="")
        return LetterFile(path, unquote(path.partition("/")[0]), reasons, oldest, version)

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"


class _Place(Protocol):
    """Where files lie, by paths relative to a root; a version is a file's own, and None stands for any or none."""

    def paths(self, folder: str = "", beginning: str = "") -> list[str]:
        """Of all files of letters, or of those in a folder whose names begin so."""

    def read(self, path: str) -> tuple[bytes, str]:
        """A file's bytes and its version; FileNotFoundError if there is none."""

    def write(self, path: str, data: bytes, version: str | None) -> bool:
        """Writes a file in place of that version of it; False if there is another or none."""

    def delete(self, path: str, version: str) -> bool:
        """Deletes that version of a file; False if there is another."""


def _place_at(root: str, endpoint: str) -> _Place:
    return _Objects(root, endpoint) if in_cloud_storage(root) else _Folder(Path(root))


class _Folder:
    """A folder of a local disk.

    Between the look at a version and what depends on it is no lock: two who write one file within microseconds are a
    replay and the sink that repeats a micro-batch, which writes the rows that were there.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._destination = LocalDestination(root)

    def paths(self, folder: str = "", beginning: str = "") -> list[str]:
        with self._faults(), suppress(FileNotFoundError):
            tables = [self._root / folder] if folder else list(self._root.iterdir())
            folders = [table for table in tables if table.is_dir() and not table.name.startswith(".")]
            files = [file for table in folders for file in table.iterdir() if file.name.startswith(beginning)]
            return [_path(file) for file in files if file.suffix == _ENDING and not file.name.startswith(".")]
        return []

    def read(self, path: str) -> tuple[bytes, str]:
        with self._faults(), (self._root / path).open("rb") as file:
            return file.read(), _version(os.fstat(file.fileno()))

    def write(self, path: str, data: bytes, version: str | None) -> bool:
        target = self._root / path
        with self._faults():
            if version not in (None, self._version_of(path)):
                return False
            for folder in (*reversed(self._root.parents), self._root, target.parent):
                if not folder.is_dir():
                    folder.mkdir(mode=0o700, exist_ok=True)
                    _sync(folder.parent)
            self._destination.put(path, data)
            for folder in (target.parent, self._root):  # others may have made them, or the file, just now
                _sync(folder)
        return True

    def delete(self, path: str, version: str) -> bool:
        with self._faults():
            found = self._version_of(path)
            if found == version:
                (self._root / path).unlink(missing_ok=True)
                _sync((self._root / path).parent)
        return found in (None, version)

    def _version_of(self, path: str) -> str | None:
        try:
            return _version((self._root / path).stat())
        except FileNotFoundError:
            return None

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SinkError(
                f"cannot use {error.filename or self._root}: {error.strerror or error}",
                hint=f"Give this user access to that path, or choose another with {_OPTION}.",
            ) from error
        except SinkError as error:
            hint = error.hint.replace("sink.path", _OPTION)
            raise SinkError(str(error.args[0]), hint=hint) from error.__cause__


class _Objects:
    """Objects below a prefix of a bucket; a version is an object's generation."""

    def __init__(self, url: str, endpoint: str) -> None:
        with with_extra_gcs(SinkError):
            from connector.storage.bucket import Bucket
        self._bucket = Bucket(url, failure=SinkError, option=_OPTION, endpoint=endpoint or None)

    def paths(self, folder: str = "", beginning: str = "") -> list[str]:
        found = self._bucket.sizes(f"{folder}/{beginning}" if folder else "")
        return [path for path in found if path.count("/") == 1 and path.endswith(_ENDING)]

    def read(self, path: str) -> tuple[bytes, str]:
        data, generation = self._bucket.get(path)
        return data, str(generation)

    def write(self, path: str, data: bytes, version: str | None) -> bool:
        try:
            self._bucket.put(path, data, generation=None if version is None else int(version))
        except FileExistsError:  # perhaps our own, whose answer was lost
            return self._holds(path, data)
        return True

    def delete(self, path: str, version: str) -> bool:
        self._bucket.delete(path, generation=int(version))
        return self._bucket.find(path) is None

    def _holds(self, path: str, data: bytes) -> bool:
        try:
            return self._bucket.get(path)[0] == data
        except FileNotFoundError:
            return False


class _Heading(msgspec.Struct):
    change_sequence_number: str | None = None


class _Headed(msgspec.Struct):
    """As much of a letter as is needed to count it."""

    reason: str
    event: _Heading


class _Letter(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    event: dict[str, object]


_Read = TypeVar("_Read", _Headed, _Letter)
_HEADINGS = msgspec.json.Decoder(_Headed)
_LETTERS = msgspec.json.Decoder(_Letter)


def _encoded(rows: pa.RecordBatch, reasons: Sequence[str]) -> bytes:
    if len(reasons) != rows.num_rows:
        raise ValueError(f"{rows.num_rows} rows have {len(reasons)} reasons")
    return b"".join(
        line
        for first in range(0, rows.num_rows, _SLICE)
        for line in _lines(rows.slice(first, _SLICE), reasons[first : first + _SLICE])
    )


def _lines(rows: pa.RecordBatch, reasons: Sequence[str]) -> Iterator[bytes]:
    columns = [_values(rows.column(field.name).cast(field.type)) for field in SCHEMA]
    for reason, *values in zip(reasons, *columns, strict=True):
        letter = {"reason": reason, "event": dict(zip(SCHEMA.names, values, strict=True))}
        yield orjson.dumps(letter, option=orjson.OPT_APPEND_NEWLINE)


def _values(column: pa.Array) -> list[object]:
    if not pa.types.is_timestamp(column.type):
        values: list[object] = column.to_pylist()
        return values
    return [None if at is None else format_rfc3339(at * 1000) for at in column.cast(pa.int64()).to_pylist()]


def _decoded(path: str, data: bytes) -> tuple[pa.RecordBatch, list[str]]:
    letters = list(_parsed(path, data, _LETTERS))
    try:
        columns = [_column(field, [letter.event.pop(field.name, None) for letter in letters]) for field in SCHEMA]
    except (ValueError, TypeError, OverflowError, pa.ArrowException):  # what it says might hold a row's values
        raise SinkError(f"cannot read {path}: an event is not as it was put") from None
    if any(letter.event for letter in letters):
        raise SinkError(f"cannot read {path}: its events have columns that this program does not know")
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), [letter.reason for letter in letters]


def _column(field: pa.Field, values: list[object]) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        moments = [None if text is None else parse(str(text)) // 1000 for text in values]
        return pa.array(moments, pa.int64()).cast(field.type)
    if field.type == SOURCE_METADATA:
        known = set(SOURCE_METADATA.names)
        if not all(isinstance(value, dict) and value.keys() <= known for value in values if value is not None):
            raise ValueError("fields that are not known")
    return pa.array(values, field.type)


def _parsed(path: str, data: bytes, decoder: "msgspec.json.Decoder[_Read]") -> Iterator[_Read]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # what it says might hold a row's values
            raise SinkError(
                f"cannot read {path}: line {number} is no dead letter",
                hint="Move that file away if something else wrote it.",
            ) from None


def _name(path: str) -> str:
    return unquote(path.rpartition("/")[2].removesuffix(_ENDING))


def _path(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _version(found: os.stat_result) -> str:
    return f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _safe(name: str) -> str:
    """A name as one part of a path."""
    safe = quote(name, safe=" ") or "%"
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    return safe if len(safe) <= _LONGEST else f"{safe[: _LONGEST - 20]}~{sha256(name.encode()).hexdigest()[:16]}"
