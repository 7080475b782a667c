"""The dead-letter store of a sink: the events that the destination rejected, with the reasons, until they are replayed.

Dead letters of a table that are rejected together are one file, ``{table}/{name}.jsonl``, with one dead letter a line::

    {"reason": "...", "event": {"stream_name": "...", ..., "payload": "{...}", "before": null, "epoch": 7}}

``event`` holds the envelope's columns (:data:`connector.envelope.envelope.SCHEMA`) by their names, without loss:
timestamps as RFC 3339; ``payload`` and ``before`` as strings, which keep every byte of their JSON, in Spanner's own
encoding. It differs from a line of a file of events, where values are converted by the table's schema and old values
are absent. An event that was rejected because of its schema must be kept without the schema.

A file appears whole or not at all, and is durable when a call returns; on a local disk it is private to its user.
Several processes may write at once. Dead letters hold rows, and reasons may hold values: neither is logged.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec
import orjson
import pyarrow as pa

from connector.config.sinks import SinkConfig, SinkType
from connector.core.timestamps import format_rfc3339, parse
from connector.envelope.envelope import SCHEMA
from connector.envelope.source_metadata import COMPLETED
from connector.spool.storage.locations import absolute
from connector.spool.storage.opening import open_store
from connector.spool.storage.store import FileStore, StoredFile, contents
from spark_sink.errors import DestinationUnavailableError, SinkError
from spark_sink.sinks.shared.completing.whole_rows import METADATA_WITH_COMPLETED, are_completed

C = TypeVar("C", bound=SinkConfig)


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a file whose rejected rows the replay has kept in another one: how many there are."""

    count: int


class Replay(Protocol):
    """Sends dead letters to the destination again."""

    def send(self, name: str, rows: pa.RecordBatch) -> list[tuple[int, str]] | Moved | None:
        """Sends the rows of a file of that name, which are of one table.

        The same rows are sent again if the process ended before their file was removed. It is removed before this is
        called for another file, and before the replay ends without an error.

        Returns:
            The index and the reason of each row that was rejected again; None if the rows have to wait. Rejected rows
            stay in the file, unless they are :class:`Moved`.
        """

    def tried(self, table: str, *, left: int) -> None:
        """Dead letters of a table, by its name in the source, were sent, and ``left`` of its dead letters remain."""


_OPTION = "sink.dead_letters"
_ENDING = ".jsonl"
_COMPLETED = pa.schema(
    [pa.field(one.name, METADATA_WITH_COMPLETED) if one.name == "source_metadata" else one for one in SCHEMA]
)
_LONGEST = 200
"""Characters of a part of a path: a disk allows 255 bytes, and the temporary name is longer than the file's."""

_SLICE = 1024
"""Rows that are Python objects at a time."""


@dataclass(frozen=True, slots=True)
class DeadLetterFile:
    """A file of dead letters, as it was when it was read.

    Attributes:
        path: relative to the root of its store.
        table: its name in the source; a very long one is truncated.
        reasons: how many dead letters have each reason.
        oldest: the smallest change sequence number.
        version: changes whenever the file is written.
        store: holds it.
    """

    path: str
    table: str
    reasons: Mapping[str, int]
    oldest: str
    version: str
    store: FileStore = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name under which it was put; a very long one is truncated."""
        return _name(self.path)

    @property
    def count(self) -> int:
        """The number of dead letters in the file."""
        return sum(self.reasons.values())


class DeadLetters:
    """The dead-letter store of a sink.

    Args:
        root: an absolute path of the local disk, or ``gs://bucket/prefix``; made with the first dead letter.
        endpoint: a Cloud Storage emulator's address, or empty.
        former: a regular expression of this sink's files in the folder above the root: the last name of the root, a
            slash and the name of a file. In an older program the sinks of all types shared that folder.

    Raises:
        SinkError: from every method, if the disk or Cloud Storage refuses.
    """

    @classmethod
    def of(cls, kind: SinkType[C], sink: C) -> "DeadLetters":
        """The store of a sink."""
        endpoints = [place.endpoint for place in kind.locations(sink) if place.path == sink.dead_letters]
        former = kind.former_names or rf"{sink.type}/[0-9a-f]+_{re.escape(sink.type)}(\..+)?(_\d+)+"
        return cls(absolute(sink.dead_letters), next(filter(None, endpoints), ""), former=former)

    def __init__(self, root: str, endpoint: str = "", *, former: str = "") -> None:
        self.root = root
        self._own = _store(root, endpoint)
        above, _, folder = root.rpartition("/")
        self._is_former: Callable[[str], object] = re.compile(former.removeprefix(f"{folder}/")).fullmatch
        self._former = _store(above, endpoint) if former.startswith(f"{folder}/") else None

    def put(self, table: str, name: str, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Writes rows as dead letters, durably; without rows it does nothing.

        Args:
            table: the rows' table.
            name: of the file. Writing the same name again replaces the file: a micro-batch that is repeated may have
                other texts for the reasons.
            rows: with the envelope's columns.
            reasons: one for each row.
        """
        if rows.num_rows:
            path = f"{_safe(table)}/{_safe(name)}{_ENDING}"
            self._own.put(path, _encoded(rows, reasons))
            if self._former is not None:
                _delete(self._former, path)

    def discard(self, table: str, name: str, *, but: Iterable[str] = ()) -> None:
        """Removes the files of a table whose names start with ``name`` and a ``_``.

        Files whose names start with one of ``but`` and a ``_`` stay.
        """
        spared = tuple(f"{_safe(table)}/{_safe(other)}_" for other in but)
        for store, file in self._found(f"{_safe(table)}/{_safe(name)}_"):
            if not file.path.startswith(spared):
                _delete(store, file.path)

    def discard_all(self, unwanted: Callable[[str], bool]) -> None:
        """Removes the files, of all tables, for whose names ``unwanted`` is true."""
        for store, file in self._found():
            if unwanted(_name(file.path)):
                _delete(store, file.path)

    def folders(self, *beginnings: str) -> frozenset[str]:
        """The folders of tables (:func:`folder_of`) that have a file, or one whose name begins in one of these ways.

        A file whose lines somebody has removed does not count.
        """
        paths = (file.path for _, file in self._found() if file.size)
        named = (path for path in paths if not beginnings or _name(path).startswith(beginnings))
        return frozenset(path.partition("/")[0] for path in named)

    def files(self, table: str | None = None, *beginnings: str) -> list[DeadLetterFile]:
        """All files, or those of a table, sorted by their oldest change and then by name; also those without lines.

        Args:
            table: the table; None for all.
            beginnings: of the names of the files, any of them; none for all names.

        Raises:
            SinkError: a line is not a valid dead letter.
        """
        there = self._found("" if table is None else f"{_safe(table)}/")
        named = ((store, file.path) for store, file in there if _name(file.path).startswith(beginnings or ""))
        found = [_counted(store, path) for store, path in named]
        return sorted(filter(None, found), key=lambda file: (file.oldest, file.path.partition("/")[2], file.path))

    def read(self, file: DeadLetterFile) -> tuple[pa.RecordBatch, list[str]]:
        """The rows, with :data:`connector.envelope.envelope.SCHEMA`, exactly as they were put, and their reasons.

        Rows that were completed keep the field that says so (:mod:`spark_sink.sinks.shared.completing.whole_rows`).

        Raises:
            FileNotFoundError: the file is gone, or it was replaced.
            SinkError: a line is not a valid dead letter.
        """
        data, version = file.store.read_version(file.path)
        if version != file.version:
            raise FileNotFoundError(file.path)
        return _decoded(file.store.full(file.path), data)

    def remove(self, file: DeadLetterFile) -> bool:
        """Removes a file unless it was replaced; returns whether there is no such file any more."""
        return file.store.delete_version(file.path, file.version)

    def replace(self, file: DeadLetterFile, rows: pa.RecordBatch, reasons: Sequence[str]) -> bool:
        """Keeps only these rows of a file, unless it was replaced; returns whether the file has exactly these rows."""
        if not rows.num_rows:
            return self.remove(file)
        data = _encoded(rows, reasons)
        try:
            file.store.replace(file.path, data, version=file.version)
        except FileExistsError:
            return contents(file.store, file.path) == data  # this call's own write, if its answer was lost
        return True

    def _found(self, beginning: str = "") -> list[tuple[FileStore, StoredFile]]:
        """The files in the tables' folders whose paths start so."""
        found = [(self._own, file) for file in self._own.walk(beginning)]
        if self._former is not None:
            former = self._former.walk(beginning)
            found += [(self._former, file) for file in former if self._is_former(_name(file.path))]
        return [(store, file) for store, file in found if _is_of_table(file.path)]


def _store(path: str, endpoint: str) -> FileStore:
    return open_store(
        path, failure=SinkError, unavailable=DestinationUnavailableError, option=_OPTION, endpoint=endpoint
    )


def _is_of_table(path: str) -> bool:
    return path.count("/") == 1 and path.endswith(_ENDING) and "/." not in f"/{path}"


def _delete(store: FileStore, path: str) -> None:
    with suppress(FileNotFoundError):
        store.delete_version(path, store.read_version(path)[1])


def _counted(store: FileStore, path: str) -> DeadLetterFile | None:
    try:
        data, version = store.read_version(path)
    except FileNotFoundError:
        return None
    headings = list(_parsed(store.full(path), data, _HEADINGS))
    reasons = Counter(heading.reason for heading in headings)
    oldest = min((heading.event.change_sequence_number or "" for heading in headings), default="")
    return DeadLetterFile(path, unquote(path.partition("/")[0]), reasons, oldest, version, store)


def folder_of(table: str) -> str:
    """The name of a table's folder in a store."""
    return _safe(table)


class _Heading(msgspec.Struct):
    change_sequence_number: str | None = None


class _Headed(msgspec.Struct):
    """As much of a dead letter as counting needs."""

    reason: str
    event: _Heading


class _DeadLetter(msgspec.Struct, forbid_unknown_fields=True):
    reason: str
    event: dict[str, object]


_Read = TypeVar("_Read", _Headed, _DeadLetter)
_HEADINGS = msgspec.json.Decoder(_Headed)
_ENTRIES = msgspec.json.Decoder(_DeadLetter)


def _encoded(rows: pa.RecordBatch, reasons: Sequence[str]) -> bytes:
    if len(reasons) != rows.num_rows:
        raise ValueError(f"{rows.num_rows} rows have {len(reasons)} reasons")
    return b"".join(
        line
        for first in range(0, rows.num_rows, _SLICE)
        for line in _lines(rows.slice(first, _SLICE), reasons[first : first + _SLICE])
    )


def _lines(rows: pa.RecordBatch, reasons: Sequence[str]) -> Iterator[bytes]:
    schema = SCHEMA if are_completed(rows) is None else _COMPLETED
    columns = [_values(rows.column(field.name).cast(field.type)) for field in schema]
    for reason, *values in zip(reasons, *columns, strict=True):
        dead_letter = {"reason": reason, "event": dict(zip(SCHEMA.names, values, strict=True))}
        yield orjson.dumps(dead_letter, option=orjson.OPT_APPEND_NEWLINE)


def _values(column: pa.Array) -> list[object]:
    if not pa.types.is_timestamp(column.type):
        values: list[object] = column.to_pylist()
        return values
    return [None if at is None else format_rfc3339(at * 1000) for at in column.cast(pa.int64()).to_pylist()]


def _decoded(path: str, data: bytes) -> tuple[pa.RecordBatch, list[str]]:
    dead_letters = list(_parsed(path, data, _ENTRIES))
    schema = _COMPLETED if any(_is_marked(one.event) for one in dead_letters) else SCHEMA
    try:
        columns = [_column(field, [one.event.pop(field.name, None) for one in dead_letters]) for field in schema]
    except (ValueError, TypeError, OverflowError, pa.ArrowException):  # its text might hold a row's values
        raise SinkError(f"cannot read {path}: an event has a value of another type than its column") from None
    if any(one.event for one in dead_letters):
        raise SinkError(f"cannot read {path}: its events have columns that this program does not know")
    return pa.RecordBatch.from_arrays(columns, schema=schema), [one.reason for one in dead_letters]


def _is_marked(event: dict[str, object]) -> bool:
    """True if an event says that its row was completed, or could not be."""
    metadata = event.get("source_metadata")
    return isinstance(metadata, dict) and COMPLETED in metadata


def _column(field: pa.Field, values: list[object]) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        timestamps = [None if text is None else parse(str(text)) // 1000 for text in values]
        return pa.array(timestamps, pa.int64()).cast(field.type)
    if pa.types.is_struct(field.type):
        known = {one.name for one in field.type}
        if not all(isinstance(value, dict) and value.keys() <= known for value in values if value is not None):
            raise ValueError("unknown fields")
    return pa.array(values, field.type)


def _parsed(path: str, data: bytes, decoder: "msgspec.json.Decoder[_Read]") -> Iterator[_Read]:
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():  # an editor leaves one where the last line was removed
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):  # its text might hold a row's values
            raise SinkError(
                f"cannot read {path}: line {number} is not a valid dead letter",
                hint="Move that file away if something else wrote it.",
            ) from None


def _name(path: str) -> str:
    return unquote(path.rpartition("/")[2].removesuffix(_ENDING))


def _safe(name: str) -> str:
    """A name as one part of a path."""
    safe = quote(name, safe=" ") or "%"
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    return safe if len(safe) <= _LONGEST else f"{safe[: _LONGEST - 20]}~{sha256(name.encode()).hexdigest()[:16]}"
