"""Runs a seed: in real processes that are killed and restarted, or in this process on virtual time."""

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import yaml
from pyspark.sql import SparkSession

from connector.config import load
from connector.core.timestamps import format_rfc3339
from connector.spool.reading import Spool
from emulator.scripted.fault_plan import DISORDER, FaultPlan
from emulator.scripted.server import ScriptedServer
from tests.faults.link import linked
from tests.integration.commands import manifests
from tests.integration.delivered import assert_sound
from tests.property.reading.whole_reader import of_seed
from tests.soak.background_sink import BackgroundSink
from tests.soak.between_runs import BetweenRuns
from tests.soak.faults.dropped_placements import DroppedPlacements
from tests.soak.faults.lasting import LastingFault
from tests.soak.faults.late_server import LateServer
from tests.soak.incident import LASTING, PAUSES, ExplainedEndError, Incident, explains
from tests.soak.plan import Plan
from tests.soak.process_runs import Deadline, ProcessRuns, SeedError
from tests.soak.truth import committed, compare, event_files

Kind = Literal["real processes", "Spark killed too", "one process"]
SECONDS, SPARK_SECONDS = 600.0, 800.0
"""Time within which a seed must end, even on a slow machine; a stalled one fails much earlier."""

_RESTARTS = 5
"""Restarts of the background sink, at most."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed: its failure, if any, and counts of what happened by 'group: name'."""

    kind: Kind
    seed: int
    seconds: float
    failure: str = ""
    counts: Counter[str] = field(default_factory=Counter)


def run_in_one_process(seed: int) -> Outcome:
    """Runs the whole reader on virtual time."""
    began = time.monotonic()
    reader = of_seed(seed, placements=None)
    failure = ""
    try:
        reader.run()
    except Exception:  # noqa: BLE001 - whatever it is, it is the seed's failure
        failure = traceback.format_exc(limit=-6)
    counts = Counter({f"in one process: {name}": number for name, number in reader.counts.items()})
    counts["in one process: mods"] = sum(len(change.mods) for change in reader.scenario.history.changes())
    return Outcome("one process", seed, time.monotonic() - began, failure, counts)


def run_in_processes(
    seed: int, folder: Path, spark: Callable[[], SparkSession], report: Callable[[str], None], kills: int | None = None
) -> Outcome:
    """Runs a daemon against a scripted Spanner, and the file sink, in processes that are killed.

    With `kills`, only so many runs are killed, the first ones.
    """
    began = time.monotonic()
    plan = Plan.of_seed(seed)
    plan = replace(plan, runs=plan.runs[:kills])

    def timed(line: str) -> None:
        report(f"{time.monotonic() - began:6.1f} s  {line}")

    kind: Kind = "Spark killed too" if plan.with_spark else "real processes"
    counts: Counter[str] = Counter()
    failure = ""
    try:
        _SeedRun(plan, folder, spark, timed, counts).run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the seed's failure
        failure = str(error) if isinstance(error, SeedError) else traceback.format_exc(limit=-6)
    return Outcome(kind, seed, time.monotonic() - began, failure, counts)


class _SeedRun:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        spark: Callable[[], SparkSession],
        report: Callable[[str], None],
        counts: Counter[str],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._spark = spark
        self._report = report
        self._counts = counts
        self._spool = folder / "spool"
        self._deadline = Deadline.within(SPARK_SECONDS if plan.with_spark else SECONDS)
        self._sink: BackgroundSink | None = None
        self._restarts = 0
        self._why = ""
        """The line that explains the end, if the seed had to end before all was delivered."""

    def run(self) -> None:
        plan, scenario, faults = self._plan, self._plan.scenario, self._plan.query_faults()
        with (
            ScriptedServer.started(
                scenario, faults=faults, begins=plan.begins, speed=plan.speed, framing=plan.framing
            ) as server,
            linked(server.host) as link,
        ):
            (self._folder / "real-events").mkdir()
            (self._folder / "events").symlink_to(self._folder / "real-events")
            config = self._configuration(link.host if plan.incident in LASTING else server.host)
            lasting = LastingFault(
                plan.incident,
                plan.seed,
                plan.pause_seconds,
                server=server,
                link=link,
                folder=self._folder,
                report=self._report,
            )
            between = BetweenRuns(
                plan, server, self._folder, lambda: self._watch_sink(config), self._stop_sink, self._report
            )
            runs = ProcessRuns(plan, config, self._deadline, lasting, self._report)
            placements = DroppedPlacements(plan, server, self._spool, self._report)

            def check() -> None:
                self._watch_sink(config)
                placements.look()

            try:
                runs.run(self._newest_epoch, check, between)
                self._deliver(config)
            except ExplainedEndError as error:
                self._why = str(error)
                self._report(f"the end is explained: {self._why}")
            finally:
                lasting.close()
                self._stop_sink()
                self._counts.update(runs.counts)
        self._count(plan, faults, runs, happened=between.happened or lasting.happened)
        self._counts.update({f"faults: {name}": number for name, number in faults.struck.items()})
        self._counts.update({f"partitions: {name}": number for name, number in scenario.churn.items()})
        self._counts[f"scenarios: {scenario.dialect}, {scenario.mode}"] += 1
        self._counts[f"scenarios: {scenario.value_capture_type}"] += 1
        self._counts["scenarios: with placements"] += scenario.placements is not None
        self._counts["placements: dropped"] += placements.dropped
        self._counts["scenarios: with rows decoded as columns"] += plan.columns
        self._counts["scenarios: with cuts in files"] += plan.cut_files
        self._check(runs)

    def _newest_epoch(self) -> int:
        return max((manifest.epoch for manifest in manifests(self._spool)), default=0)

    def _configuration(self, host: str) -> Path:
        plan, scenario = self._plan, self._plan.scenario
        path = self._folder / "config.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "source": {
                        "project": scenario.project,
                        "instance": scenario.instance,
                        "database": scenario.database,
                        "change_stream": scenario.change_stream,
                        "emulator_host": host,
                        "start": format_rfc3339(scenario.history.origin),
                        "end": format_rfc3339(plan.end),
                        **plan.source,
                    },
                    "spool": {"path": str(self._spool), **plan.spool},
                    "sink": {"path": str(self._folder / "events"), **plan.sink},
                    "spark": {
                        "master": "local[2]",
                        "checkpoint": str(self._folder / "checkpoint"),
                        "trigger": "200ms",
                        "config": {"spark.driver.memory": "768m"},
                    },
                    "status": {"port": 0},
                    "drain_timeout": "10s",
                }
            )
        )
        return path

    def _stop_sink(self) -> None:
        if self._sink is not None:
            self._sink.abandon()
            self._sink = None

    def _watch_sink(self, config: Path) -> None:
        if self._sink is not None and self._sink.has_failed_transiently and self._restarts < _RESTARTS:
            self._restarts += 1
            self._counts["restarts: of the background sink, for Spark's own errors"] += 1
            self._sink = BackgroundSink(self._spark(), load(config))
        elif self._sink is not None:
            with self._accepting_explained():
                self._sink.check()
        elif self._plan.background_sink and (self._spool / "spool.json").exists():
            self._sink = BackgroundSink(self._spark(), load(config))

    @contextmanager
    def _accepting_explained(self) -> Iterator[None]:
        """Accepts a failure of the sink that the seed's incident explains."""
        try:
            yield
        except AssertionError as error:
            if explains(self._plan.incident, str(error)):
                raise ExplainedEndError(str(error)) from error
            raise

    def _deliver(self, config: Path) -> None:
        if self._plan.with_spark:
            return
        while True:
            if self._sink is None:
                self._sink = BackgroundSink(self._spark(), load(config))
            try:
                with self._accepting_explained():
                    self._sink.finish(max(5.0, self._deadline.at - time.monotonic()))
                break
            except AssertionError:
                if not self._sink.has_failed_transiently or self._restarts >= _RESTARTS:
                    raise
            self._watch_sink(config)
        self._sink = None
        self._report("the sink has delivered")

    def _count(self, plan: Plan, faults: FaultPlan, runs: ProcessRuns, *, happened: bool) -> None:
        """Counts whether the seed's incident happened, and whether it was explained."""
        counts, incident = self._counts, plan.incident
        if incident is None:
            counts["incidents: none"] += 1
            return
        happened = {
            Incident.LATE_SERVER: isinstance(faults, LateServer) and faults.waited_for > 0,
            Incident.OUT_OF_ORDER: faults.struck[DISORDER] > 0,
            Incident.KEYLESS_TABLE: True,
        }.get(incident, runs.paused or happened)
        counts[f"incidents: {incident}"] += happened
        counts[f"incidents that did not happen: {incident}"] += not happened
        if self._why or runs.explained:
            counts[f"incidents explained in one line: {incident}"] += 1
        if incident in PAUSES:
            counts[f"incidents, by mode: {plan.scenario.mode}"] += happened

    def _check_what_came(self) -> None:
        """Checks a seed that had to end early: what it delivered is as it was committed, once, in order."""
        verdict = compare(committed(self._plan.scenario), event_files(self._folder / "events"))
        wrong = [problem for problem in verdict.problems if not problem.startswith("lost: ")]
        if wrong:
            raise SeedError("; ".join(wrong))

    def _check(self, runs: ProcessRuns) -> None:
        if self._why:
            self._check_what_came()
            return
        kept = manifests(self._spool)
        assert_sound(self._spool, kept, first=Spool.at(self._spool).floor())
        if kept[-1].epoch > runs.newest_before_last:  # the last writer has sealed, and so deleted unlisted files
            listed = {file.path for manifest in kept for file in manifest.files}
            listed |= {manifest.cut_file.path for manifest in kept if manifest.cut_file}
            found = {f"{name}/{path.name}" for name in ("segments", "cuts") for path in (self._spool / name).glob("*")}
            if found != listed:
                raise SeedError(
                    f"segments or cuts that are missing, or that no manifest lists: {sorted(found ^ listed)}"
                )
            epochs = list(Spool.at(self._spool).summaries(kept[0].epoch, kept[-1].epoch))
            if [(one.epoch, one.identity, one.rows) for one in epochs] != [
                (manifest.epoch, manifest.identity, manifest.rows) for manifest in kept
            ]:
                raise SeedError("summaries differ from manifests")
        if kept[-1].watermark_high < self._plan.end:
            raise SeedError("the daemon ended with code 0 before its end")
        self._report("the spool is sound")
        verdict = compare(committed(self._plan.scenario), event_files(self._folder / "events"))
        for name in ("committed", "delivered", "lost", "duplicated", "unexpected", "wrong", "out_of_order", "split"):
            self._counts[f"mods: {name}"] += getattr(verdict, name)
        self._counts["epochs: sealed"] += kept[-1].epoch
        self._counts["epochs: pruned"] += kept[0].epoch - 1
        if not verdict.good:
            raise SeedError("; ".join(verdict.problems) or f"{verdict}")
