"""A virtual day of the BigQuery sink in each mode, on the double that counts.

``python -m tests.spark_sink.sinks.bigquery.deliveries.day`` runs it.

What a micro-batch takes is measured: the sink's own classes deliver some, of all tables, to the double, over its
interfaces. When micro-batches begin is decided by the sink's pace on a clock that runs through a day, with an epoch of
all tables each second; each is then counted by the double's meter, which refuses what is beyond BigQuery's quotas. The
jobs that BigQuery runs by itself to apply changes are counted as the double counts them, by max_staleness.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import click

from connector.config import Config
from connector.core.timestamps import SECOND
from emulator.bigquery.double import BigQueryDouble
from emulator.bigquery.meter import (
    APPLIES,
    CONNECTIONS,
    CONNECTIONS_OF_REGION,
    LOADS,
    MERGES,
    SCANNED,
    SERVICE,
    Meter,
)
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.pacing.quotas import HOUR
from spark_sink.sinks.bigquery.tables.table import MERGE, MERGE_LOAD
from spark_sink.sources.changes import epoch_stream as stream
from spark_sink.sources.changes.admission import EpochWeight
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun, configured
from tests.spark_sink.spools import START, SpoolMaker, record

MODES = ("merge", "merge-load", "append-only", "changelog")
DAY = 86_400
_EPOCH_BYTES = 20_000
_MEASURED = 4


@dataclass
class Clock:
    """A clock that is set; nanoseconds since 1970."""

    now: int = START + SECOND

    def __call__(self) -> int:
        return self.now

    def time(self) -> datetime:
        """The time as the double takes it."""
        return datetime.fromtimestamp(self.now // SECOND, UTC)


@dataclass(frozen=True)
class World:
    """A double that counts calls, and the sink in a mode with its default configuration."""

    double: BigQueryDouble
    clock: Clock
    maker: SpoolMaker
    mode: str
    tables: list[str]
    checkpoint: Checkpoint

    @classmethod
    @contextmanager
    def made(cls, folder: Path, mode: str, tables: int) -> Iterator["World"]:
        """A world whose quotas are BigQuery's."""
        clock = Clock()
        with BigQueryDouble.started(count_jobs=True, now=clock.time) as double:
            double.meter.limits.update(SERVICE)
            double.meter.most_open = CONNECTIONS_OF_REGION
            names = [f"Table{number}" for number in range(tables)]
            yield cls(double, clock, SpoolMaker(folder / mode), mode, names, Checkpoint([]))

    @property
    def staleness(self) -> int:
        """Nanoseconds, as the sink sets it in BigQuery."""
        sink = self._config().sink
        assert isinstance(sink, BigQueryConfig)
        return sink.max_staleness

    def sink(self) -> SinkRun:
        """A run of the sink."""
        return SinkRun(self._config(), self.checkpoint, clock=self.clock)

    def _config(self) -> Config:
        server = self.double
        return configured(
            self.maker.path,
            dataset="d",
            mode=self.mode,
            project=server.project,
            endpoint=server.endpoint,
            grpc_endpoint=server.grpc_endpoint,
            location="US",
        )

    def seal(self) -> None:
        """Seals an epoch with a row of each table."""
        self.maker.seal(*(record(self.clock.now, [1], table=table) for table in self.tables))

    def profile(self, size: int) -> dict[str, int]:
        """The calls of a micro-batch of all tables, each of this size, once they exist."""
        found: list[dict[str, int]] = []
        with self.sink() as sink:
            for _ in range(_MEASURED):
                self.seal()
                self._set_sizes(size)
                before = totals(self.double.meter)
                sink.delivery.drain()  # the pace is another's
                assert sink.run()
                after = totals(self.double.meter)
                found.append({kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]})
                self.clock.now += SECOND
        assert found[-1] == found[-2], "micro-batches are alike"
        return found[-1]

    def _set_sizes(self, size: int) -> None:
        for table in self.double.tables("d") if self.double.datasets() else []:
            self.double.set_size("d", table, size)


def totals(meter: Meter) -> Counter[str]:
    """The counts of a meter."""
    return Counter({kind: meter.total(kind) for kind in meter.kinds()})


def day(folder: Path, mode: str, tables: int = 50, size: int = 10**10, seconds: int = DAY) -> Meter:
    """Simulates a day; raises RefusedError where a quota is used up."""
    with mock.patch.object(stream, "NEWS_WAIT", 0.0), World.made(folder, mode, tables) as world:
        taken = world.profile(size)
        staleness, clock = world.staleness, world.clock
        with world.sink() as sink:
            pace = sink._reader._pace
    meter = Meter(clock.time)
    meter.limits.update(SERVICE)
    names = frozenset(world.tables)
    started = applied = clock.now
    pending: list[EpochWeight] = []
    for second in range(seconds):
        clock.now = started + second * SECOND
        epoch = 1000 + second
        pending.append(EpochWeight(epoch, None, tables, _EPOCH_BYTES, 1, "", names, clock.now))
        if mode == MERGE_LOAD and second % 20:  # its pace is slow: it is asked now and then
            continue
        if pace.holds(pace.gathered(pending)):
            continue
        pace.spend(pending)
        pending = []
        for kind, calls in taken.items():
            meter.count(kind, calls)
        if mode == MERGE and clock.now - applied >= staleness:
            applied = clock.now
            meter.count(APPLIES, tables)
            meter.count(SCANNED, tables * size)
    meter.peak_open = world.double.meter.peak_open
    return meter


QUOTAS = {kind: (limit.most, limit.seconds) for kind, limit in SERVICE.items()}
_SHOWN = ("CreateWriteStream", "FinalizeWriteStream", "BatchCommitWriteStreams", CONNECTIONS, "AppendRows", LOADS,
          MERGES, APPLIES, "jobs.insert", "tables.get", "tables.delete", SCANNED)  # fmt: skip


def report(mode: str, meter: Meter) -> Iterator[str]:
    """The lines of a table: a kind, how many in a day and in the worst hour, the quota, and the share taken."""
    for kind in [*_SHOWN, *(kind for kind in meter.kinds() if kind not in _SHOWN)]:
        total, worst = meter.total(kind), meter.worst_hour(kind)
        if not total:
            continue
        most, seconds = QUOTAS.get(kind, (0, 0))
        share = f"{100 * (worst if seconds == HOUR else total) / most:.1f} %" if most else ""
        quota = f"{_number(kind, most)} {'an hour' if seconds == HOUR else 'a day'}" if most else ""
        line = (mode, kind, _number(kind, total), _number(kind, worst), quota, share)
        yield "| " + " | ".join(line) + " |"


def _number(kind: str, amount: int) -> str:
    return f"{amount / 2**40:.1f} TiB" if kind == SCANNED else f"{amount:,}"


@click.command()
@click.option("--tables", default=50, show_default=True)
@click.option("--gigabytes", default=10, show_default=True, help="Of each table.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="Only this one; may be repeated.")
def main(tables: int, gigabytes: int, modes: tuple[str, ...]) -> None:
    """Prints what a day takes of BigQuery's quotas at the default configuration; fails where that is more than all."""
    click.echo(f"{tables} tables of {gigabytes} GB, a row of each every second, default configuration")
    click.echo("| mode | what | a day | worst hour | quota | share |")
    click.echo("|---|---|--:|--:|--:|--:|")
    for mode in modes or MODES:
        with tempfile.TemporaryDirectory() as folder:
            meter = day(Path(folder), mode, tables, gigabytes * 10**9)
        for line in report(mode, meter):
            click.echo(line)


if __name__ == "__main__":
    main()
