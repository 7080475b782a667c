"""Reads what was committed: live, by a daemon into a spool, and again, by a bounded ``tail``; compares both."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from connector.core.timestamps import SECOND, format_rfc3339, parse
from connector.envelope.events import EventWriter
from connector.errors import SpoolError
from connector.spool.reading import Spool
from spark_sink.self_test.commands import CommandError, Done, Running, SelfTestCommands
from spark_sink.self_test.comparison import HistoryComparison
from spark_sink.self_test.database import TestDatabase
from spark_sink.self_test.report import Observation, ProbeStatus, SelfTestReport
from spark_sink.self_test.tables import CHANGED, WHOLE
from spark_sink.self_test.workload import Committed

_START_PATIENCE = 120.0
_READ_PATIENCE = 300.0
_PERCENTILES = (50, 90, 100)

Event = Mapping[str, Any]


@dataclass(slots=True)
class StreamReading:
    """Reads the database's change streams.

    Args:
        test: the database.
        commands: run ``spanner-cdc``.
        folder: for spools.
        report: gets the checks and observations.
    """

    test: TestDatabase
    commands: SelfTestCommands
    folder: Path
    report: SelfTestReport

    @property
    def spool(self) -> Path:
        """The spool of the stream that sinks deliver."""
        return self.spool_of(WHOLE)

    def spool_of(self, kind: str) -> Path:
        """The spool that the daemon of a change stream writes."""
        return self.folder / f"spool-{kind}"

    def source(self, kind: str, **more: object) -> dict[str, object]:
        """The section ``source`` of a configuration that reads a change stream."""
        named = {"database": self.test.id, "change_stream": self.test.names.of(kind)}
        return {**self.test.options.server, **named, "workers": 1, **more}

    def configured(self, name: str, spool: Path, source: Mapping[str, object], **more: object) -> Path:
        """Writes a configuration with its own spool, for a process that runs beside others."""
        node = {
            "source": source,
            "spool": {"path": str(spool)},
            "status": {"port": 0},
            "sink": {"type": "files", "path": str(self.folder / "unused"), "dead_letters": str(self.folder / "none")},
            **more,
        }
        return self.commands.configured(name, node)

    @contextmanager
    def live(self, kind: str) -> Iterator["Daemon"]:
        """A daemon that reads a change stream from now on, while the context is open.

        Raises:
            CommandError: it does not start.
        """
        path = self._config_of(kind)
        with self.commands.started("read", path, "--stdin-lifeline") as running:
            daemon = Daemon(running, Spool.at(self.spool_of(kind)))
            running.until(daemon.has_started, "its start is recorded", _START_PATIENCE)
            yield daemon

    def _config_of(self, kind: str) -> Path:
        """The configuration of the daemon that reads a change stream."""
        return self.configured(f"live-{kind}", self.spool_of(kind), self.source(kind))

    def check_spool(self, kind: str, end: int) -> None:
        """Compares a spool with what was committed, and with a second read of the change stream (``audit``)."""
        differences = self._spool_differences(kind)
        if differences and self.test.options.is_emulated and all(one.startswith("missing: ") for one in differences):
            self._read_again(kind, end)
            differences = self._spool_differences(kind)
        self.compared(f"daemon and spool of the stream {kind}", differences, _mods(self.test.committed))
        done = self.commands.run("audit", self._config_of(kind), "--json")
        if done.code == 0 or (done.code == 1 and done.out):  # an error has the code of findings, and no report
            node = json.loads(done.out)
            found = map(json.dumps, node["first_findings"])
            status = ProbeStatus.GOOD if done.code == 0 else ProbeStatus.DIFFERENT
            detail = f"{node['transactions']} transactions, {node['findings']} findings"
            self.report.check(f"audit of the spool of the stream {kind}", status, detail, found)
        else:
            self.failed(f"audit of the spool of the stream {kind}", done)

    def check_tail(self, kind: str, start: int, end: int) -> list[Event]:
        """Reads a change stream from ``start`` to ``end``, in the past, and compares; returns its events."""
        arguments = self.test.options.arguments
        arguments += ["--database", self.test.id, "--change-stream", self.test.names.of(kind)]
        arguments += ["--start", format_rfc3339(start), "--end", format_rfc3339(end)]
        name = f"tail of the stream {kind}"
        done = self.commands.run("tail", *arguments)
        if done.code:
            self.failed(name, done)
            return []
        events = [orjson.loads(line) for line in done.out.splitlines()]
        tables, committed = self.test.history_of(kind)
        comparison = HistoryComparison(tables, committed, whole_rows=kind != CHANGED, ordered=True, tags=self.tags)
        self.compared(name, comparison.differences(events), _mods(committed))
        return events

    def observe_events(self, events: list[Event], skew: float) -> None:
        """Notes what the events show of the service: latency, tags, partitions and records of a transaction."""
        received: dict[str, int] = {}  # of each transaction the last record
        for event in self._spool_events(WHOLE):
            at = parse(event["read_timestamp"])
            received[event["source_timestamp"]] = max(at, received.get(event["source_timestamp"], 0))
        delays = sorted((at - parse(committed)) / SECOND for committed, at in received.items())
        if delays:
            shown = ", ".join(f"p{p} {delays[min(len(delays) * p // 100, len(delays) - 1)]:.3f}" for p in _PERCENTILES)
            self._saw(
                f"seconds from a commit to its last record, of {len(delays)} transactions",
                f"{shown}; Spanner's clock is {skew:+.3f} s from this machine's",
            )
        metadata = [event["source_metadata"] for event in events]
        tags = {one["transaction_tag"] for one in metadata}
        self._saw("transaction tags", f"{len(tags - {''})} of 1 are returned")
        if metadata:
            partitions = max(int(one["number_of_partitions_in_transaction"]) for one in metadata)
            records = max(int(one["number_of_records_in_transaction"]) for one in metadata)
            self._saw("the largest transaction", f"{records} records, on {partitions} partitions")

    @property
    def tags(self) -> bool:
        """True if the server keeps transaction tags; the emulator does not."""
        return not self.test.options.is_emulated

    def compared(self, name: str, differences: list[str], count: int) -> None:
        """Adds the check of a comparison of ``count`` mods."""
        status = ProbeStatus.DIFFERENT if differences else ProbeStatus.GOOD
        detail = f"{len(differences)} differences" if differences else "every mod once, as it was committed"
        self.report.check(name, status, f"{count} mods: {detail}", differences)

    def failed(self, name: str, done: Done) -> None:
        """Adds the check of a command that failed."""
        self.report.check(name, ProbeStatus.FAILED, f"exit code {done.code}: {done.words}")

    def _spool_events(self, kind: str) -> Iterator[Event]:
        spool = Spool.at(self.spool_of(kind))
        writer = EventWriter(spool.schema)
        for manifest in spool.manifests(spool.floor(), spool.latest()):
            for file in manifest.files:
                for batch in spool.batches(file):
                    yield from map(orjson.loads, writer.lines(batch))

    def _spool_differences(self, kind: str) -> list[str]:
        comparison = HistoryComparison(self.test.tables, self.test.committed, ordered=True, tags=self.tags)
        return comparison.differences(self._spool_events(kind))

    def _read_again(self, kind: str, end: int) -> None:
        """Reads what a live query of the emulator has skipped: it returns everything to bounded queries."""
        self._saw("live queries of the emulator", "skipped a transaction, as this emulator is known to: read again")
        start = Spool.at(self.spool_of(kind)).header().start
        shutil.rmtree(self.spool_of(kind))
        source = self.source(kind, start=format_rfc3339(start), end=format_rfc3339(end))
        done = self.commands.run("read", self.configured("again", self.spool_of(kind), source))
        if done.code:
            raise CommandError(f"`spanner-cdc read` ended with {done.code}: {done.words}")

    def _saw(self, about: str, detail: str) -> None:
        self.report.observations.append(Observation.seen(about, detail))


def _mods(committed: Sequence[Committed]) -> int:
    return sum(len(transaction.mods) for transaction in committed)


@dataclass(slots=True)
class Daemon:
    """A daemon that reads into a spool."""

    running: Running
    spool: Spool

    def has_started(self) -> bool:
        """True if its start is resolved, so that every later commit is read."""
        try:
            self.spool.header()
        except (FileNotFoundError, SpoolError):
            return False
        return True

    def finish(self, last: int) -> Done:
        """Waits until everything up to the ``last`` commit is sealed, and drains.

        A later timestamp would be sealed at the end of its minute only, because an idle stream has nothing to seal.

        Raises:
            CommandError: it ended, or the watermark does not reach ``last``.
        """
        what = f"the watermark has passed {format_rfc3339(last)}"
        self.running.until(lambda: self._reaches(last), what, _READ_PATIENCE)
        return self.running.stop()

    def _reaches(self, last: int) -> bool:
        latest = self.spool.latest()
        return latest > 0 and self.spool.manifest(latest).watermark_high >= last
