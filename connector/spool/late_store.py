"""The dead letters of the reader: late records and incomplete transactions, below ``late/`` in the spool.

Each record is one JSON document. For a data change record it holds the whole record, as private as the epochs are. For
a record that announces partitions it holds those partitions, and the range of commit timestamps that may be incomplete.
All transactions that lack records share one document: of which tables those records are is not known.

A file's name begins with that range, so that a report needs only the names, and ends with the record's identity. If a
record is received again, after a crash or by a repeated task, there is no second document. Of an announcement the
document with the wider range is kept. If two tasks store one at the same time, it is counted once.

The partitions of a late announcement are in no cut until the next epoch is sealed. If the reader ends before that, they
are found here: :func:`with_announced_late`.

No record is deleted here. Beyond :data:`MOST` documents or :data:`MOST_BYTES` the reader stops.
"""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b

import orjson
import pyarrow as pa

from connector.core.epoch import IncompleteTransaction
from connector.core.late_records import LateRecord, LateReport
from connector.core.partitions import CutPartition
from connector.core.records import (
    ChildPartitionsRecord,
    PartitionStartRecord,
    Record,
    function_of,
    partition_id,
    token_of,
)
from connector.core.timestamps import format_rfc3339
from connector.errors import StreamError
from connector.spool.manifest import DocumentPart, Model, Timestamp, parsed
from connector.spool.reading import Spool

MOST = 1000
"""Documents beyond which the reader stops."""

MOST_BYTES = 64 * 1024 * 1024
"""Bytes of documents beyond which the reader stops."""

_FOLDER = "late"
_OF_TRANSACTIONS = blake2b(b"incomplete transactions", digest_size=10).hexdigest()
"""The identity of the document of all incomplete transactions."""

_VERSION = 1
_NAME = re.compile(r"(?P<first>\d{20})-(?P<last>\d{20})-(?P<identity>[0-9a-f]+)\.json")


@dataclass(frozen=True, slots=True)
class LateRange:
    """Commit timestamps of which epochs may lack changes, because a record came late or never.

    Attributes:
        first: the first of them.
        last: the last of them, inclusive.
        table: of the changes; None if they may be of every table.
    """

    first: int
    last: int
    table: str | None


class _Announces(DocumentPart):
    start: Timestamp
    tokens: tuple[str, ...]


class _Announcement(DocumentPart):
    """The fields of a document about the partitions that its record announces, which may be none."""

    watermark: Timestamp
    delivered: Timestamp
    announces: _Announces
    function: str | None = None


class _Range(DocumentPart):
    first: Timestamp
    last: Timestamp


class _Named(DocumentPart):
    table_name: str | None = None


class _Lateness(DocumentPart):
    """The fields of a document about the changes that may be missing."""

    incomplete: _Range | None
    record: _Named


class LateRanges:
    """The changes that may be missing by the late records of a spool; each document is read once.

    Args:
        spool: the spool, which another process may write.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._known: dict[str, LateRange | None] = {}

    def now(self) -> list[LateRange]:
        """The ranges of the documents that there are.

        Raises:
            SpoolError: a document cannot be read.
        """
        while True:
            paths = [f"{_FOLDER}/{name}" for name in _names(self._spool)]
            new = [path for path in paths if path not in self._known]
            try:
                for path, data in zip(new, self._spool.storage.read_each(new), strict=True):
                    self._known[path] = self._range(path, data)
            except FileNotFoundError:
                continue  # it was replaced by one with a wider range
            return [found for path in paths if (found := self._known[path]) is not None]

    def _range(self, path: str, data: pa.Buffer) -> LateRange | None:
        one = _fields(_Lateness, self._spool, path, data)
        lost = one.incomplete
        return None if lost is None else LateRange(lost.first, lost.last, one.record.table_name)


def late_report(spool: Spool) -> LateReport:
    """Counts the late records and incomplete transactions of a spool.

    Raises:
        SpoolError: the spool cannot be read.
    """
    names = [name for name in map(_NAME.fullmatch, _names(spool)) if name]
    if not names:
        return LateReport()
    count = len({name["identity"] for name in names})
    return LateReport(count, min(int(name["first"]) for name in names), max(int(name["last"]) for name in names))


def with_announced_late(
    spool: Spool, watermark: int, cut: Iterable[CutPartition], *, continues: bool
) -> tuple[CutPartition, ...]:
    """The newest epoch's cut, with the partitions that were announced after epochs had passed their start.

    A cut that was made before the announcement lacks them, and their parents do not announce them again.

    Args:
        spool: the spool.
        watermark: of the newest epoch, in Unix nanoseconds.
        cut: the newest epoch's.
        continues: whether the reader continues after late records. Then it reads those partitions from their own
            start, unless epochs were sealed beyond the watermark of that time; their records up to it are late.

    Raises:
        SpoolError: a document cannot be read.
    """
    partitions = {at.token: at for at in cut}
    paths = [f"{_FOLDER}/{name}" for name in _names(spool)]
    for path, data in zip(paths, spool.storage.read_each(paths), strict=True):
        one = _fields(_Announcement, spool, path, data)
        start = one.announces.start
        if start > watermark or watermark > one.watermark:
            continue
        for token in (partition_id(token, one.function) for token in one.announces.tokens):
            if token in partitions or watermark <= one.delivered:
                partitions[token] = CutPartition(token, start, is_late=continues)
    return tuple(partitions.values())


class LateStore:
    """Writes late records and incomplete transactions into a spool, whose lock is held.

    Args:
        spool: the spool.
        most: documents beyond which the reader stops.
        most_bytes: bytes of documents beyond which the reader stops.
    """

    def __init__(self, spool: Spool, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._spool = spool
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[str, int] | None = None
        """Of each document, by its path; None before the first one is written."""

    def keep(self, late: Iterable[LateRecord | IncompleteTransaction], *, now: int) -> None:
        """Writes the documents, durably.

        Args:
            late: the records, or transactions that lack some.
            now: when they were received, in Unix nanoseconds.

        Raises:
            StreamError: there are more than the limits; these are written nevertheless.
            SpoolError: the disk refuses.
        """
        sizes = self._known_sizes()
        for one in late:
            path, data = self._document(one, now)
            others = [other for other in sizes if other != path and _identity(other) == _identity(path)]
            if isinstance(one, LateRecord) and any(other > path for other in others):
                continue  # with a wider range, because the range begins with the record's own timestamp
            self._spool.storage.replace(path, data)
            sizes[path] = len(data)
            self._spool.storage.delete(*others)
            for other in others:
                del sizes[other]
        if len(sizes) > self._most or sum(sizes.values()) > self._most_bytes:
            raise StreamError(
                f"the spool has {len(sizes)} late records, of {sum(sizes.values())} bytes, in"
                f" {self._spool.storage.full(_FOLDER)}: more than the {self._most} records and {self._most_bytes}"
                " bytes up to which the reader continues",
                hint="Find out what they are, move them away, and start again: it continues from the last epoch.",
            )

    def _document(self, one: LateRecord | IncompleteTransaction, now: int) -> tuple[str, bytes]:
        """The path and the content of the document of a record, or of all incomplete transactions up to this one."""
        if isinstance(one, LateRecord):
            return _of_record(one, now)
        names = [name for path in self._known_sizes() if (name := _NAME.search(path))]
        ranges = [name.group("first", "last") for name in names if name["identity"] == _OF_TRANSACTIONS]
        timestamps = [one.commit_timestamp, *(int(timestamp) for both in ranges for timestamp in both)]
        return _of_transactions(one, min(timestamps), max(timestamps), now)

    def _known_sizes(self) -> dict[str, int]:
        if self._sizes is None:
            paths = [f"{_FOLDER}/{name}" for name in _names(self._spool)]
            contents = self._spool.storage.read_each(paths)
            self._sizes = {path: data.size for path, data in zip(paths, contents, strict=True)}
        return self._sizes


def _fields(kind: type[Model], spool: Spool, path: str, data: pa.Buffer) -> Model:
    """The fields of a document that a model has."""
    return parsed(kind, data.to_pybytes(), spool.storage.full(path), "fields are missing", _VERSION)


def _names(spool: Spool) -> list[str]:
    return [name for name in spool.storage.list(_FOLDER) if _NAME.fullmatch(name)]


def _identity(path: str) -> str:
    return path.rpartition("-")[2]


def _of_transactions(newest: IncompleteTransaction, first: int, last: int, now: int) -> tuple[str, bytes]:
    """The path and the content of the document of incomplete transactions, of which one is the newest."""
    document = {
        "version": _VERSION,
        "kind": "incomplete transactions",
        "watermark": format_rfc3339(last),
        "delivered": format_rfc3339(last),
        "announces": {"start": format_rfc3339(last), "tokens": []},
        "received_at": format_rfc3339(now),
        "incomplete": {"first": format_rfc3339(first), "last": format_rfc3339(last)},
        "record": {
            "server_transaction_id": newest.server_transaction_id,
            "commit_timestamp": format_rfc3339(newest.commit_timestamp),
            "number_of_records_in_transaction": newest.expected,
            "received_records": newest.received,
        },
    }
    return f"{_FOLDER}/{first:020d}-{last:020d}-{_OF_TRANSACTIONS}.json", _to_json(document)


def _of_record(late: LateRecord, now: int) -> tuple[str, bytes]:
    first, last = late.incomplete or (late.at, late.at)
    record = _record(late.record)
    named = {name: value for name, value in record.items() if name != "read_timestamp"}
    digest = blake2b(_to_json([late.partition, named]), digest_size=10).hexdigest()
    function = function_of(late.partition)
    document = {
        "version": _VERSION,
        "kind": late.kind,
        "partition": token_of(late.partition),
        **({} if function is None else {"function": function}),
        "proved_up_to": format_rfc3339(late.passed),
        "watermark": format_rfc3339(late.watermark),
        "delivered": format_rfc3339(late.delivered),
        "announces": {"start": format_rfc3339(late.at), "tokens": list(_announced(late.record))},
        "received_at": format_rfc3339(now),
        "incomplete": late.incomplete and {"first": format_rfc3339(first), "last": format_rfc3339(last)},
        "record": record,
    }
    return f"{_FOLDER}/{first:020d}-{last:020d}-{digest}.json", _to_json(document)


def _announced(record: Record) -> tuple[str, ...]:
    match record:
        case ChildPartitionsRecord():
            return tuple(child.token for child in record.children)
        case PartitionStartRecord():
            return record.tokens
        case _:
            return ()


def _record(record: Record) -> dict[str, object]:
    """The record's fields; timestamps as RFC 3339, payloads as Spanner sent them."""
    fields = asdict(record)
    return {
        name: format_rfc3339(value) if name == "timestamp" or name.endswith("_timestamp") else value
        for name, value in fields.items()
    }


def _to_json(node: object) -> bytes:
    return orjson.dumps(node, default=sorted, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
