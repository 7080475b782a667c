"""A sink's report in the spool, for the status page: what it delivered and rejected, and tables that are stopped.

The sink is a process of its own, perhaps on another machine. The daemon reads the report when it prunes the spool.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from pydantic import Field

from connector.core.health.alarms import FailedSink, Mended
from connector.errors import SpoolError
from connector.spool.consumers import REPORT
from connector.spool.manifest import Document, DocumentPart, Timestamp
from connector.spool.reading import Spool, to_json


class SinkFailure(DocumentPart):
    """The error with which a sink has ended.

    Attributes:
        time: when, in nanoseconds since 1970.
        message: one line, without values of rows.
        hint: what to do; empty if the message says it.
        exit_code: of the command.
    """

    time: Timestamp
    message: str
    hint: str = ""
    exit_code: int = 1


class CutReport(DocumentPart):
    """The newest cut that a sink has published.

    Attributes:
        timestamp: the commit timestamp up to which the sink's tables have every change, Unix nanoseconds.
        epoch: its epoch.
        published_at: the time of publication, Unix nanoseconds, by the clock of the sink's machine.
        incomplete: why a table is not complete all the same, by its name in the source.
    """

    timestamp: Timestamp
    epoch: int = Field(ge=1)
    published_at: Timestamp
    incomplete: dict[str, str] = Field(default_factory=dict)


class WrittenTable(DocumentPart):
    """A table at a sink's destination, as the sink last left it.

    Attributes:
        id: the table's own, which no other table of its name has; empty if it is not known.
        epoch: an epoch up to which the table was seen to have everything.
        up_to: the commit timestamp up to which it had everything; it was seen to have that, or a commit had it.
    """

    id: str = ""
    epoch: int = Field(default=0, ge=0)
    up_to: Timestamp = 0


class SinkReport(Document):
    """A sink's report.

    Attributes:
        first: the first epoch of the newest micro-batch with rejected or incomplete rows; 0 before there was one.
        refused: rows that became dead letters, including those that were replayed since.
        replayed: rows of these, and of the sink's backfills, that were no dead letters any more after the last replay.
        dead_letters: the root of the sink's dead-letter store, a whole path or URL, since a start without any left;
            empty if it is not known.
        stopped: why a table is stopped, by its name in the source.
        lacking: the commit timestamp up to which a table that was stopped lacks changes, because its dead letters were
            removed, or not found, and it continues without them.
        written: the tables at the destination, by their names in the source, where the destination may lose them.
        lost: the commit timestamp from which on a backfill has what a table lost, because it was dropped or set back to
            an older state at the destination.
        incomplete: rows that were delivered without columns, because Spanner no longer keeps them as of their commit
            (``source.complete_rows``).
        batches: micro-batches that were delivered.
        events: events of these.
        last: the last epoch of the newest; 0 before there was one.
        delivered_at: when it was delivered, in nanoseconds since 1970, by the clock of the sink's machine.
        failure: the error with which the sink has ended; None once it delivers again.
        restarts: times that its process has ended with a transient error and was restarted, since the spool began.
        restarted_at: when it last was, in nanoseconds since 1970.
        restarted_after: the error before, in one line without values of rows; empty if it is not known.
        cut: the newest cut that it has published; None before there was one.
        maintained_at: when it last made the files of a table fewer, or removed old versions of one, in nanoseconds
            since 1970.
        unmaintained: why that failed for a table, by its name in the destination.
    """

    first: int = Field(ge=0)
    refused: int = Field(ge=0)
    replayed: int = Field(default=0, ge=0)
    dead_letters: str = ""
    stopped: dict[str, str]
    lacking: dict[str, Timestamp] = Field(default_factory=dict)
    written: dict[str, WrittenTable] = Field(default_factory=dict)
    lost: dict[str, Timestamp] = Field(default_factory=dict)
    incomplete: int = Field(default=0, ge=0)
    batches: int = Field(default=0, ge=0)
    events: int = Field(default=0, ge=0)
    last: int = Field(default=0, ge=0)
    delivered_at: Timestamp = 0
    failure: SinkFailure | None = None
    restarts: int = Field(default=0, ge=0)
    restarted_at: Timestamp = 0
    restarted_after: str = ""
    cut: CutReport | None = None
    maintained_at: Timestamp = 0
    unmaintained: dict[str, str] = Field(default_factory=dict)

    def delivered(self, last: int, events: int, now: int) -> "SinkReport":
        """The report after a micro-batch that ends with epoch ``last``; a repeated one is counted once."""
        if last <= self.last:
            return self.model_copy(update={"failure": None})
        counted = {"batches": self.batches + 1, "events": self.events + events, "failure": None}
        return self.model_copy(update={**counted, "last": last, "delivered_at": now})

    def after(self, first: int, refused: int, tables: Mapping[str, str], incomplete: int = 0) -> "SinkReport":
        """The report after rejected or incomplete rows of a micro-batch.

        Args:
            first: its first epoch. A micro-batch that is repeated has the same one and is counted once.
            refused: its rows that became dead letters.
            tables: why each of its tables is stopped; empty if it is not.
            incomplete: its rows that were delivered without columns.
        """
        stopped = {table: why for table, why in {**self.stopped, **tables}.items() if why}
        if not (refused or incomplete) or first <= self.first:
            return self.model_copy(update={"stopped": stopped})
        counted = {"refused": self.refused + refused, "incomplete": self.incomplete + incomplete}
        return self.model_copy(update={**counted, "first": first, "stopped": stopped})

    def lacks(self, tables: Iterable[str], up_to: int) -> "SinkReport":
        """The report after stopped tables have continued without their dead letters, up to a commit timestamp."""
        lacking = {table: max(up_to, self.lacking.get(table, up_to)) for table in tables}
        return self.model_copy(update={"lacking": {**self.lacking, **lacking}})

    def loses(self, tables: Mapping[str, int]) -> "SinkReport":
        """The report after tables have lost rows; a backfill as of these commit timestamps, or later, has them."""
        lost = {table: max(at, self.lost.get(table, at)) for table, at in tables.items()}
        return self.model_copy(update={"lost": {**self.lost, **lost}})

    def found(self, table: str) -> "SinkReport":
        """The report after dead letters of a table are found again, and are written."""
        return self.model_copy(update={"lacking": {one: at for one, at in self.lacking.items() if one != table}})

    def restarted(self, now: int, why: str = "") -> "SinkReport":
        """The report after a restart of the sink's process, and the error before."""
        counted = {"restarts": self.restarts + 1, "restarted_at": now, "restarted_after": why}
        return self.model_copy(update=counted)

    def without(self, table: str) -> "SinkReport":
        """The report after a table is no longer stopped."""
        return self.model_copy(update={"stopped": {name: why for name, why in self.stopped.items() if name != table}})


NOTHING = SinkReport(first=0, refused=0, stopped={})


def stopped_by(reports: Iterable[SinkReport]) -> dict[str, str]:
    """The reasons why sinks have stopped tables, by table. Pure."""
    return {table: why for report in reports for table, why in report.stopped.items()}


def report_of(spool: Spool, consumer: str) -> SinkReport:
    """A sink's report; an empty one if there is none, or if it is damaged: the sink replaces it.

    Raises:
        SpoolError: it cannot be read.
    """
    return spool.find_valid(_path(consumer), SinkReport) or NOTHING


def reports_of(spool: Spool) -> dict[str, SinkReport]:
    """The reports of all sinks, by their names.

    Raises:
        SpoolError: one cannot be read.
    """
    names = [file.removesuffix(REPORT) for file in spool.storage.list("consumers") if file.endswith(REPORT)]
    return {name: report_of(spool, name) for name in names}


def failed_sinks(reports: Mapping[str, SinkReport]) -> list[FailedSink]:
    """The sinks that have ended with an error, and have delivered nothing since."""
    failures = [(name, report.failure) for name, report in reports.items() if report.failure is not None]
    return [FailedSink(name, one.time, one.message, one.hint) for name, one in failures]


def works_again(spool: Spool, consumer: str) -> None:
    """Records that a sink which had failed has done a micro-batch, even one without events.

    Raises:
        SpoolError: the report cannot be read or written.
    """
    report = report_of(spool, consumer)
    if report.failure is not None:
        write_report(spool, consumer, report.model_copy(update={"failure": None}))


def restarts(reports: Mapping[str, SinkReport]) -> Mended:
    """The number of restarts of these sinks' processes, and the time and the cause of the last."""
    times = sum(report.restarts for report in reports.values())
    last = max(reports.values(), key=lambda report: report.restarted_at, default=NOTHING)
    return Mended(times, last.restarted_at, last.restarted_after)


def write_report(spool: Spool, consumer: str, report: SinkReport) -> None:
    """Replaces a sink's report.

    Raises:
        SpoolError: it cannot be written.
    """
    spool.storage.replace(_path(consumer), to_json(report))


def record_restart(spool: Spool, consumer: str, now: int, why: str) -> None:
    """Counts a restart of a sink's process in its report; a spool that refuses it prevents no restart.

    Args:
        spool: the sink's.
        consumer: the sink.
        now: Unix nanoseconds.
        why: the error before, in one line without values of rows.
    """
    with suppress(SpoolError):
        if spool.storage.exists("spool.json"):
            write_report(spool, consumer, report_of(spool, consumer).restarted(now, why))


def _path(consumer: str) -> str:
    return f"consumers/{consumer}{REPORT}"
