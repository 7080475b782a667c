"""The campaign of two backfills at once: one is stopped in part and resumed, one is filtered, and both are killed.

``python -m tests.spark_sink.reading.backfill.campaign.at_once --rows 500000 --kills 5`` loads ten tables, and runs two
commands ``spanner-cdc backfill`` for the parents and for the children, under write load. A column is hashed, another
excluded. In the end the files must have what a query with the same columns and condition has at the timestamp of each.
"""

import argparse
import hmac
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import yaml
from proto.datetime_helpers import DatetimeWithNanoseconds

from connector.core.timestamps import format_rfc3339
from connector.spool.backfill.records import RecordedBackfill, find
from connector.spool.reading import Spool
from emulator import SampleDatabase, find_or_start
from tests.integration.commands import Background, run, until
from tests.java import java_options
from tests.soak.process_tree import command, kill, process_tree
from tests.spark_sink.reading.backfill.campaign.campaign import report
from tests.spark_sink.reading.backfill.campaign.tables import PARENTS, Load, ddl, key_columns, load, rows_of_database
from tests.spark_sink.reading.backfill.state import events

PATTERNS = ("Parent*", "Child*")
STOPPED, FILTERED = "Parent0", "Child1"
_SALT = "a salt of the campaign's own"
_PLANTED = b"x" * 40
"""Part of each value that is hashed or excluded."""

Row = tuple[object, ...]


class AtOnce:
    """One database, two backfills.

    Args:
        sample: an empty database.
        folder: everything of the run.
        rows: how many are loaded.
        seed: of all that is random.
        parents: the number of tables with interleaved ones.

    Attributes:
        kills: how many there were.
    """

    def __init__(self, sample: SampleDatabase, folder: Path, *, rows: int, seed: int, parents: int = PARENTS) -> None:
        self._sample = sample
        self._folder = folder
        self._rows = rows
        self._parents = parents
        self._random = Random(seed)
        self._spool = Spool.at(folder / "spool")
        self._config = self._configured()
        self._commands = dict[int, Background]()
        self._starts = 0
        self.kills = 0

    def run(self, kills: int) -> str:
        """Returns what is wrong, or an empty text."""
        self._sample.run_ddl(*ddl(self._sample.dialect, self._parents))
        load(self._sample.database, self._rows, self._parents)
        try:
            with Load(self._sample.database, self._rows, Random(self._random.random()), parents=self._parents):
                self._start_both()
                while self.kills < kills and self._kill():
                    pass
                self._command("--resume", STOPPED)
                self._finish()
        finally:
            for process in self._commands.values():
                kill(process_tree(process.process.pid))
        return self._wrong()

    def _configured(self) -> Path:
        sample, quote = self._sample, "`" if self._sample.dialect == "googlesql" else '"'
        node = {
            "source": {
                "project": sample.project,
                "instance": sample.instance,
                "database": sample.database_id,
                "change_stream": sample.change_stream,
                "emulator_host": sample.host,
                "backfill": {"where": {FILTERED: f"{quote}Count{quote} >= {self._least}"}, "max_tasks": 2},
                "columns": {"exclude": ["Child*.Name"], "hash": {"Parent*.Name": {"salt": _SALT}}},
            },
            "spool": {"path": self._spool.path},
            "sink": {"path": str(self._folder / "events"), "dead_letters": str(self._folder / "dead")},
            "spark": {
                "master": "local[1]",
                "checkpoint": str(self._folder / "checkpoint"),
                "config": {"spark.driver.memory": "768m"},
            },
            "status": {"port": 0},
        }
        path = self._folder / "config.yaml"
        path.write_text(yaml.safe_dump(node))
        return path

    @property
    def _least(self) -> int:
        """The least `Count` of the rows of the filtered table that are delivered: that of about half of them."""
        return self._rows // self._parents // 4

    def _start_both(self) -> None:
        self._start(1)
        until(lambda: self._backfill(1) is not None, "the first backfill is recorded", more=self._said)
        self._command("--stop", STOPPED)
        self._start(2)
        until(lambda: self._backfill(2) is not None, "the second backfill is recorded", more=self._said)
        first = self._backfill(1)
        assert first is not None
        assert not first.progress.is_done, "they are not unfinished at once"

    def _start(self, number: int) -> None:
        self._starts += 1
        log = self._folder / f"backfill-{number}-{self._starts}.log"
        self._commands[number] = Background("backfill", self._config, "--table", PATTERNS[number - 1], log=log)

    def _command(self, option: str, table: str) -> None:
        done = run("backfill", self._config, option, table)
        assert done.code == 0, done.err

    def _said(self) -> str:
        return "\n".join(process.said for process in self._commands.values())

    def _backfill(self, number: int) -> RecordedBackfill | None:
        try:
            return find(self._spool, number)
        except FileNotFoundError:
            return None

    def _sealed(self, number: int) -> int:
        one = self._backfill(number)
        return one.spool.latest() if one is not None else 0

    def _kill(self) -> bool:
        """Kills a command, or its driver alone, once it has sealed something more; False if both have ended."""
        alive = [number for number, process in self._commands.items() if process.process.poll() is None]
        if not alive:
            return False
        number = self._random.choice(alive)
        process, before = self._commands[number].process, self._sealed(number)
        deadline = time.monotonic() + self._random.uniform(30, 120)
        while process.poll() is None and self._sealed(number) == before and time.monotonic() < deadline:
            time.sleep(0.1)
        if process.poll() is not None:
            return True
        tree = process_tree(process.pid)
        drivers = [one for one in tree if "--backfill" in command(one)]
        is_driver = bool(drivers) and self._random.random() < 0.5
        kill(process_tree(drivers[0]) if is_driver else tree)
        self.kills += 1
        what = "driver" if is_driver else "command"
        report(f"kill {self.kills}: the {what} of backfill {number}, {self._sealed(number)} partitions sealed")
        if not is_driver:
            process.wait()
            self._start(number)
        return True

    def _finish(self) -> None:
        for number in (1, 2):
            while True:
                done = self._commands[number].wait(timeout=3600)
                one = self._backfill(number)
                assert one is not None
                if one.progress.is_done:
                    break
                assert "its tables" in done.err or "are stopped" in done.err, done.err
                self._start(number)

    def _wrong(self) -> str:
        expected, found = self._expected(), Counter[Row]()
        uuids = Counter[str]()
        for event in events(self._folder / "events"):
            found[self._delivered(event)] += 1
            uuids[event["uuid"]] += 1
        lacking, more = expected - found, found - expected
        report(f"{expected.total()} rows by queries, {found.total()} delivered, {self.kills} kills")
        if lacking or more:
            return f"{lacking.total()} rows are missing, {more.total()} are too many: {[*lacking][:2]}, {[*more][:2]}"
        if leaked := [path for path in self._folder.rglob("*") if path.is_file() and _PLANTED in path.read_bytes()]:
            return f"values of hashed or excluded columns are in {leaked[:3]}"
        return f"{len(uuids)} uuids of {uuids.total()} events" if len(uuids) != uuids.total() else ""

    def _expected(self) -> Counter[Row]:
        """The rows of both backfills by queries at their timestamps."""
        return Counter(row for number in (1, 2) for row in self._queried(number))

    def _queried(self, number: int) -> Iterator[Row]:
        one = self._backfill(number)
        assert one is not None
        at = DatetimeWithNanoseconds.from_rfc3339(format_rfc3339(one.document.timestamp))
        names = [table.table for table in one.document.tables]
        for (table, key), (name, count) in rows_of_database(self._sample.database, at, names).items():
            if table != FILTERED or count >= self._least:
                yield table, *key, digest(name) if table.startswith("Parent") else None, count

    @staticmethod
    def _delivered(event: Mapping[str, dict[str, str]]) -> Row:
        payload, table = event["payload"], str(event["object"])
        assert ("Name" in payload) == table.startswith("Parent")
        return table, *(int(payload[name]) for name in key_columns(table)), payload.get("Name"), int(payload["Count"])


def digest(value: str) -> str:
    """As docs/configuration.md describes it."""
    return hmac.new(_SALT.encode(), f"STRING\n{value}".encode(), "sha256").hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.reading.backfill.campaign.at_once")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    given = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())
    folder = Path(tempfile.mkdtemp(prefix="backfills-"))
    report(f"{given.rows} rows, {given.kills} kills, seed {given.seed}, {given.dialect}: {folder}")
    with find_or_start(churn_seconds=10) as emulator:
        sample = SampleDatabase.create(emulator.host, dialect=given.dialect)
        wrong = AtOnce(sample, folder, rows=given.rows, seed=given.seed).run(given.kills)
    report(f"seed {given.seed}: {wrong or 'the files have what the queries have'}; {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
