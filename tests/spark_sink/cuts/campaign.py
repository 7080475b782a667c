"""A campaign: a spool that grows, the file sink's process that is killed, and readers beside it."""

import sys
import time
from pathlib import Path
from random import Random

from spark_sink.sinks.files.complete_minutes import FOLDER
from tests.spark_sink.cuts.transfers import TOTAL, CutReader, Transfers, total_without_cuts
from tests.spark_sink.processes import PATIENCE, Program, program
from tests.spark_sink.spools import SpoolMaker

_WAITING = 5
"""Minutes that may wait in the spool for the sink: more would come in one micro-batch."""

_LOOKED_AT = 40
"""Minutes in which the reader without cuts looks: it reads all files each time."""


class Campaign:
    """A spool, a folder of files, and the sink between them.

    Args:
        folder: everything of the run.
        random: decides what is moved, and when the sink is killed.
    """

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder = folder
        self._random = random
        self._root = folder / "out"
        self._transfers = Transfers(SpoolMaker(folder / "spool"), random)
        self._reader = CutReader(self._root)
        self._halves = 0
        self._starts = 0

    def run(self, minutes: int, kills: int) -> str:
        """Returns what is wrong, or an empty text."""
        killed_at = sorted(self._random.randrange(1, minutes) for _ in range(kills))
        for at in [*killed_at, minutes]:
            with program(self._folder / f"log{self._starts}", "-m", "spark_sink", self._configured()) as sink:
                self._starts += 1
                self._await(sink, at, minutes)
                if at == minutes:
                    sink.end_input()
                    if sink.code():
                        return sink.said()[-2000:]
                elif sink.has_ended():
                    return f"the sink has ended: {sink.said()[-2000:]}"
                else:
                    sink.kill()
            self._reader.read()
        sys.stdout.write(
            f"{self._reader.cuts} cuts after {kills} kills, {len(self._reader.wrong)} with a wrong sum; without cuts"
            f" {self._halves} sums were wrong\n"
        )
        if self._reader.cuts != minutes or self._reader.wrong:
            return f"{self._reader.cuts} cuts of {minutes} minutes, wrong sums: {self._reader.wrong[:5]}"
        return "" if self._halves else "no sum without cuts was wrong"

    def _await(self, sink: Program, at: int, minutes: int) -> None:
        """Seals minutes and reads until so many are complete."""
        deadline = time.monotonic() + PATIENCE
        while self._reader.cuts < at and not sink.has_ended():
            before = self._reader.cuts
            if self._transfers.minutes < min(minutes, before + _WAITING):
                self._transfers.minute()
            self._reader.read()
            if before < _LOOKED_AT and (self._root / FOLDER).exists():
                self._halves += total_without_cuts(self._root) != TOTAL
            if self._reader.cuts > before:
                deadline = time.monotonic() + PATIENCE
            assert time.monotonic() < deadline, f"no minute is complete: {sink.said()[-1000:]}"

    def _configured(self) -> str:
        path = self._folder / "config.yaml"
        path.write_text(
            "source: {project: project, instance: instance, database: d, change_stream: Everything}\n"
            f"spool: {{path: {self._folder / 'spool'}}}\nsink: {{path: {self._root}}}\n"
            f"spark: {{master: 'local[2]', checkpoint: {self._folder / 'checkpoint'}, trigger: 100ms,"
            " config: {spark.driver.memory: 768m}}\n"
        )
        return str(path)
