"""The maintenance of tables that are none, with a clock of the test's."""

from dataclasses import dataclass, field

import pytest

from connector.core.timestamps import SECOND
from connector.spool.sink_report import NOTHING, report_of, write_report
from spark_sink.errors import SinkError
from spark_sink.sinks.tables.maintenance.maintenance import Maintenance, forget_failures
from spark_sink.sinks.tables.maintenance.table_files import TableFiles
from spark_sink.sinks.tables.maintenance.upkeep import Upkeep
from tests.spark_sink.spools import SpoolMaker

MIB = 1024 * 1024
DAY = 24 * 3600
MANY, FEW = TableFiles(51, MIB), TableFiles(1, MIB)


@dataclass
class Time:
    """A clock that stands still unless it is moved."""

    seconds: float = 1_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> int:
        return int(self.seconds * SECOND)


@dataclass
class Tables(Upkeep):
    """Tables whose compaction takes some seconds."""

    time: Time
    found: dict[str, TableFiles]
    created: set[str]
    takes: float = 0.0
    fails: str = ""
    is_gone: str = ""
    is_long: bool = False
    did: list[str] = field(default_factory=list)

    def files(self, name: str) -> TableFiles:
        return self.found[name]

    def compact(self, name: str) -> None:
        self.time.seconds += self.takes
        if self.fails:
            raise SinkError(self.fails)
        self.found[name] = FEW
        self.did.append(f"compact {name}")

    def expire(self, name: str, keep: int, now: int) -> None:
        assert (keep, now) == (DAY * 1000, int(self.time.seconds * 1000))
        self.did.append(f"expire {name}")

    def has_many_versions(self, name: str, now: int) -> bool:
        assert now == int(self.time.seconds * 1000)
        return self.is_long and name in self.found

    def is_created(self, name: str) -> bool:
        if self.is_gone:
            raise SinkError(self.is_gone)
        return name in self.created


@dataclass
class Sink:
    """The maintenance of a sink, which looks as the sink does."""

    maker: SpoolMaker
    time: Time
    tables: Tables
    all_tables: bool = False

    def __post_init__(self) -> None:
        self.maintenance = self.made()

    def made(self) -> Maintenance:
        return Maintenance(
            self.maker.spool, "tables", DAY * SECOND,
            all_tables=self.all_tables, clock=self.time.monotonic, now=self.time.now,
        )  # fmt: skip

    def look(self, *excepted: str) -> str | None:
        table = self.maintenance.next_table(lambda: excepted)
        if table is not None:
            self.maintenance.look(table, self.tables)
        return table


@pytest.fixture
def sink(spool: SpoolMaker) -> Sink:
    spool.fill(1)
    time = Time()
    return Sink(spool, time, Tables(time, {"A": MANY, "B": FEW, "C": MANY}, {"A", "B", "C"}))


@pytest.mark.parametrize(
    ("files", "are_many"),
    [
        (TableFiles(50, 0), False),
        (TableFiles(51, 0), True),
        (TableFiles(2, MIB, 51), True),
        (TableFiles(200, 200 * 64 * MIB), False),
        (TableFiles(260, 200 * 64 * MIB), True),
    ],
)
def test_files_are_many_by_what_the_size_of_a_table_needs(files: TableFiles, *, are_many: bool) -> None:
    assert files.are_many == are_many


def test_a_table_with_many_files_is_compacted_and_another_is_not(sink: Sink) -> None:
    sink.maintenance.written(["A", "B"])
    assert sink.look() == "A"
    assert sink.look() is None, "a pause follows each look"
    sink.time.seconds += 2
    assert sink.look() == "B"
    assert sink.tables.did == ["compact A"]
    assert report_of(sink.maker.spool, "tables").maintained_at == (1_000_000 * SECOND)


def test_no_more_than_a_tenth_of_the_time_is_taken(sink: Sink) -> None:
    sink.tables.takes = 60
    sink.maintenance.written(["A", "C"])
    sink.look()
    sink.time.seconds += 539
    assert sink.look() is None
    sink.time.seconds += 1
    assert sink.look() == "C"


def test_a_table_is_looked_at_again_after_ten_minutes_if_it_was_written_since(sink: Sink) -> None:
    sink.maintenance.written(["A"])
    sink.look()
    sink.time.seconds += 5
    sink.maintenance.written(["A"])
    assert sink.look() is None
    sink.time.seconds += 600
    assert sink.look() == "A"
    sink.time.seconds += 10_000
    assert sink.look() is None


def test_old_versions_are_removed_a_day_after_the_first_look_and_once_a_day_over_restarts(sink: Sink) -> None:
    for hours in (0, 23, 1, 12, 11, 1):
        sink.time.seconds += hours * 3600
        sink.maintenance = sink.made()  # another process of the sink
        sink.maintenance.written(["B"])
        sink.look()
    assert sink.tables.did == ["expire B", "expire B"]


def test_of_very_many_versions_old_ones_are_removed_at_each_look(sink: Sink) -> None:
    sink.tables.is_long = True
    for _ in range(2):
        sink.maintenance.written(["B"])
        sink.look()
        sink.time.seconds += 600
    assert sink.tables.did == ["expire B", "expire B"]


def test_tables_of_others_are_left_alone_unless_all_are_to_be_maintained(sink: Sink) -> None:
    sink.tables.created = set()
    sink.maintenance.written(["A"])
    sink.look()
    sink.time.seconds += 1000
    sink.maintenance.written(["A"])
    assert sink.look() is None, "it is not asked again"
    assert sink.tables.did == []
    sink.all_tables = True
    sink.maintenance = sink.made()
    sink.maintenance.written(["A"])
    sink.look()
    assert sink.tables.did == ["compact A"]


def test_a_table_that_another_process_writes_waits(sink: Sink) -> None:
    sink.maintenance.written(["A"])
    assert sink.look("A") is None
    assert sink.look() is None, "whether it still does is read from the spool, once a minute"
    sink.time.seconds += 60
    assert sink.look() == "A"


def test_a_failure_is_reported_until_the_table_is_maintained_and_keeps_no_other_from_it(
    sink: Sink, capfd: pytest.CaptureFixture[str]
) -> None:
    sink.tables.fails = "another commit came first"
    sink.maintenance.written(["A", "C"])
    sink.look()
    assert report_of(sink.maker.spool, "tables").unmaintained == {"A": "another commit came first"}
    sink.tables.fails = ""
    sink.time.seconds += 2
    sink.look()
    assert sink.tables.did == ["compact C"]
    assert report_of(sink.maker.spool, "tables").unmaintained == {"A": "another commit came first"}
    sink.time.seconds += 600
    sink.maintenance.written(["A"])
    sink.look()
    assert sink.tables.did == ["compact C", "compact A"]
    assert report_of(sink.maker.spool, "tables").unmaintained == {}


def test_a_failure_is_reported_no_longer_once_a_look_finds_nothing_to_do(sink: Sink) -> None:
    sink.tables.is_gone = "the catalog does not answer"
    sink.maintenance.written(["B"])
    sink.look()
    assert report_of(sink.maker.spool, "tables").unmaintained == {"B": "the catalog does not answer"}
    sink.tables.is_gone = ""
    sink.time.seconds += 600
    assert sink.look() == "B", "also if nothing was written since"
    assert sink.tables.did == []
    report = report_of(sink.maker.spool, "tables")
    assert (report.unmaintained, report.maintained_at) == ({}, 0)


@pytest.mark.parametrize("is_others", [False, True])
def test_a_failure_that_an_earlier_process_has_reported_is_looked_at_again(sink: Sink, *, is_others: bool) -> None:
    sink.tables.is_gone = "the catalog does not answer"
    sink.maintenance.written(["B"])
    sink.look()
    sink.tables.is_gone = ""
    if is_others:  # somebody has created it again
        sink.tables.created.remove("B")
    sink.maintenance = sink.made()
    assert sink.look() == "B"
    assert report_of(sink.maker.spool, "tables").unmaintained == {}


def test_a_sink_that_maintains_no_table_any_more_reports_none_as_not_maintained(spool: SpoolMaker) -> None:
    spool.fill(1)
    write_report(spool.spool, "tables", NOTHING.model_copy(update={"unmaintained": {"A": "why"}, "maintained_at": 7}))
    forget_failures(spool.spool, "tables")
    report = report_of(spool.spool, "tables")
    assert (report.unmaintained, report.maintained_at) == ({}, 7)
