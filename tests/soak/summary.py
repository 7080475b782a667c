"""Summarizes a campaign in numbers."""

from collections import Counter
from collections.abc import Iterable

from tests.soak.seed import Kind, Outcome

KINDS: dict[Kind, str] = {
    "real processes": "seeds with real processes, the sink in the background",
    "Spark killed too": "seeds with real processes, as one service with Spark",
    "one process": "seeds in one process, on virtual time",
}
_GROUPS = (
    "incidents",
    "incidents, by mode",
    "incidents explained in one line",
    "incidents that did not happen",
    "kills",
    "killed",
    "workers of the daemon",
    "restarts",
    "full disks",
    "slow disks",
    "clock steps",
    "faults",
    "partitions",
    "placements",
    "scenarios",
    "epochs",
    "mods",
    "in one process",
)
_SPARK = ("killed: Spark's driver", "killed: the JVM", "killed: Spark's workers", "killed: everything")
_DAEMON = ("killed: the daemon", "killed: everything")


def daemon_was_killed(outcome: Outcome) -> bool:
    return any(outcome.counts[name] for name in _DAEMON)


def spark_was_killed(outcome: Outcome) -> bool:
    return any(outcome.counts[name] for name in _SPARK)


def summary(outcomes: Iterable[Outcome], seconds: float) -> str:
    """Returns every count, by group."""
    ended = list(outcomes)
    counts: Counter[str] = Counter()
    for outcome in ended:
        counts.update(outcome.counts)
    lines = [f"fault campaign: {len(ended)} seeds in {seconds:.0f} s"]
    for kind, name in KINDS.items():
        of_kind = [outcome for outcome in ended if outcome.kind == kind]
        took = sum(outcome.seconds for outcome in of_kind) / max(len(of_kind), 1)
        failed = sum(bool(outcome.failure) for outcome in of_kind)
        lines.append(f"  {len(of_kind):>6}  {name}: {failed} failed, {took:.2f} s each")
    real = [outcome for outcome in ended if outcome.kind != "one process"]
    lines.append(f"  {sum(map(daemon_was_killed, real)):>6}  of those with real processes had the daemon SIGKILLed")
    lines.append(f"  {sum(map(spark_was_killed, real)):>6}  of them had Spark SIGKILLed too")
    for group in _GROUPS:
        of_group = {name.partition(": ")[2]: count for name, count in counts.items() if name.startswith(f"{group}: ")}
        if of_group:
            lines.append(f"{group}: {sum(of_group.values()) if group in _SUMMED else ''}".rstrip())
            lines += [f"  {count:>6}  {name.replace('_', ' ')}" for name, count in sorted(of_group.items())]
    return "\n".join(lines)


_SUMMED = {"kills", "killed", "faults", "partitions"}
