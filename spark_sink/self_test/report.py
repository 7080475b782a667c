"""The report of a self-test: checks that pass or fail, and observations of the service."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from platform import platform, python_version

from spark_sink.self_test.options import Names, Options


class ProbeStatus(Enum):
    """The result of a check."""

    GOOD = "good"
    DIFFERENT = "different"
    FAILED = "failed"
    SKIPPED = "skipped"


class SelfTestVerdict(Enum):
    """The result of an observation for an assumption."""

    SEEN = "seen"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_PROBED = "not probed"


MOST_SHOWN = 20
"""Differences of a check that are printed; all are counted."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison; only ``DIFFERENT`` and ``FAILED`` make the self-test fail."""

    name: str
    status: ProbeStatus
    detail: str
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """An observation of a service; it never makes the self-test fail."""

    about: str
    verdict: SelfTestVerdict
    detail: str

    @classmethod
    def seen(cls, about: str, detail: str) -> "Observation":
        """An observation for no assumption."""
        return cls(about, SelfTestVerdict.SEEN, detail)

    @classmethod
    def not_probed(cls, about: str, why: str) -> "Observation":
        """An assumption that was not probed."""
        return cls(about, SelfTestVerdict.NOT_PROBED, why)


@dataclass(slots=True)
class SelfTestReport:
    """Everything that a self-test has found.

    Attributes:
        left_over: what could not be deleted, each with the command that deletes it.
        error: why the self-test ended before its end; empty if it did not.
    """

    options: Options
    names: Names
    checks: list[Check] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    left_over: list[tuple[str, str]] = field(default_factory=list)
    error: str = ""

    def check(self, name: str, status: ProbeStatus, detail: str, differences: Iterable[str] = ()) -> None:
        """Adds a check."""
        self.checks.append(Check(name, status, detail, tuple(differences)))

    @property
    def is_good(self) -> bool:
        """True if nothing differs, nothing failed and nothing is left."""
        bad = {ProbeStatus.DIFFERENT, ProbeStatus.FAILED}
        return not (self.error or self.left_over or any(check.status in bad for check in self.checks))

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "result": "good" if self.is_good else "bad",
            "error": self.error or None,
            "options": asdict(self.options),
            "names": self.names.prefix,
            "versions": versions(),
            "checks": [{**asdict(check), "status": check.status.value} for check in self.checks],
            "observations": [{**asdict(one), "verdict": one.verdict.value} for one in self.observations],
            "left_over": [{"what": what, "delete_with": command} for what, command in self.left_over],
        }

    def to_text(self) -> str:
        """For people."""
        lines = ["", f"Checks (--seed {self.options.seed})"]
        for check in self.checks:
            lines.append(f"  {check.status.value:<10} {check.name}: {check.detail}")
            lines += [f"             {difference}" for difference in check.differences[:MOST_SHOWN]]
            if len(check.differences) > MOST_SHOWN:
                lines.append(f"             and {len(check.differences) - MOST_SHOWN} more: --json has them all")
        server = "emulator" if self.options.emulator_host else "server" if self.options.is_omni else "service"
        lines += ["", f"Seen of the {server}"]
        lines += [f"  {one.verdict.value:<10} {one.about}: {one.detail}" for one in self.observations]
        if self.left_over:
            lines += ["", "Left over, because it could not be deleted"]
            lines += [f"  {what}: {command}" for what, command in self.left_over]
        if self.error:
            lines += ["", f"Ended early: {self.error}"]
        lines += ["", "all good" if self.is_good else "NOT good"]
        return "\n".join(lines)


def versions() -> dict[str, str]:
    """The versions that a report for support needs."""
    found = {"python": python_version(), "platform": platform()}
    for name in (
        "spanner-cdc-spark",
        "google-cloud-spanner",
        "grpcio",
        "pyarrow",
        "pyspark",
        "google-cloud-bigquery",
        "google-cloud-bigquery-storage",
        "google-cloud-storage",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
