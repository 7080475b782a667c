"""Dead letters of a micro-batch that broke off after some units: the repeat, which writes the rest, counts them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connector.config.address import DatabaseAddress
from connector.spool import consumers
from connector.spool.sink_report import NOTHING, SinkReport
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sinks.shared.reports import TaskReport
from spark_sink.sinks.spanner import source
from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.source import EpochsToApply, SpannerPlace, SpannerSinkReader
from spark_sink.sinks.spanner.writing.progress import Claimed
from spark_sink.sinks.spanner.writing.units import Unit, UnitPosition
from spark_sink.sinks.spanner.writing.writer import Rejection, WrittenUnits
from tests.spark_sink.spools import START, SpoolMaker, record

ADDRESS = DatabaseAddress("p", "i", "d")
APPLYING = Applying(mode="rows", tables={}, columns={}, metadata=False)


class KilledError(Exception):
    """Simulates the kill of a process."""


class Destination:
    """A destination that rejects ids above 10, and its bookkeeping row.

    Attributes:
        ends_before: the process is killed before a unit that starts in that epoch.
    """

    def __init__(self) -> None:
        self.position = UnitPosition(1, 0)
        self.tables: dict[str, object] = {}
        self.ends_before = 0

    def claim(self, first: UnitPosition | None) -> Claimed:
        return Claimed(self.position, "")

    def advance(self, start: UnitPosition, end: UnitPosition) -> None:
        self.position = end

    def write(self, unit: Unit) -> Iterator[WrittenUnits]:
        if unit.start.epoch == self.ends_before:
            raise KilledError
        changes = list(unit.changes)
        bad = [one for one in changes if int(one.payload.partition('"Id":"')[2].partition('"')[0]) > 10]
        yield WrittenUnits({"Singers": len(changes) - len(bad)}, [Rejection(one, "why", "why") for one in bad])
        self.position = unit.end

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def destination(monkeypatch: pytest.MonkeyPatch) -> Destination:
    there = Destination()

    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[tuple[Destination, Destination]]:
        yield there, there

    for name, stand_in in {
        "connected": connected,
        "UnitWriter": lambda *_: there,
        "WritePlanner": lambda *_: None,
        "omissions_of": lambda *_: None,
        "MOST_CHANGES": {"rows": 1},  # a unit for each transaction
    }.items():
        monkeypatch.setattr(source, name, stand_in)
    return there


@pytest.fixture
def maker(spool: SpoolMaker) -> SpoolMaker:
    """Three epochs of two transactions, the second of each with a row that is rejected."""
    consumers.register(spool.spool, "spanner", now=START)
    for epoch in range(1, 4):
        at = START + 10 * epoch
        spool.seal(record(at, [epoch]), record(at + 1, [epoch + 10]))
    return spool


def reports(maker: SpoolMaker, folder: Path, first: int = 1, last: int = 3) -> list[TaskReport]:
    """The reports of a task, or those before it was killed, which are lost."""
    place = SpannerPlace(ADDRESS, "", str(folder / "dead-letters"), ADDRESS)
    task = EpochsToApply(maker.path, "spanner", place, APPLYING, tuple(maker.spool.manifests(first, last)))
    rows = [row for batch in SpannerSinkReader.written(None, task) for row in batch.to_pylist()]  # type: ignore[arg-type]
    return [TaskReport(**row) for row in rows]


def after(before: SinkReport, found: list[TaskReport]) -> SinkReport:
    """The sink's report after a micro-batch."""
    return before.after(found[0].first, sum(one.rejected for one in found), {}) if found else before


def stored(folder: Path) -> int:
    return sum(file.count for file in DeadLetters(str(folder / "dead-letters")).files())


@pytest.mark.parametrize("ends_before", [2, 3])
def test_a_repeated_micro_batch_counts_what_was_rejected_before_it_broke_off(
    destination: Destination, maker: SpoolMaker, tmp_path: Path, ends_before: int
) -> None:
    destination.ends_before = ends_before
    with pytest.raises(KilledError):
        reports(maker, tmp_path)
    assert stored(tmp_path) == ends_before - 1
    destination.ends_before = 0
    assert after(NOTHING, reports(maker, tmp_path)).refused == stored(tmp_path) == 3


def test_a_micro_batch_that_breaks_off_twice_is_counted_once(
    destination: Destination, maker: SpoolMaker, tmp_path: Path
) -> None:
    for destination.ends_before in (2, 3):
        with pytest.raises(KilledError):
            reports(maker, tmp_path)
    destination.ends_before = 0
    assert after(NOTHING, reports(maker, tmp_path)).refused == stored(tmp_path) == 3


def test_a_micro_batch_that_was_applied_but_not_recorded_is_counted_once(
    destination: Destination, maker: SpoolMaker, tmp_path: Path
) -> None:
    lost = after(NOTHING, reports(maker, tmp_path))
    assert lost.refused == 3
    repeated = reports(maker, tmp_path)
    assert after(NOTHING, repeated).refused == 3
    assert after(lost, repeated).refused == 3, "Spark had not committed what the spool has recorded"


def test_dead_letters_of_other_micro_batches_and_sinks_are_not_counted_again(
    destination: Destination, maker: SpoolMaker, tmp_path: Path
) -> None:
    counted = after(NOTHING, reports(maker, tmp_path, last=1))
    store = DeadLetters(str(tmp_path / "dead-letters"))
    (file,) = store.files()
    rows, why = store.read(file)
    store.put("Singers", f"{maker.spool_id}_spanner.other_2_0", rows, why)
    destination.ends_before = 3
    with pytest.raises(KilledError):
        reports(maker, tmp_path, first=2)
    destination.ends_before = 0
    assert after(counted, reports(maker, tmp_path, first=2)).refused == 3
