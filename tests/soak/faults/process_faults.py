"""The faults of a process, which an environment variable passes to it, and the points at which it may be killed."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ENVIRONMENT = "SOAK_FAULTS"

START_POINTS = (
    "before a schema",
    "after a schema",
    "before the header",
    "in the middle of the header",
    "after the header",
)
SEAL_POINTS = (
    "before a segment",
    "in the middle of a segment",
    "after a segment, before its manifest",
    "in the middle of a manifest",
    "before the link of a manifest",
    "after the link of a manifest",
    "after a manifest",
    "before the sweep",
    "in the middle of the sweep",
    "after the sweep",
    "before a cut file",
    "in the middle of a cut file",
    "after a cut file",
    "before a summary",
    "in the middle of a summary",
    "after a summary",
)
END_POINTS = ("before the last epoch", "after the last epoch")
PRUNE_POINTS = (
    "before a prune",
    "after the floor, before its epochs are deleted",
    "in the middle of a prune",
    "after a prune",
)
"""Points that are reached only after a sink has consumed epochs."""

SINK_POINTS = (
    "before a micro-batch",
    "before a file is written",
    "in the middle of a file",
    "before a file has its name",
    "after a file has its name",
    "after a micro-batch, before its commit",
    "before progress is recorded",
    "after progress is recorded",
)


@dataclass(frozen=True, slots=True)
class ProcessFaults:
    """The faults of a process and of those that it starts.

    Args:
        marks: a folder in which processes mark what happened.
        point: the process kills itself there.
        nth: at which arrival at `point`.
        clock_steps: how the clock is set: seconds after the start, and nanoseconds.
        clock_stops: when the clock stops: seconds after the start, and for how many seconds.
        sync_seconds: added to each fsync.
        full_at: the daemon's file at which the disk is full; 0 is never.
        sink_full_at: the sink's file at which the disk is full; 0 is never.
        full_while: the disk of the spool is full while this file is there.
        prunes: whether consumed epochs are pruned at once.
        columns: whether the column decoders decode rows however few they are.
        cut_files: whether all cuts have files of their own, and few epochs are summarized together.
    """

    marks: str = ""
    point: str = ""
    nth: int = 1
    clock_steps: tuple[tuple[float, int], ...] = ()
    clock_stops: tuple[tuple[float, float], ...] = ()
    sync_seconds: float = 0.0
    full_at: int = 0
    sink_full_at: int = 0
    full_while: str = ""
    prunes: bool = False
    columns: bool = False
    cut_files: bool = False

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> "ProcessFaults":
        node = json.loads(os.environ[ENVIRONMENT])
        node["clock_steps"] = tuple((float(after), int(step)) for after, step in node["clock_steps"])
        node["clock_stops"] = tuple((float(after), float(seconds)) for after, seconds in node["clock_stops"])
        return cls(**node)


class Points:
    """Counts how often points are reached, and calls `die` at the point that the faults name."""

    def __init__(self, faults: ProcessFaults, die: Callable[[], None]) -> None:
        self._faults = faults
        self._die = die
        self._times = 0

    def is_next(self, name: str) -> bool:
        """True if the process has to die here; the caller must then call `die`."""
        if name != self._faults.point:
            return False
        self._times += 1
        return self._times == self._faults.nth and mark(self._faults, name)

    def reached(self, name: str) -> None:
        if self.is_next(name):
            self._die()

    def die(self) -> None:
        self._die()


def mark(faults: ProcessFaults, name: str) -> bool:
    """Marks that something happened, with this process's id; returns False if another process already has."""
    whole = Path(faults.marks, f".{os.getpid()}")
    whole.write_text(str(os.getpid()))
    try:
        os.link(whole, Path(faults.marks, name))
    except FileExistsError:
        return False
    finally:
        whole.unlink()  # else the next mark would overwrite this one
    return True


def marks(folder: Path) -> dict[str, int]:
    """Returns what happened, each with the id of the process."""
    return {path.name: int(path.read_text()) for path in folder.iterdir() if not path.name.startswith(".")}
