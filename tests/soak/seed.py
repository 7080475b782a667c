"""Runs a seed: in real processes, which are killed and started again, or all in this one, on virtual time."""

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from tests.soak.between import Between
from tests.soak.faults.late_server import LateServer
from tests.soak.live_sink import LiveSink
from tests.soak.lives import Deadline, Lives, SeedError
from tests.soak.ordeal import STANDSTILLS, Ordeal, SaidWhyError, is_told_of
from tests.soak.plan import Plan
from tests.soak.truth import committed, compare, event_files

Kind = Literal["real processes", "Spark killed too", "one process"]
SECONDS, SPARK_SECONDS = 240.0, 420.0
"""Within which a seed must have ended, on a machine however slow; what stands still fails much earlier."""

_RESTARTS = 5
"""Of a sink that lives on, at most."""

_FACTOR = 10.0
"""What is too long for the daemon, times this, is too long for a worker as a whole."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a seed went: what failed, or nothing; what happened, counted by 'group: name'."""

    kind: Kind
    seed: int
    seconds: float
    failure: str = ""
    told: Counter[str] = field(default_factory=Counter)


def run_in_one_process(seed: int) -> Outcome:
    """The whole reader on virtual time."""
    began = time.monotonic()
    reader = of_seed(seed)
    failure = ""
    try:
        reader.run()
    except Exception:  # noqa: BLE001 - whatever it is, it is the seed's failure
        failure = traceback.format_exc(limit=-6)
    told = Counter({f"in one process: {name}": number for name, number in reader.counts.items()})
    told["in one process: mods"] = sum(len(change.mods) for change in reader.scenario.history.changes())
    return Outcome("one process", seed, time.monotonic() - began, failure, told)


def run_in_processes(seed: int, folder: Path, spark: Callable[[], SparkSession], say: Callable[[str], None]) -> Outcome:
    """A daemon against a scripted Spanner, and the file sink, in processes that die."""
    began = time.monotonic()
    plan = Plan.of_seed(seed)

    def tell(line: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {line}")

    kind: Kind = "Spark killed too" if plan.with_spark else "real processes"
    told: Counter[str] = Counter()
    failure = ""
    try:
        _Run(plan, folder, spark, tell, told).run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the seed's failure
        failure = str(error) if isinstance(error, SeedError) else traceback.format_exc(limit=-6)
    return Outcome(kind, seed, time.monotonic() - began, failure, told)


class _Run:
    def __init__(
        self,
        plan: Plan,
        folder: Path,
        spark: Callable[[], SparkSession],
        say: Callable[[str], None],
        told: Counter[str],
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._spark = spark
        self._say = say
        self._told = told
        self._spool = folder / "spool"
        self._deadline = Deadline.within(SPARK_SECONDS if plan.with_spark else SECONDS)
        self._sink: LiveSink | None = None
        self._restarts = 0
        self._why = ""
        """The line with which it ended, where it had to end before all was delivered."""

    def run(self) -> None:
        plan, scenario, faults = self._plan, self._plan.scenario, self._plan.faults()
        with (
            ScriptedServer.started(
                scenario, faults=faults, begins=plan.begins, speed=plan.speed, framing=plan.framing
            ) as server,
            linked(server.host) as link,
        ):
            config = self._configuration(link.host if plan.ordeal is Ordeal.OUTAGE else server.host)
            between = Between(plan, server, self._folder, lambda: self._watch_sink(config), self._stop_sink, self._say)
            lives = Lives(plan, config, self._deadline, link, self._say)
            try:
                lives.run(self._newest_epoch, lambda: self._watch_sink(config), between)
                self._deliver(config)
            except SaidWhyError as error:
                self._why = str(error)
                self._say(f"it has said why it ends: {self._why}")
            finally:
                self._stop_sink()
                self._told.update(lives.told)
        self._count(plan, faults, lives, between)
        self._told.update({f"faults: {name}": number for name, number in faults.struck.items()})
        self._told.update({f"partitions: {name}": number for name, number in scenario.churn.items()})
        self._told[f"scenarios: {scenario.dialect}, {scenario.mode}"] += 1
        self._told[f"scenarios: {scenario.value_capture_type}"] += 1
        self._told["scenarios: with rows taken as columns"] += plan.columns
        self._told["scenarios: with cuts in files"] += plan.cut_files
        self._check(lives)

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
        if self._sink is not None and self._sink.has_failed_in_passing and self._restarts < _RESTARTS:
            self._restarts += 1
            self._told["restarts: of the sink that lives on, for Spark's own errors"] += 1
            self._sink = LiveSink(self._spark(), load(config))
        elif self._sink is not None:
            with self._saying_why():
                self._sink.check()
        elif self._plan.live_sink and (self._spool / "spool.json").exists():
            self._sink = LiveSink(self._spark(), load(config))

    @contextmanager
    def _saying_why(self) -> Iterator[None]:
        """A sink may fail of what it has to be told of."""
        try:
            yield
        except AssertionError as error:
            if is_told_of(self._plan.ordeal, str(error)):
                raise SaidWhyError(str(error)) from error
            raise

    def _deliver(self, config: Path) -> None:
        if self._plan.with_spark:
            return
        while True:
            if self._sink is None:
                self._sink = LiveSink(self._spark(), load(config))
            try:
                with self._saying_why():
                    self._sink.finish(max(5.0, self._deadline.at - time.monotonic()))
                break
            except AssertionError:
                if not self._sink.has_failed_in_passing or self._restarts >= _RESTARTS:
                    raise
            self._watch_sink(config)
        self._sink = None
        self._say("the sink has delivered")

    def _count(self, plan: Plan, faults: FaultPlan, lives: Lives, between: Between) -> None:
        """What the ordeal has come to."""
        told, ordeal = self._told, plan.ordeal
        if ordeal is None:
            told["ordeals: none"] += 1
            return
        happened = {
            Ordeal.LATE_SERVER: isinstance(faults, LateServer) and faults.waited_for > 0,
            Ordeal.OUT_OF_ORDER: faults.struck[DISORDER] > 0,
            Ordeal.KEYLESS_TABLE: True,
        }.get(ordeal, lives.stood_still or between.happened)
        told[f"ordeals: {ordeal}"] += happened
        told[f"ordeals that did not come to pass: {ordeal}"] += not happened
        if self._why or lives.said_why:
            told[f"ordeals told of in one line: {ordeal}"] += 1
        if ordeal in STANDSTILLS:
            told[f"ordeals, in the mode: {plan.scenario.mode}"] += happened

    def _check_what_came(self) -> None:
        """Of a run that had to end, and said why: what it has delivered is as it was committed, once, in order."""
        verdict = compare(committed(self._plan.scenario), event_files(self._folder / "events"))
        wrong = [problem for problem in verdict.problems if not problem.startswith("lost: ")]
        if wrong:
            raise SeedError("; ".join(wrong))

    def _check(self, lives: Lives) -> None:
        if self._why:
            self._check_what_came()
            return
        kept = manifests(self._spool)
        assert_sound(self._spool, kept, first=Spool.at(self._spool).floor())
        if kept[-1].epoch > lives.newest_before_last:  # the last writer has sealed, and so has swept
            listed = {file.path for manifest in kept for file in manifest.files}
            listed |= {manifest.cut_file.path for manifest in kept if manifest.cut_file}
            found = {f"{name}/{path.name}" for name in ("segments", "cuts") for path in (self._spool / name).glob("*")}
            if found != listed:
                raise SeedError(f"segments or cuts that no manifest lists, or missing ones: {sorted(found ^ listed)}")
            epochs = list(Spool.at(self._spool).summaries(kept[0].epoch, kept[-1].epoch))
            if [(one.epoch, one.identity, one.rows) for one in epochs] != [
                (manifest.epoch, manifest.identity, manifest.rows) for manifest in kept
            ]:
                raise SeedError("summaries say something else than manifests")
        if kept[-1].watermark_high < self._plan.end:
            raise SeedError("it ended with code 0 before it had reached the end")
        self._say("the spool is sound")
        verdict = compare(committed(self._plan.scenario), event_files(self._folder / "events"))
        for name in ("committed", "delivered", "lost", "twice", "foreign", "wrong", "out_of_order", "torn"):
            self._told[f"mods: {name}"] += getattr(verdict, name)
        self._told["epochs: sealed"] += kept[-1].epoch
        self._told["epochs: pruned"] += kept[0].epoch - 1
        if not verdict.good:
            raise SeedError("; ".join(verdict.problems) or f"{verdict}")
