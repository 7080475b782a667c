"""The campaign: executors read a history with splits, merges and moves, and processes are killed on the way.

``python -m tests.spark_sink.windows --transactions 20000 --kills 10 --dialect googlesql --mode MUTABLE_KEY_RANGE``
serves a scripted history, and runs ``spanner-cdc read`` with ``source.reader: executors``. It kills the driver, its
JVM, an executor or a Python worker at random moments, and starts the command again where it has ended. In the end the
spool must hold every committed mod once, in order, and no transaction split. A failure names its seed and keeps its
folder.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import get_args

from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.reading import Spool
from emulator import SampleDatabase, Scenario, ScriptedServer
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from tests.emulator.subjects import sample_of
from tests.integration.commands import Background, configuration
from tests.integration.delivered import assert_delivered
from tests.soak.process_tree import command, is_jvm, is_worker, kill, process_tree

_PATIENCE = 3600.0
_LONGEST_WAIT = 120.0


def main() -> int:
    given = _arguments()
    random = Random(given.seed)
    folder = Path(tempfile.mkdtemp(prefix="executors-"))
    scenario = Scenario.generate(
        given.seed,
        origin=time.time_ns() - int((given.seconds + 30) * SECOND),
        seconds=given.seconds,
        dialect=given.dialect,
        mode=given.mode,
        transactions=given.transactions,
        churn=given.churn,
        first_partitions=6,
    )
    _say(f"seed {given.seed}, {given.dialect}, {given.mode}, {given.master}: {len(scenario.committed)} mods; {folder}")
    started = time.monotonic()
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        campaign = _Campaign(sample_of(server), scenario, folder, random, given.master)
        campaign.run(given.kills)
    seconds = time.monotonic() - started
    manifests = assert_delivered(folder / "spool", scenario.committed, value_capture_type=scenario.value_capture_type)
    killed = ", ".join(f"{count} {what}" for what, count in sorted(campaign.killed.items()))
    _say(
        f"{len(scenario.committed)} mods once and in order, {len(manifests)} epochs, {seconds:.0f} s; killed: {killed}"
    )
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.windows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transactions", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=300, help="of commit time")
    parser.add_argument("--churn", type=int, default=60)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--dialect", choices=get_args(Dialect), default="googlesql")
    parser.add_argument("--mode", choices=get_args(PartitionMode), default="IMMUTABLE_KEY_RANGE")
    parser.add_argument("--master", default="local-cluster[2,1,1024]")
    return parser.parse_args()


class _Campaign:
    """Runs of one configuration, and kills."""

    def __init__(self, sample: SampleDatabase, scenario: Scenario, folder: Path, random: Random, master: str) -> None:
        self._folder = folder
        self._random = random
        self._spool = folder / "spool"
        self._config = configuration(
            folder,
            sample,
            source={
                "reader": "executors",
                "start": format_rfc3339(scenario.history.origin),
                "end": format_rfc3339(scenario.history.horizon),
            },
            spark={"master": master, "config": {"spark.driver.memory": "768m"}},
        )
        self._runs = 0
        self.killed: Counter[str] = Counter()

    def run(self, kills: int) -> None:
        """Kills so many processes while the history is read, and reads it to its end."""
        reading = self._start()
        deadline = time.monotonic() + _PATIENCE
        try:
            while reading.process.poll() != 0:
                assert time.monotonic() < deadline, f"it has not ended: {reading.said}"
                if reading.process.poll() is not None:
                    reading = self._start()
                if self.killed.total() < kills:
                    self._await_progress(reading)
                    self._kill(reading)
                time.sleep(0.5)
        finally:
            kill(process_tree(reading.process.pid))

    def _start(self) -> Background:
        self._runs += 1
        return Background("read", self._config, log=self._folder / f"read-{self._runs}.log")

    def _await_progress(self, reading: Background) -> None:
        """Waits until this run has sealed a window, or for a while, and then a little more."""
        before, deadline = self._epoch(), time.monotonic() + _LONGEST_WAIT
        while self._epoch() == before and reading.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(self._random.uniform(0, 4))

    def _epoch(self) -> int:
        return Spool.at(self._spool).latest() if (self._spool / "spool.json").exists() else 0

    def _kill(self, reading: Background) -> None:
        if reading.process.poll() is not None:
            return
        tree = process_tree(reading.process.pid)
        kinds = {
            "driver": tree[:1],
            "JVM": [one for one in tree if is_jvm(one)],
            "executor": [one for one in tree if "CoarseGrainedExecutorBackend" in command(one)],
            "worker": [one for one in tree if is_worker(one)],
        }
        what = self._random.choice([name for name, found in kinds.items() if found])
        kill([self._random.choice(kinds[what])])
        self.killed[what] += 1
        _say(f"kill {self.killed.total()}: {what}, after epoch {self._epoch()}")
        if what == "driver":
            reading.process.wait()
            kill(tree[1:])  # Spark's own processes end later; a next driver must do with them or without


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    sys.exit(main())
