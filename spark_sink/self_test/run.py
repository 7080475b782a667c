"""One self-test from its beginning to its end: makes, writes, reads, delivers, compares, probes, and deletes."""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from connector.config import SourceConfig
from connector.core.dialects import DIALECTS, IMMUTABLE, MUTABLE
from connector.errors import ConfigurationError, SpannerCdcError, line_and_exit_code
from connector.extras import EXTRAS, installation, is_installed
from connector.spool.reading import Spool
from connector.spool.storage.opening import open_store
from spark_sink.errors import SinkError
from spark_sink.self_test.commands import PROGRAM, CommandError, SelfTestCommands
from spark_sink.self_test.database import Leftovers, TestDatabase
from spark_sink.self_test.delivering import Delivering
from spark_sink.self_test.errors import SPANNER_ERRORS, words_of
from spark_sink.self_test.options import Names, Options
from spark_sink.self_test.probes import open_questions, placements
from spark_sink.self_test.probes.change_stream import (
    Asking,
    HeldQuery,
    ProbedRange,
    bounded_queries,
    heartbeats,
    keys_only,
    refusals,
)
from spark_sink.self_test.reading import Event, StreamReading
from spark_sink.self_test.report import Observation, ProbeStatus, SelfTestReport
from spark_sink.self_test.tables import CHANGED, KEYS, PLACED, WHOLE
from spark_sink.self_test.tables import MUTABLE as MUTABLE_STREAM
from spark_sink.sinks.bigquery.tables.table import BigQueryTarget

Say = Callable[[str], None]


@dataclass(slots=True)
class SelfTest:
    """A self-test.

    Attributes:
        options: of the command line.
        names: of what it makes.
        say: prints a line of progress.
        program: runs ``spanner-cdc``.
    """

    options: Options
    names: Names
    say: Say
    program: Sequence[str] = PROGRAM

    def run(self, failed: Callable[[Exception], None]) -> tuple[SelfTestReport, int]:
        """Runs it; returns what was found, and the exit code. Deletes what it made in any case.

        Args:
            failed: called with an error that ends it early, before anything is deleted.
        """
        report, left = SelfTestReport(self.options, self.names), Leftovers()
        try:
            code = self._run_to_its_end(report, left, failed)
            if left.made:
                self.say("deleting what was made")
        finally:
            report.left_over = left.delete()
        return report, code or int(not report.is_good)

    def _run_to_its_end(self, report: SelfTestReport, left: Leftovers, failed: Callable[[Exception], None]) -> int:
        """Runs it; returns the exit code of the error that ended it, or 0."""
        try:
            with tempfile.TemporaryDirectory(prefix="spanner-cdc-self-test-") as folder:
                self._run(Path(folder), report, left)
        except KeyboardInterrupt:
            report.error, code = "it was stopped", 130
        except Exception as error:  # noqa: BLE001 - whatever it is, what was made is deleted
            failed(error)
            report.error, code = _line(error)
        else:
            code = 0
        return code

    def _run(self, folder: Path, report: SelfTestReport, left: Leftovers) -> None:
        self._check_environment()
        self.say("making tables and change streams")
        test = TestDatabase.make(self.options, self.names, left)
        report.observations += [
            Observation.seen(f"creating {name}", f"refused: {words}") for name, words in test.refused.items()
        ]
        reading = StreamReading(test, SelfTestCommands(folder, self.program), folder, report)
        start = test.now()
        held = HeldQuery(self._asking(reading, WHOLE), start)
        with held.held():
            end = self._write_and_read(reading, start)
            self._probe(reading, start, end)
            if self.options.with_spark:
                self._deliver(reading, end, left)
            else:
                report.check("sinks", ProbeStatus.SKIPPED, "--without-spark")
        report.observations.append(held.observation())

    def _check_environment(self) -> None:
        """Checks the installed libraries, and that the destinations exist.

        Raises:
            ConfigurationError: naming everything that is missing.
            SinkError: a destination cannot be reached.
        """
        needed = (
            ("spark", "sinks (or --without-spark)", self.options.with_spark),
            ("bigquery", "--dataset", self.options.dataset),
            ("gcs", "--bucket", self.options.bucket),
        )
        if missing := [
            f"{what}: needs {installation(extra)}"
            for extra, what, is_used in needed
            if is_used and not is_installed(*EXTRAS[extra])
        ]:
            raise ConfigurationError(missing)
        if self.options.with_spark:
            from spark_sink.session import need_java  # imports PySpark

            need_java()
        if self.options.bucket_url:
            open_store(self.options.bucket_url, failure=SinkError, option="--bucket").find(self.names.prefix)
        if self.options.dataset:
            from spark_sink.sinks.bigquery.client import BigQueryClient

            client = BigQueryClient(self._target(), patience=60.0)
            if not client.dataset_exists(self.options.dataset):
                raise ConfigurationError([f"--dataset: there is no dataset {self.options.dataset}: create it"])

    def _write_and_read(self, reading: StreamReading, start: int) -> int:
        """Commits the workload while a daemon reads, and compares; returns a timestamp after the last commit."""
        test, report = reading.test, reading.report
        skew = test.clock_skew()
        kinds = [kind for kind in (WHOLE, MUTABLE_STREAM) if kind in test.streams]
        with ExitStack() as stack:
            daemons = {kind: stack.enter_context(reading.live(kind)) for kind in kinds}
            self.say("writing, while a daemon reads")
            test.write()
            if {KEYS, PLACED} & set(test.streams):
                test.write_unwatched()
            end, last = test.now(), test.committed[-1].timestamp
            ended = {kind: daemon.finish(last) for kind, daemon in daemons.items()}
        for kind, done in ended.items():
            if done.code:
                reading.failed(f"daemon of the stream {kind}", done)
        self.say("comparing the spool, and reading again")
        for kind in kinds:
            reading.check_spool(kind, end)
        events: list[Event] = []
        for kind in (WHOLE, CHANGED, MUTABLE_STREAM):
            if kind in test.streams:
                found = reading.check_tail(kind, start, end)
                events = found if kind == WHOLE else events
            else:
                refused = f"this server refuses it: {test.refused[kind]}"
                report.check(f"tail of the stream {kind}", ProbeStatus.SKIPPED, refused)
        if PLACED in test.streams:
            reading.check_tail(PLACED, start, end)
        reading.observe_events(events, skew)
        return end

    def _probe(self, reading: StreamReading, start: int, end: int) -> None:
        """Asks Spanner what its pages do not promise."""
        self.say("probing change streams")
        test, seen = reading.test, reading.report.observations
        commit = test.committed[len(test.committed) // 2].timestamp
        range_ = ProbedRange(test.created, start, end, commit)
        if test.splits is not None:
            seen.append(test.splits.observation())
        for kind, mode in ((WHOLE, IMMUTABLE), (MUTABLE_STREAM, MUTABLE)):
            if kind not in test.streams:
                continue
            asking = self._asking(reading, kind, mode)
            seen += asyncio.run(bounded_queries(asking, range_))
            seen.append(asyncio.run(heartbeats(asking, test.now())))
            seen += asyncio.run(open_questions.of_queries(asking, test.now()))
            if test.splits is not None and test.splits.is_accepted:
                seen.append(asyncio.run(open_questions.after_splits(asking, range_, test.splits.at)))
        seen += asyncio.run(refusals(self._asking(reading, WHOLE), range_, test.now()))
        if KEYS in test.streams:
            seen.append(asyncio.run(keys_only(self._asking(reading, KEYS), range_)))
        seen += placements.listed(test.database, [test.names.of(kind) for kind in test.streams], test.now())
        if PLACED in test.streams:
            asking = self._asking(reading, PLACED, MUTABLE)
            seen.append(asyncio.run(placements.plain_function(asking, test.now())))
            seen += asyncio.run(placements.functions(asking, test.now()))
        else:
            seen.append(placements.no_functions(f"this server refuses the stream: {test.refused[PLACED]}"))

    def _asking(self, reading: StreamReading, kind: str, mode: str = IMMUTABLE) -> Asking:
        source = SourceConfig.model_validate(reading.source(kind))
        is_postgresql = reading.test.dialect == "postgresql"
        return Asking(source, DIALECTS["POSTGRESQL" if is_postgresql else "GOOGLE_STANDARD_SQL"], mode)

    def _deliver(self, reading: StreamReading, end: int, left: Leftovers) -> None:
        """Delivers into each sink that is named."""
        delivering = Delivering(reading, end, left)
        self.say("delivering into files")
        delivering.files("files", str(reading.folder / "events"))
        if self.options.bucket_url:
            self.say("delivering into files of Cloud Storage")
            delivering.files("files of Cloud Storage", f"{self.options.bucket_url}/{self.names.prefix.rstrip('_')}")
        if self.options.dataset:
            self._deliver_to_bigquery(delivering, left)

    def _target(self) -> BigQueryTarget:
        options = self.options
        project = options.bigquery_project or options.project
        return BigQueryTarget(project, options.bigquery_endpoint or "", options.bigquery_grpc_endpoint or "")

    def _deliver_to_bigquery(self, delivering: Delivering, left: Leftovers) -> None:
        from spark_sink.self_test.appended_rows import AppendedRows
        from spark_sink.self_test.probes.bigquery import PATIENCE, Place, delete_tables, observed, why_no_queries

        options, test = self.options, delivering.reading.test
        assert options.dataset is not None
        target = self._target()
        dataset, project = options.dataset, target.project
        names = (self.names.prefix, Spool.at(delivering.reading.spool).header().spool_id)
        left.add(
            f"tables {self.names.prefix}... of dataset {project}.{dataset}",
            f"bq ls --max_results=1000 {project}:{dataset}, then bq rm -f -t {project}:{dataset}.NAME for each of them",
            lambda: delete_tables(target, dataset, names),
        )
        patience = 20.0 if target.is_emulated else PATIENCE
        place = Place(target, dataset, f"{self.names.prefix}probe_", patience)
        why = why_no_queries(target)
        if why and not target.is_emulated:
            delivering.reading.report.check("bigquery", ProbeStatus.FAILED, f"it runs no queries: {why}")
            return
        for mode in options.modes:
            self.say(f"delivering into BigQuery, mode {mode}")

            def compare(prefix: str, mode: str = mode) -> list[str]:
                rows = AppendedRows(place.client, project, dataset, mode, prefix)
                return rows.differences(test.tables, test.committed)

            delivering.bigquery(mode, None if why else compare)
        seen = delivering.reading.report.observations
        if why:
            seen.append(Observation.not_probed("BigQuery's emulator", f"it runs no queries: {why}"))
            return
        self.say("probing BigQuery")
        seen += observed(place)


def _line(error: Exception) -> tuple[str, int]:
    """The line for an error that ends a self-test, and its exit code."""
    if isinstance(error, SPANNER_ERRORS):
        return f"Spanner refuses or cannot be reached: {words_of(error)}", 1
    if isinstance(error, (CommandError, SinkError)):
        return str(error), 1
    line, code = line_and_exit_code(error)
    return line, code if isinstance(error, SpannerCdcError) else 1
