"""Runs of `spanner-cdc run`: all but the last end when the sink, Spark, or the whole service is killed."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import NamedTuple, Self

from tests.integration.commands import Background, Done, until

_PATIENCE = 180.0


class Victim(StrEnum):
    """The processes to kill: the sink with all that it started, its JVM alone, or these and the daemon."""

    SINK = "sink"
    SPARK = "Spark"
    SERVICE = "service"


class ServiceRun:
    """A run of the service; the processes that remain at the end are killed."""

    def __init__(self, config: Path, log: Path) -> None:
        self._service = Background("run", config, log=log)
        self._sink = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        if self._service.process.poll() is None:  # otherwise its id may be another process's by now
            self._kill(Victim.SERVICE)
            self._service.process.wait()

    @property
    def said(self) -> str:
        """Its standard error so far."""
        return self._service.said

    @property
    def batches(self) -> int:
        """The number of micro-batches that it has delivered."""
        return self.said.count("spark_sink: batch ")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition while it runs."""
        self._service.until(condition, what, timeout=_PATIENCE)

    def await_batch(self) -> None:
        """Waits until it has delivered a micro-batch."""
        self.until(lambda: self.batches > 0, "a micro-batch")

    def kill(self, victim: Victim) -> None:
        """Kills the victim as soon as it exists; returns once the service has ended, or has restarted the sink."""
        ended = self._service.process.poll
        until(
            lambda: self._kill(victim) or ended() is not None,
            f"{victim} to kill",
            timeout=_PATIENCE,
            more=lambda: self.said,
        )
        if victim is Victim.SERVICE:
            assert self._service.wait(timeout=_PATIENCE).code == -SIGKILL
        else:
            self.until(lambda: "and is restarted" in self.said, "another sink")

    def end(self) -> Done:
        """Waits until it ends by itself."""
        return self._service.wait(timeout=10 * _PATIENCE)

    def _kill(self, victim: Victim) -> bool:
        """Kills the victim; returns whether it existed."""
        self._sink = self._find_sink() or self._sink
        if victim is Victim.SERVICE:
            self._service.process.kill()
        if not self._sink:
            return victim is Victim.SERVICE
        if victim is Victim.SPARK:
            found = [one.id for one in processes() if one.group == self._sink and one.name == "java"]
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process, SIGKILL)
            return bool(found)
        with suppress(ProcessLookupError):
            os.killpg(self._sink, SIGKILL)
        return True

    def _find_sink(self) -> int:
        """The sink's process, which leads a group; 0 if there is none yet."""
        own = self._service.process.pid
        return next((one.id for one in processes() if one.parent == own and one.group == one.id), 0)


class Process(NamedTuple):
    """A process of this machine."""

    id: int
    name: str
    parent: int
    group: int


def processes() -> Iterator[Process]:
    """All running processes."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            head, _, tail = path.read_text(errors="replace").rpartition(")")
            state, parent, group, *_ = tail.split()
            if state != "Z":
                number, _, name = head.partition(" (")
                yield Process(int(number), name, int(parent), int(group))


def victims(kills: int, random: Random) -> list[Victim]:
    """The victims in random order, each equally often."""
    turns: list[Victim] = []
    while len(turns) < kills:
        turns += random.sample(list(Victim), len(Victim))
    return turns[:kills]
