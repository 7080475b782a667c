"""Draws a plan from a seed: what Spanner holds, what goes wrong, how the sink writes, and what is killed when."""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from connector.core.timestamps import SECOND
from emulator.scenario.scenario import Scenario
from emulator.scripted.fault_plan import FaultKind, FaultPlan
from emulator.scripted.framing import Framing
from tests.soak.faults.late_server import DRAWN, LateServer
from tests.soak.faults.process_faults import (
    END_POINTS,
    PRUNE_POINTS,
    SEAL_POINTS,
    SINK_POINTS,
    START_POINTS,
    ProcessFaults,
)
from tests.soak.incident import LASTING, OF_SPARK, OLD_COPIES, PAUSES, Incident, incident_of
from tests.soak.keyless import with_keyless_table

HOUR = 3600 * SECOND
EVERY_SPARK_SEED = 5
_CALENDAR = 1_780_000_000 * SECOND
"""Scenarios are in the year after, so that a seed gives the same one on any day."""

Victim = Literal["the daemon", "Spark's driver", "the JVM", "Spark's workers", "everything"]
SPARK_VICTIMS: tuple[Victim, ...] = ("Spark's driver", "the JVM", "Spark's workers", "everything")


@dataclass(frozen=True, slots=True)
class ProcessRun:
    """One run of the command: its faults, and which of its processes is killed, at a point or from outside.

    `kill_after` is in seconds after the start, or after the sink was ready if `once_ready`. With a point it is when the
    victim is killed if it has not reached the point. With None nothing is killed at a time.
    """

    faults: ProcessFaults
    victim: Victim = "the daemon"
    kill_after: float | None = None
    once_ready: bool = False
    once_sealed: bool = False
    """True if the victim is killed as soon as an epoch is sealed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a seed. `begins` is the server's time at its start, which is not this machine's."""

    seed: int
    scenario: Scenario
    framing: Framing
    begins: int
    end: int
    speed: float
    runs: tuple[ProcessRun, ...]
    with_spark: bool
    background_sink: bool
    incident: Incident | None
    pause_seconds: float
    """The length of the pause in seconds, if the incident is one."""
    with_children: bool
    """True if the daemon's descendants are stopped with it."""
    source: dict[str, object]
    spool: dict[str, object]
    sink: dict[str, object]
    worker_dies: tuple[float, ...]
    """The time at which one of the daemon's workers is killed in each run, in seconds after the start."""
    columns: bool
    cut_files: bool

    def query_faults(self) -> FaultPlan:
        """Returns the faults of queries."""
        random = Random(f"soak {self.seed} faults of an ordeal")
        if self.incident is Incident.LATE_SERVER:
            seconds = random.uniform(3.0, 5.0)
            pause = int(seconds * self.speed * SECOND)
            return LateServer(self.seed, pause=pause, seconds=seconds, tokens=random.randint(2, 4))
        # With heartbeats a minute apart a silent query is noticed late.
        kinds = DRAWN - {FaultKind.SILENCE} if self.incident in PAUSES else DRAWN
        plan = FaultPlan(self.seed, share=0.25, most=2, kinds=kinds)
        if self.incident is Incident.OUT_OF_ORDER:
            plan.disorder(random.randint(1, 2))
        return plan

    @classmethod
    def of_seed(cls, seed: int) -> "Plan":
        """Draws the plan of a seed."""
        return _through(incident_of(seed), cls._of_seed(seed))

    @classmethod
    def _of_seed(cls, seed: int) -> "Plan":
        random = Random(f"soak {seed}")
        with_spark = seed % EVERY_SPARK_SEED == 0
        background_sink = not with_spark and random.random() < 0.4
        seconds = random.choice((20.0, 45.0, 90.0))
        origin = _CALENDAR + random.randrange(365 * 24 * HOUR)
        scenario = Scenario.generate(
            seed,
            origin=origin,
            seconds=seconds,
            value_capture_type=None,
            transactions=random.choice((30, 80, 150, 300)),
            churn=random.randrange(40),
            first_partitions=random.randint(1, 5),
            placements=None,
        )
        backlog = random.choice((0.0, 0.3, 0.8))
        begins = origin + int(seconds * backlog * SECOND)
        lasts = random.uniform(*((12.0, 18.0) if with_spark else (5.0, 8.0) if background_sink else (3.0, 5.0)))
        bounded = (with_spark or background_sink) and random.random() < 0.4
        workers, worker_dies = _workers(Random(f"soak {seed} workers"))
        return cls(
            seed=seed,
            scenario=scenario,
            framing=Framing.drawn(seed),
            begins=begins,
            end=scenario.history.horizon + random.choice((0, 1, SECOND)),
            speed=(scenario.history.horizon - begins) / SECOND / lasts,
            runs=_with_spark(random) if with_spark else _of_the_daemon(random, prunes=background_sink),
            with_spark=with_spark,
            background_sink=background_sink,
            incident=None,
            pause_seconds=0.0,
            with_children=False,
            source={"heartbeat": random.choice(("1s", "2s")), "workers": workers},
            spool={
                "seal_interval": random.choice(("50ms", "150ms", "400ms")),
                **({"max_bytes": random.choice((40_000, 150_000))} if bounded else {}),
            },
            sink={
                "gzip": random.random() < 0.3,
                "rotate_interval": random.choice(("60s", "0s")),
                "rotate_bytes": random.choice((4_000, 250_000_000)),
            },
            worker_dies=worker_dies,
            columns=Random(f"soak {seed} columns").random() < 0.7,
            cut_files=Random(f"soak {seed} cut files").random() < 0.7,
        )


def _through(incident: Incident | None, plan: Plan) -> Plan:
    """Returns the plan with its seed's incident."""
    random = Random(f"soak {plan.seed} ordeal")
    plan = replace(plan, incident=incident)
    if incident in PAUSES:
        return _with_pause(plan, random)
    if incident in OF_SPARK:
        return _with_lasting_fault_of_spark(plan)
    if incident in LASTING:
        return replace(plan, runs=(plan.runs[0], *(run for run in plan.runs[1:] if not run.faults.full_at)))
    if incident is Incident.KEYLESS_TABLE:
        return replace(plan, scenario=with_keyless_table(plan.scenario, random))
    if incident is Incident.DROPPED_TABLE:
        names = sorted(table.name for table in plan.scenario.tables)
        plan = replace(plan, source={**plan.source, "tables": {"include": names}})
    if incident is Incident.DROPPED_TABLE or incident in OLD_COPIES:
        # A run that is killed early in any case, so that there are two runs.
        first = ProcessRun(ProcessFaults(), "everything" if plan.with_spark else "the daemon", once_sealed=True)
        background_sink = not plan.with_spark and (plan.background_sink or incident in OLD_COPIES)
        plan = replace(plan, runs=(first, *plan.runs), background_sink=background_sink)
    return plan


def _with_lasting_fault_of_spark(plan: Plan) -> Plan:
    """Returns a plan of the whole service, which is not killed and runs long enough for Spark to be there."""
    history, lasts = plan.scenario.history, 100.0
    return replace(
        plan,
        with_spark=True,
        background_sink=False,
        begins=history.origin,
        speed=(history.horizon - history.origin) / SECOND / lasts,
        runs=(ProcessRun(ProcessFaults(prunes=True)),),
        worker_dies=(),
    )


def _with_pause(plan: Plan, random: Random) -> Plan:
    """Returns a plan of three quiet hours that pass in some seconds; in the pause more than half an hour passes.

    Every commit shows Spanner's clock to the reader. With few commits it must query the clock.
    """
    seconds, lasts, minutes = 3 * 3600.0, random.uniform(22.0, 26.0), random.uniform(35.0, 55.0)
    speed = seconds / lasts
    pause = minutes * 60 / speed
    scenario = Scenario.generate(
        plan.seed,
        origin=plan.scenario.history.origin,
        seconds=seconds,
        mode=random.choice(("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")),
        value_capture_type=None,
        transactions=random.choice((6, 12, 40)),
        churn=random.choice((0, 0, 6)),
        first_partitions=random.randint(1, 4),
        placements=None,
    )
    faults = ProcessFaults(prunes=plan.background_sink or plan.with_spark)
    if plan.incident is Incident.CLOCK_STOPPED:
        faults = replace(faults, clock_stops=((random.uniform(4.0, 7.0), pause),))
    return replace(
        plan,
        scenario=scenario,
        begins=scenario.history.origin,
        end=scenario.history.horizon + random.choice((0, 1, SECOND)),
        speed=speed,
        runs=(ProcessRun(faults),),
        source={**plan.source, "heartbeat": "60s"},
        worker_dies=(),
        pause_seconds=pause,
        with_children=random.random() < 0.5,
    )


def _workers(random: Random) -> tuple[int, tuple[float, ...]]:
    """Draws how many processes read, and when one of them is killed."""
    if random.random() < 0.65:
        return 1, ()
    return random.choice((2, 3)), tuple(sorted(random.uniform(0.3, 4.0) for _ in range(random.randint(0, 2))))


def run_without_kills(plan: Plan, number: int) -> ProcessRun:
    """Returns a run after the planned ones: nothing is killed, but the clock may step and the disk may be slow."""
    random = Random(f"soak {plan.seed} afterwards {number}")
    return ProcessRun(replace(_surroundings(random), prunes=plan.background_sink or plan.with_spark))


def _of_the_daemon(random: Random, *, prunes: bool) -> tuple[ProcessRun, ...]:
    runs = []
    for number in range(random.randint(1, 4)):
        faults = replace(_surroundings(random), prunes=prunes)
        if random.random() < 0.35:
            runs.append(ProcessRun(faults, kill_after=random.uniform(0.1, 2.0)))
        else:
            runs.append(ProcessRun(_at_a_point(random, faults, first=number == 0)))
    if random.random() < 0.25:
        at = random.randint(1, len(runs))
        full = replace(_surroundings(random), prunes=prunes, full_at=random.randint(1, 12))
        runs.insert(at, ProcessRun(full))
    return tuple(runs)


def _with_spark(random: Random) -> tuple[ProcessRun, ...]:
    runs = [_of_spark(random), _of_the_service(random, first=False)]
    if random.random() < 0.4:
        runs = [_of_the_service(random, first=True), _of_spark(random)]
    elif random.random() < 0.3:
        runs.insert(1, _of_spark(random))
    if random.random() < 0.2:
        surroundings = replace(_surroundings(random), prunes=True)
        at = random.randint(1, 10)
        full = replace(surroundings, full_at=at) if random.random() < 0.5 else replace(surroundings, sink_full_at=at)
        runs.insert(random.randint(0, 1), ProcessRun(full))
    return tuple(runs)


def _of_spark(random: Random) -> ProcessRun:
    """Draws a run in which Spark is killed: at a point, or else at a time."""
    faults, victim = replace(_surroundings(random), prunes=True), random.choice(SPARK_VICTIMS)
    if random.random() < 0.6:
        point = random.choice(SINK_POINTS)
        nth = random.randint(1, 30) if point == "in the middle of a file" else random.choice((1, 1, 1, 2))
        return ProcessRun(replace(faults, point=point, nth=nth), victim, random.uniform(10.0, 14.0), once_ready=True)
    return ProcessRun(faults, victim, random.uniform(0.0, 8.0), once_ready=True)


def _of_the_service(random: Random, *, first: bool) -> ProcessRun:
    """Draws a run in which the service with its daemon is killed: at a point, or else at a time.

    Unless it is killed too, its sink delivers what is sealed, and what the next daemon seals meanwhile.
    """
    if first and random.random() < 0.7:
        return ProcessRun(replace(_surroundings(random), prunes=True), "everything", random.uniform(0.5, 8.0))
    faults, kill_after = replace(_surroundings(random), prunes=True), random.uniform(0.5, 2.5 if first else 7.0)
    if random.random() < 0.6:
        faults, kill_after = _at_a_point(random, faults, first=first), max(kill_after, 3.0)
    return ProcessRun(faults, kill_after=kill_after)


def _at_a_point(random: Random, faults: ProcessFaults, *, first: bool) -> ProcessFaults:
    """Adds a point to faults; only the first run starts a spool."""
    if first:  # points that are reached in any case
        point = random.choice(START_POINTS if random.random() < 0.4 else SEAL_POINTS[:7])
        return replace(faults, point=point, nth=random.randint(1, 5) if "schema" in point else 1)
    kinds = [(SEAL_POINTS, 6), (END_POINTS, 1), (PRUNE_POINTS, 3 if faults.prunes else 0)]
    (points,) = random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
    point = random.choice(points)
    often = points is SEAL_POINTS and "sweep" not in point
    return replace(faults, point=point, nth=random.choice((1, 1, 2, 3, 5)) if often else 1)


def _surroundings(random: Random) -> ProcessFaults:
    """Draws a clock that steps and a slow disk, each or neither."""
    steps: tuple[tuple[float, int], ...] = ()
    if random.random() < 0.4:
        steps = tuple(
            (random.uniform(0.0, 3.0), random.choice((-1, 1)) * random.randrange(12 * HOUR))
            for _ in range(random.randint(1, 3))
        )
    sync_seconds = random.choice((0.005, 0.02, 0.06)) if random.random() < 0.3 else 0.0
    return ProcessFaults(clock_steps=steps, sync_seconds=sync_seconds)
