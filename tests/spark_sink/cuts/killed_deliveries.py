"""Deliveries of transfers as files, without Spark: they are killed at their writes, and readers look after each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from connector.spool.storage.local import LocalStore
from connector.spool.storage.local_files import LocalFile
from tests.spark_sink.cuts.file_deliveries import FileDeliveries
from tests.spark_sink.cuts.transfers import TOTAL, CutReader, Transfers, total_without_cuts
from tests.spark_sink.spools import SpoolMaker

_LOOKED_AT = 20
"""Minutes in which the reader without cuts looks: it reads all files each time."""

_SOON = 12
"""Writes within which a run is killed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The result.

    Attributes:
        cuts: how many minutes were complete.
        wrong: the sums as of these that were wrong.
        halves: how many sums without cuts were wrong.
        kills: how often the delivery was killed.
    """

    cuts: int
    wrong: list[int]
    halves: int
    kills: int


class KilledError(BaseException):
    """The sink's process ends there."""


class _Writes:
    """The writes to disk: ``each`` is called after one, and one may be the last."""

    def __init__(self, each: Callable[[], object]) -> None:
        self._each = each
        self.left = -1

    @contextmanager
    def watched(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for kind, name in ((LocalStore, "create"), (LocalStore, "replace"), (LocalFile, "publish")):
                patch.setattr(kind, name, self._counting(getattr(kind, name)))
            yield

    def _counting(self, write: Callable[..., None]) -> Callable[..., None]:
        def counted(*arguments: object, **named: object) -> None:
            if self.left == 0:
                raise KilledError
            self.left -= 1
            write(*arguments, **named)
            self._each()

        return counted


def seen(folder: Path, random: Random, minutes: int, kills: int, *, by_minute: bool) -> Seen:
    """Delivers minutes of transfers, and reads meanwhile.

    Args:
        folder: everything of the run.
        random: decides what is moved, and when a run is killed.
        minutes: how many.
        kills: about so many, or more.
        by_minute: whether a file holds a minute, or an epoch.
    """
    root, spool = folder / "out", SpoolMaker(folder / "spool")
    transfers, reader = Transfers(spool, random), CutReader(root)
    halves = done = killed = 0

    def look() -> None:
        nonlocal halves
        reader.read()
        if transfers.minutes <= _LOOKED_AT and done:
            halves += total_without_cuts(root) != TOTAL

    writes = _Writes(look)
    for _ in range(minutes):
        last = transfers.minute()
        while done < last:
            end = last if by_minute else done + 1
            while True:
                kill = random.random() * minutes < 3 * kills
                writes.left = random.randrange(_SOON) if kill else -1
                with suppress(KilledError), writes.watched():
                    FileDeliveries(spool, str(root), by_minute=by_minute).deliver(done + 1, end)
                    break
                killed += 1
            done = end
    return Seen(reader.cuts, reader.wrong, halves, killed)
