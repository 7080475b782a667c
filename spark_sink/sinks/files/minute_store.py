"""The published cuts of the file sink: a document for each minute that its watermark has passed, also for empty ones.

The sink's own record in the spool has the first minute without a document, the newest cut, and the files of the minute
that is not over: a minute may be delivered in several micro-batches. It is written last. If the sink is killed before,
the micro-batch is repeated with the same files, and a document that is there already is compared with what would be
written.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pydantic import ValidationError

from connector.core.timestamps import MINUTE, format_rfc3339
from connector.log import Log
from connector.spool.consumers import MINUTES
from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.sink_report import report_of
from connector.spool.storage.store import FileStore, contents
from spark_sink.sinks.files.complete_minutes import CompleteMinute, hour_folder, minute_of
from spark_sink.sinks.files.writer import WrittenFile
from spark_sink.sinks.shared.published_cut import CutStore, PublishedCut

_HOUR = 60
_LISTED = 24 * _HOUR
"""The newest minutes that are listed."""

_PARALLEL = 16
"""Documents that are written at a time: in Cloud Storage each takes some 50 ms, and after a week there are 10,000."""

_log = Log(__name__)


@dataclass(slots=True)
class DeliveredFiles:
    """The files that a delivery has written, and of which no record is kept yet.

    Attributes:
        first: the first epoch of its first micro-batch with events; None before there was one.
        low: the watermark before that epoch, whose manifest may be pruned since, Unix nanoseconds.
        last: the last epoch of its last micro-batch with events.
        before: that of the sink before that delivery, as of :func:`last_delivered`.
        files: by their paths; those of a repeated micro-batch are the same ones.
    """

    first: int | None = None
    low: int = 0
    last: int = 0
    before: int | None = None
    files: dict[str, WrittenFile] = field(default_factory=dict)


def last_delivered(spool: Spool, sink: str) -> int | None:
    """The last epoch of a sink's newest micro-batch with events; None if programs without cuts may have run since.

    Raises:
        SpoolError: the sink's report cannot be read.
    """
    report = report_of(spool, sink)
    return report.last if report.cut is not None else None


class _Record(Document):
    """The sink's record.

    Attributes:
        next: the first minute without a document, its first nanosecond.
        cut: the newest cut; None before one was published whole.
        files: those of that minute and of later ones.
    """

    next: Timestamp
    cut: PublishedCut | None = None
    files: tuple[WrittenFile, ...] = ()


class MinuteStore(CutStore):
    """The documents of one sink.

    Args:
        destination: the files' store.
        spool: the change stream's.
        sink: the sink's name.
        delivered: what its delivery has written.
    """

    def __init__(
        self, destination: FileStore, spool: Spool, sink: str, delivered: DeliveredFiles | None = None
    ) -> None:
        self._destination = destination
        self._spool = spool
        self._sink = sink
        self._delivered = delivered or DeliveredFiles()
        self._path = f"consumers/{sink}{MINUTES}"
        self._known: _Record | None = None
        self._continues = False

    def newest(self) -> PublishedCut | None:
        """The newest cut, also one within a minute, which has no document."""
        record = self._record()
        return record.cut if record is not None else None

    def cuts(self) -> Sequence[PublishedCut]:
        """The complete minutes of the newest 24 hours that have a document, oldest first."""
        record = self._record()
        if record is None:
            return []
        end = record.next // MINUTE
        hours = [hour_folder(minute) for minute in range(end - _LISTED, end + _HOUR, _HOUR)]
        names = (f"{hour}/{name}" for hour in hours for name in self._destination.list(hour) if name.endswith(".json"))
        spool_id = self._spool.header().spool_id
        read = (_parsed(data.to_pybytes()) for data in self._destination.read_each(names))
        found = (one for one in read if one is not None and (one.spool_id, one.sink) == (spool_id, self._sink))
        return [one.as_cut() for one in found if end - _LISTED <= one.minute // MINUTE < end]

    def publish(self, cut: PublishedCut) -> None:
        """As :meth:`publish_up_to`; every minute has the cut's reasons."""
        self.publish_up_to(cut, lambda _: cut.incomplete)

    def publish_up_to(self, cut: PublishedCut, incomplete: Callable[[int], Mapping[str, str]]) -> None:
        """Writes the documents of the minutes that the cut has passed, an hour after the other, and records the cut.

        Each has the reasons as of its end: a backfill or a repair does not complete what was delivered before.
        """
        record = self._record()
        begin = self._begin(cut)
        if record is not None and begin * MINUTE > record.next:
            _log.warning(
                "some minutes get no document: another program may have delivered files of them, and the epochs that"
                " would show it are pruned",
                first_minute=format_rfc3339(record.next),
                next_document=format_rfc3339(begin * MINUTE),
            )
        end = max(begin, (cut.timestamp + 1) // MINUTE)
        files = {file.path: file for file in (record.files if record else ())} | self._delivered.files
        of_minutes: dict[int, list[WrittenFile]] = defaultdict(list)
        for file in files.values():
            of_minutes[minute_of(file)].append(file)
        before = record.cut if record is not None else None
        with ThreadPoolExecutor(_PARALLEL, "minutes") as pool:
            for first in range(begin, end, _HOUR):
                last = min(first + _HOUR, end)
                made = (
                    CompleteMinute.of(at, of_minutes.get(at, ()), cut, self._sink, incomplete((at + 1) * MINUTE - 1))
                    for at in range(first, last)
                )
                list(pool.map(self._write, made))
                if last < end:
                    self._keep(last, before, of_minutes)
        self._keep(end, cut, of_minutes)
        self._delivered.files.clear()
        self._continues = True

    def _keep(self, following: int, cut: PublishedCut | None, files: Mapping[int, Iterable[WrittenFile]]) -> None:
        left = tuple(file for minute in sorted(files) if minute >= following for file in files[minute])
        record = _Record(next=following * MINUTE, cut=cut, files=left)
        self._spool.storage.replace(self._path, to_json(record))
        self._known = record

    def _write(self, document: CompleteMinute) -> None:
        try:
            self._destination.create(document.path, document.to_json())
        except FileExistsError:
            data = contents(self._destination, document.path)
            found = _parsed(data) if data is not None else None
            if found is None or not document.has_files_of(found):
                _log.warning(
                    "the document of a complete minute is another sink's or another spool's, or names other files: it"
                    " stays; give each sink a sink.path of its own",
                    path=self._destination.full(document.path),
                    minute=format_rfc3339(document.minute),
                )

    def _begin(self, cut: PublishedCut) -> int:
        """The first minute without a document, counted since 1970, of which every file is known.

        A program without this record, or one whose record was removed, may have delivered files that are not known:
        then it is the first minute after these. The minute in which the spool begins counts as whole, because there is
        nothing before.
        """
        record = self._record()
        if record is None or record.cut is None:
            after, is_start = self._known_after(0, cut)
            return (after + 1) // MINUTE if is_start else -(-(after + 1) // MINUTE)
        if self._continues or self._has_all_files(record.cut.epoch, cut.epoch):
            return record.next // MINUTE
        after, continues = self._known_after(record.cut.epoch, cut)
        return record.next // MINUTE if continues else -(-(after + 1) // MINUTE)

    def _has_all_files(self, published: int, epoch: int) -> bool:
        """True if no other process has delivered files between the published epoch and another.

        A micro-batch with events is published before it is recorded as done. So none is missing if the sink's report
        knows of none after the published epoch, except this process's own.
        """
        delivered, last = self._delivered, last_delivered(self._spool, self._sink)
        if last is None:
            return False
        if delivered.first is None or delivered.first > epoch:
            return last <= published
        follows = delivered.first <= published or (delivered.before is not None and delivered.before <= published)
        return follows and last <= max(delivered.last, published)

    def _known_after(self, before: int, cut: PublishedCut) -> tuple[int, bool]:
        """The timestamp after which every file up to a cut is known, and whether all are after the epoch ``before``."""
        spool, first = self._spool, self._delivered.first or cut.epoch + 1
        oldest = max(spool.floor(), before + 1)
        after, all_known = cut.timestamp, False
        if first <= cut.epoch:
            after, all_known = self._delivered.low, first <= before + 1
        for epoch in spool.summaries(oldest, first - 1):
            if epoch.epoch == oldest:
                after, all_known = epoch.watermark_low, oldest == before + 1
            if epoch.files:
                after, all_known = epoch.watermark_high, False
        since = max(self._delivered.last, before) + 1
        if first <= cut.epoch and since < spool.floor():  # another process has delivered them
            since = spool.floor()
            after, all_known = spool.manifest(since).watermark_low, False
        for epoch in spool.summaries(max(since, first), cut.epoch):
            if epoch.files:
                after, all_known = epoch.watermark_high, False
        return after, all_known

    def _record(self) -> _Record | None:
        if self._known is None:
            self._known = self._spool.find(self._path, _Record, "it is not a valid record of minutes")
        return self._known


def _parsed(data: bytes) -> CompleteMinute | None:
    try:
        return CompleteMinute.model_validate_json(data)
    except ValidationError:
        return None
