"""What befalls one life of a process; an environment variable carries it there. The points at which it may die."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

ENVIRONMENT = "SOAK_TROUBLE"

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
"""These come to pass only where a sink has consumed something."""

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
class Trouble:
    """What befalls a process, and those that it starts.

    `marks` is a folder for what came to pass. The process dies at the `nth` time that it comes to `point`. Its clock
    stands `still` for so many seconds, so many seconds after it began, and
    is set by `steps`: so many nanoseconds, so many seconds after it began. Each fsync takes `sync_seconds`. The disk
    is full at the daemon's `full_at`-th file, or the sink's `sink_full_at`-th; 0 is never. What was consumed is
    pruned at once if it `prunes`. With `columns` the fast decoders take rows however few they are. With `cut_files`
    cuts have files of their own however small they are, and few epochs are summarized together.
    """

    marks: str = ""
    point: str = ""
    nth: int = 1
    steps: tuple[tuple[float, int], ...] = ()
    still: tuple[tuple[float, float], ...] = ()
    sync_seconds: float = 0.0
    full_at: int = 0
    sink_full_at: int = 0
    prunes: bool = False
    columns: bool = False
    cut_files: bool = False

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_environment(cls) -> "Trouble":
        node = json.loads(os.environ[ENVIRONMENT])
        node["steps"] = tuple((float(after), int(step)) for after, step in node["steps"])
        node["still"] = tuple((float(after), float(seconds)) for after, seconds in node["still"])
        return cls(**node)


class Points:
    """Counts how often each point is reached, and calls `die` at the one that the trouble names."""

    def __init__(self, trouble: Trouble, die: Callable[[], None]) -> None:
        self._trouble = trouble
        self._die = die
        self._times = 0

    def is_next(self, name: str) -> bool:
        """Whether it dies here; `die` is then the caller's to call."""
        if name != self._trouble.point:
            return False
        self._times += 1
        return self._times == self._trouble.nth and mark(self._trouble, name)

    def reached(self, name: str) -> None:
        if self.is_next(name):
            self._die()

    def die(self) -> None:
        self._die()


def mark(trouble: Trouble, name: str) -> bool:
    """Leaves word that it came to pass, with this process's id; False if another process has done so."""
    whole = Path(trouble.marks, f".{os.getpid()}")
    whole.write_text(str(os.getpid()))
    try:
        os.link(whole, Path(trouble.marks, name))
    except FileExistsError:
        return False
    finally:
        whole.unlink()  # else the next mark would be written into this one
    return True


def marks(folder: Path) -> dict[str, int]:
    """What came to pass, each with the id of the process to which it did."""
    return {path.name: int(path.read_text()) for path in folder.iterdir() if not path.name.startswith(".")}
