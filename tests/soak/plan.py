"""What is drawn from a seed: what Spanner holds, what goes wrong, how the sink writes, and how often all of it dies."""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from connector.core.timestamps import SECOND
from emulator.scenario.scenario import Scenario
from emulator.scripted.fault_plan import FaultKind, FaultPlan
from emulator.scripted.framing import Framing
from tests.soak.faults.fault import END_POINTS, PRUNE_POINTS, SEAL_POINTS, SINK_POINTS, START_POINTS, Trouble
from tests.soak.faults.late_server import DRAWN, LateServer
from tests.soak.keyless import with_keyless_table
from tests.soak.ordeal import OLD_COPIES, STANDSTILLS, Ordeal, ordeal_of

HOUR = 3600 * SECOND
EVERY_SPARK_SEED = 5
_CALENDAR = 1_780_000_000 * SECOND
"""Scenarios lie in the year after, so that a seed gives the same one on any day."""

Victim = Literal["the daemon", "Spark's driver", "the JVM", "Spark's workers", "everything"]
SPARK_VICTIMS: tuple[Victim, ...] = ("Spark's driver", "the JVM", "Spark's workers", "everything")


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the processes: what befalls them, and who is killed, by itself at a point or from outside.

    `moment` is in seconds after the start, or after the sink was ready if `once_ready`; beside a point it is when
    somebody dies who has not come to it. None where nobody dies at a moment.
    """

    trouble: Trouble
    victim: Victim = "the daemon"
    moment: float | None = None
    once_ready: bool = False
    once_sealed: bool = False
    """Whether it is killed as soon as an epoch is sealed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A seed's run. `begins` is the server's time when it starts, which is not this machine's."""

    seed: int
    scenario: Scenario
    framing: Framing
    begins: int
    end: int
    speed: float
    lives: tuple[Life, ...]
    with_spark: bool
    live_sink: bool
    ordeal: Ordeal | None
    still: float
    """For how many seconds something stands still, in the ordeals of that kind."""
    with_family: bool
    """Whether all that the daemon has started is stopped with it."""
    source: dict[str, object]
    spool: dict[str, object]
    sink: dict[str, object]
    worker_dies: tuple[float, ...]
    """When in each life, in seconds after its start, one of the daemon's workers is killed."""
    columns: bool
    cut_files: bool

    def faults(self) -> FaultPlan:
        """What goes wrong in queries."""
        random = Random(f"soak {self.seed} faults of an ordeal")
        if self.ordeal is Ordeal.LATE_SERVER:
            seconds = random.uniform(3.0, 5.0)
            pause = int(seconds * self.speed * SECOND)
            return LateServer(self.seed, pause=pause, seconds=seconds, tokens=random.randint(2, 4))
        # Where heartbeats are a minute apart, silence is noticed late.
        kinds = DRAWN - {FaultKind.SILENCE} if self.ordeal in STANDSTILLS else DRAWN
        plan = FaultPlan(self.seed, share=0.25, most=2, kinds=kinds)
        if self.ordeal is Ordeal.OUT_OF_ORDER:
            plan.disorder(random.randint(1, 2))
        return plan

    @classmethod
    def of_seed(cls, seed: int) -> "Plan":
        """What is drawn from a seed."""
        return _through(ordeal_of(seed), cls._of_seed(seed))

    @classmethod
    def _of_seed(cls, seed: int) -> "Plan":
        random = Random(f"soak {seed}")
        with_spark = seed % EVERY_SPARK_SEED == 0
        live_sink = not with_spark and random.random() < 0.4
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
        )
        backlog = random.choice((0.0, 0.3, 0.8))
        begins = origin + int(seconds * backlog * SECOND)
        lasts = random.uniform(*((12.0, 18.0) if with_spark else (5.0, 8.0) if live_sink else (3.0, 5.0)))
        bounded = (with_spark or live_sink) and random.random() < 0.4
        workers, worker_dies = _workers(Random(f"soak {seed} workers"))
        return cls(
            seed=seed,
            scenario=scenario,
            framing=Framing.drawn(seed),
            begins=begins,
            end=scenario.history.horizon + random.choice((0, 1, SECOND)),
            speed=(scenario.history.horizon - begins) / SECOND / lasts,
            lives=_with_spark(random) if with_spark else _of_the_daemon(random, prunes=live_sink),
            with_spark=with_spark,
            live_sink=live_sink,
            ordeal=None,
            still=0.0,
            with_family=False,
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


def _through(ordeal: Ordeal | None, plan: Plan) -> Plan:
    """The plan with what its seed has to go through."""
    random = Random(f"soak {plan.seed} ordeal")
    plan = replace(plan, ordeal=ordeal)
    if ordeal in STANDSTILLS:
        return _standing_still(plan, random)
    if ordeal is Ordeal.KEYLESS_TABLE:
        return replace(plan, scenario=with_keyless_table(plan.scenario, random))
    if ordeal is Ordeal.DROPPED_TABLE:
        names = sorted(table.name for table in plan.scenario.tables)
        plan = replace(plan, source={**plan.source, "tables": {"include": names}})
    if ordeal is Ordeal.DROPPED_TABLE or ordeal in OLD_COPIES:
        # One that is killed early in any case, so that something happens between two lives.
        first = Life(Trouble(), "everything" if plan.with_spark else "the daemon", once_sealed=True)
        live_sink = not plan.with_spark and (plan.live_sink or ordeal in OLD_COPIES)
        plan = replace(plan, lives=(first, *plan.lives), live_sink=live_sink)
    return plan


def _standing_still(plan: Plan, random: Random) -> Plan:
    """A scenario of three quiet hours that pass in some seconds, in some of which half an hour and more pass unseen.

    Whatever is committed tells of Spanner's clock: where hardly anything is, only asking for it does.
    """
    seconds, lasts, minutes = 3 * 3600.0, random.uniform(22.0, 26.0), random.uniform(35.0, 55.0)
    speed = seconds / lasts
    still = minutes * 60 / speed
    scenario = Scenario.generate(
        plan.seed,
        origin=plan.scenario.history.origin,
        seconds=seconds,
        mode=random.choice(("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")),
        value_capture_type=None,
        transactions=random.choice((6, 12, 40)),
        churn=random.choice((0, 0, 6)),
        first_partitions=random.randint(1, 4),
    )
    trouble = Trouble(prunes=plan.live_sink or plan.with_spark)
    if plan.ordeal is Ordeal.CLOCK_STILL:
        trouble = replace(trouble, still=((random.uniform(4.0, 7.0), still),))
    return replace(
        plan,
        scenario=scenario,
        begins=scenario.history.origin,
        end=scenario.history.horizon + random.choice((0, 1, SECOND)),
        speed=speed,
        lives=(Life(trouble),),
        source={**plan.source, "heartbeat": "60s"},
        worker_dies=(),
        still=still,
        with_family=random.random() < 0.5,
    )


def _workers(random: Random) -> tuple[int, tuple[float, ...]]:
    """How many processes read, and when one of them is killed."""
    if random.random() < 0.65:
        return 1, ()
    return random.choice((2, 3)), tuple(sorted(random.uniform(0.3, 4.0) for _ in range(random.randint(0, 2))))


def afterwards(plan: Plan, number: int) -> Life:
    """A life after all that were drawn: nobody dies, and yet the clock may step and the disk be slow."""
    random = Random(f"soak {plan.seed} afterwards {number}")
    return Life(replace(_surroundings(random), prunes=plan.live_sink or plan.with_spark))


def _of_the_daemon(random: Random, *, prunes: bool) -> tuple[Life, ...]:
    lives = []
    for number in range(random.randint(1, 4)):
        trouble = replace(_surroundings(random), prunes=prunes)
        if random.random() < 0.35:
            lives.append(Life(trouble, moment=random.uniform(0.1, 2.0)))
        else:
            lives.append(Life(_at_a_point(random, trouble, first=number == 0)))
    if random.random() < 0.25:
        at = random.randint(1, len(lives))
        full = replace(_surroundings(random), prunes=prunes, full_at=random.randint(1, 12))
        lives.insert(at, Life(full))
    return tuple(lives)


def _with_spark(random: Random) -> tuple[Life, ...]:
    lives = [_of_spark(random), _of_the_service(random, first=False)]
    if random.random() < 0.4:
        lives = [_of_the_service(random, first=True), _of_spark(random)]
    elif random.random() < 0.3:
        lives.insert(1, _of_spark(random))
    if random.random() < 0.2:
        surroundings = replace(_surroundings(random), prunes=True)
        at = random.randint(1, 10)
        full = replace(surroundings, full_at=at) if random.random() < 0.5 else replace(surroundings, sink_full_at=at)
        lives.insert(random.randint(0, 1), Life(full))
    return tuple(lives)


def _of_spark(random: Random) -> Life:
    """A life in which Spark is killed: at a point, or else at a moment."""
    trouble, victim = replace(_surroundings(random), prunes=True), random.choice(SPARK_VICTIMS)
    if random.random() < 0.6:
        point = random.choice(SINK_POINTS)
        nth = random.randint(1, 30) if point == "in the middle of a file" else random.choice((1, 1, 1, 2))
        return Life(replace(trouble, point=point, nth=nth), victim, random.uniform(10.0, 14.0), once_ready=True)
    return Life(trouble, victim, random.uniform(0.0, 8.0), once_ready=True)


def _of_the_service(random: Random, *, first: bool) -> Life:
    """A life in which the service with its daemon is killed: at a point, or else at a moment.

    Its sink delivers what is sealed, and what the next daemon seals meanwhile, unless it is killed with it.
    """
    if first and random.random() < 0.7:
        return Life(replace(_surroundings(random), prunes=True), "everything", random.uniform(0.5, 8.0))
    trouble, moment = replace(_surroundings(random), prunes=True), random.uniform(0.5, 2.5 if first else 7.0)
    if random.random() < 0.6:
        trouble, moment = _at_a_point(random, trouble, first=first), max(moment, 3.0)
    return Life(trouble, moment=moment)


def _at_a_point(random: Random, trouble: Trouble, *, first: bool) -> Trouble:
    """The trouble, with a point; the first life is the only one that begins a spool."""
    if first:  # what comes to pass in any case
        point = random.choice(START_POINTS if random.random() < 0.4 else SEAL_POINTS[:7])
        return replace(trouble, point=point, nth=random.randint(1, 5) if "schema" in point else 1)
    kinds = [(SEAL_POINTS, 6), (END_POINTS, 1), (PRUNE_POINTS, 3 if trouble.prunes else 0)]
    (points,) = random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
    point = random.choice(points)
    often = points is SEAL_POINTS and "sweep" not in point
    return replace(trouble, point=point, nth=random.choice((1, 1, 2, 3, 5)) if often else 1)


def _surroundings(random: Random) -> Trouble:
    """A clock that steps, and a disk that is slow, or neither."""
    steps: tuple[tuple[float, int], ...] = ()
    if random.random() < 0.4:
        steps = tuple(
            (random.uniform(0.0, 3.0), random.choice((-1, 1)) * random.randrange(12 * HOUR))
            for _ in range(random.randint(1, 3))
        )
    sync_seconds = random.choice((0.005, 0.02, 0.06)) if random.random() < 0.3 else 0.0
    return Trouble(steps=steps, sync_seconds=sync_seconds)
