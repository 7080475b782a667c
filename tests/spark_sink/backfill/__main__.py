"""The campaign: a large database is backfilled under write load, and processes are killed on the way.

``python -m tests.spark_sink.backfill --rows 500000 --kills 10 --dialect googlesql`` loads ten tables, half of them
interleaved in the others, and runs ``spanner-cdc run`` with ``source.backfill``. It kills the service, the driver of
the backfill or one of its workers at random, and starts the service again. In the end the files must amount to what
Spanner has. A failure names its seed and keeps its folder.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import yaml
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.keyset import KeySet
from google.protobuf.timestamp_pb2 import Timestamp
from proto.datetime_helpers import DatetimeWithNanoseconds

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.reading import Spool
from emulator import SampleDatabase, find_or_start
from emulator.demo.reread import rereader
from emulator.demo.skipped import MOST_SKIPPED
from tests.integration.commands import Background
from tests.soak.process_tree import command, is_worker, kill, process_tree
from tests.spark_sink.backfill.state import events, position_of

PARENTS = 5
_CHUNK = 2000
_PATIENCE = 3600.0


def tables() -> list[str]:
    return [f"{kind}{number}" for number in range(PARENTS) for kind in ("Parent", "Child")]


def ddl(dialect: str) -> list[str]:
    text, number = ("STRING(MAX)", "INT64") if dialect == "googlesql" else ("varchar", "bigint")
    quote = "`" if dialect == "googlesql" else '"'

    def create(table: str, columns: str, key: str, more: str) -> str:
        body = ", ".join(f"{quote}{name}{quote} {kind}" for name, kind in _columns(columns, text, number))
        keys = ", ".join(f"{quote}{name}{quote}" for name in key.split())
        head = f"CREATE TABLE {quote}{table}{quote}"
        if dialect == "googlesql":
            return f"{head} ({body}) PRIMARY KEY ({keys}){', ' if more else ''}{more}"
        return f"{head} ({body}, PRIMARY KEY ({keys})) {more}"

    statements = []
    for each in range(PARENTS):
        statements.append(create(f"Parent{each}", "Id Name Count", "Id", ""))
        parent = f"INTERLEAVE IN PARENT {quote}Parent{each}{quote} ON DELETE CASCADE"
        statements.append(create(f"Child{each}", "Id Line Name Count", "Id Line", parent))
    return statements


def _columns(names: str, text: str, number: str) -> Iterator[tuple[str, str]]:
    for name in names.split():
        kind = text if name == "Name" else number
        yield name, f"{kind} NOT NULL" if name in ("Id", "Line") else kind


def columns_of(table: str) -> tuple[str, ...]:
    return ("Id", "Name", "Count") if table.startswith("Parent") else ("Id", "Line", "Name", "Count")


def load(database: Database, rows: int) -> None:
    """Fills the tables with about so many rows, equally many in each."""
    each = rows // len(tables())
    for table in tables():
        names = columns_of(table)
        for first in range(0, each, _CHUNK):
            values = []
            for index in range(first, min(first + _CHUNK, each)):
                key = (index,) if "Line" not in names else (index, index % 7)
                values.append((*key, f"{table} row {index} " + "x" * 60, index))
            with database.batch() as batch:
                batch.insert(table, names, values)


def write(database: Database, rows: int, random: Random, stop: threading.Event) -> None:
    """Inserts, updates and deletes single rows until ``stop``."""
    each, new = rows // len(tables()), rows
    while not stop.wait(0.02):
        table = random.choice(tables())
        names = columns_of(table)
        index = random.randrange(each)
        key = (index,) if "Line" not in names else (index, index % 7)
        kind = random.random()
        if kind < 0.2 and "Line" in names:
            with database.batch() as batch:
                batch.delete(table, KeySet(keys=[key]))
        elif kind < 0.4 and "Line" not in names:
            new += 1
            with database.batch() as batch:
                batch.insert(table, names, [(new, "new", new)])
        elif "Line" not in names:
            with database.batch() as batch:
                batch.update(table, names, [(*key, "updated", random.randrange(10**6))])
        else:
            with database.batch() as batch:
                batch.insert_or_update(table, names, [(*key, "written", random.randrange(10**6))])


def last_commit(database: Database) -> str:
    """Commits a last row; its timestamp is after all others, whatever this machine's clock is."""
    with database.batch() as batch:
        batch.insert("Parent0", columns_of("Parent0"), [(10**9, "last", 0)])
    return str(DatetimeWithNanoseconds.from_timestamp_pb(_stamp(batch.committed)).rfc3339())


def _stamp(committed: object) -> Timestamp:
    stamp = committed.timestamp_pb() if isinstance(committed, DatetimeWithNanoseconds) else committed
    assert isinstance(stamp, Timestamp)
    return stamp


Rows = dict[tuple[str, tuple[int, ...]], tuple[str, int]]


def rows_of_database(database: Database) -> Rows:
    found: Rows = {}
    with database.snapshot(multi_use=True) as snapshot:
        for table in tables():
            names = columns_of(table)
            for row in snapshot.read(table, names, KeySet(all_=True)):
                found[table, tuple(row[:-2])] = (row[-2], row[-1])
    return found


def rows_of_files(folder: Path) -> Rows:
    newest: dict[tuple[str, tuple[int, ...]], tuple[tuple[int, int, int], tuple[str, int] | None]] = {}
    for event in events(folder):
        payload, table = event["payload"], event["object"]
        key = table, tuple(payload[name] for name in columns_of(table)[:-2])
        at = position_of(event)
        if key not in newest or at > newest[key][0]:
            is_deleted = event["source_metadata"]["is_deleted"]
            newest[key] = (at, None if is_deleted else (payload["Name"], payload["Count"]))
    return {key: row for key, (_, row) in newest.items() if row is not None}


def skipped(sample: SampleDatabase, folder: Path, end: str) -> set[int]:
    """The commits that no event has and a bounded re-read of the stream returns: the emulator skips some (see skipped).

    Its live queries never return a commit exactly on the end of a chop (emulator/demo/skipped.py).
    """
    start = Spool.at(folder / "spool").header().start
    reread = rereader(sample.host, sample.path, sample.change_stream, sample.dialect, seconds=300)
    delivered = {position_of(event)[0] for event in events(folder / "events")}
    return {mod.commit_timestamp for mod in reread(start, parse(end))} - delivered


class Campaign:
    """One database, one spool, some kills."""

    def __init__(self, sample: SampleDatabase, folder: Path, random: Random) -> None:
        self._sample = sample
        self._folder = folder
        self._random = random
        self._starts = 0
        self.killed: list[str] = []

    def config(self, end: str | None) -> Path:
        folder, sample = self._folder, self._sample
        source = {
            "project": sample.project,
            "instance": sample.instance,
            "database": sample.database_id,
            "change_stream": sample.change_stream,
            "emulator_host": sample.host,
            "backfill": True,
            "tables": {"include": ["Parent*", "Child*"]},
        }
        node = {
            "source": {**source, **({"end": end} if end else {})},
            "spool": {"path": str(folder / "spool")},
            "sink": {"path": str(folder / "events"), "rotate_interval": "0s", "dead_letters": str(folder / "dead")},
            "spark": {
                "master": "local[2]",
                "checkpoint": str(folder / "checkpoint"),
                "config": {"spark.driver.memory": "768m"},
            },
            "status": {"port": 0},
        }
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(node))
        return path

    def run(self, end: str | None) -> Background:
        self._starts += 1
        return Background("run", self.config(end), log=self._folder / f"run-{self._starts}.log")

    def await_progress(self) -> None:
        """Waits until something was sealed or delivered since the last kill, or for a while, and then a little more."""
        deadline, before = time.monotonic() + 240, self._reached()
        while self._reached() == before and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(self._random.uniform(0, 8))

    def _reached(self) -> tuple[int, int]:
        own = self._folder / "spool/backfills/1"
        sealed, delivered = own / "manifests", own / "consumers/files.json"
        return len(
            list(sealed.iterdir())
        ) if sealed.exists() else 0, delivered.stat().st_ino if delivered.exists() else 0

    def kill(self, service: Background) -> None:
        """Kills the service, the backfill's driver, or one of its workers."""
        tree = process_tree(service.process.pid)
        drivers = [process for process in tree if "--backfill" in command(process) and "spark_sink" in command(process)]
        of_backfill = process_tree(drivers[0]) if drivers else []
        workers = [process for process in of_backfill if is_worker(process)]
        victim = self._random.choice(["service", "driver", "worker"])
        if victim == "worker" and workers:
            kill([self._random.choice(workers)])
        elif victim == "driver" and drivers:
            kill(of_backfill)
        else:
            victim = "service"
            kill(tree)
        self.killed.append(victim)


def run(sample: SampleDatabase, folder: Path, *, rows: int, kills: int, seed: int) -> str:
    """Runs a campaign; returns what is wrong, or an empty text."""
    random, database = Random(seed), sample.database
    started = time.monotonic()
    load(database, rows)
    report(f"{rows} rows loaded in {time.monotonic() - started:.0f} s")
    campaign, stop = Campaign(sample, folder, random), threading.Event()
    writer = threading.Thread(target=write, args=(database, rows, Random(seed + 1), stop), name="load")
    writer.start()
    try:
        while len(campaign.killed) < kills:
            with campaign.run(None) as service:
                while service.process.poll() is None and len(campaign.killed) < kills:
                    campaign.await_progress()
                    campaign.kill(service)
                    report(f"kill {len(campaign.killed)}: {campaign.killed[-1]}; {progress(folder)}")
                    if campaign.killed[-1] == "service":
                        service.process.wait()
                kill(process_tree(service.process.pid))
    finally:
        stop.set()
        writer.join()
    end = last_commit(database)
    with campaign.run(end) as service:
        done = service.wait(timeout=_PATIENCE)
    report(f"the last run ended with code {done.code}; {progress(folder)}; {time.monotonic() - started:.0f} s in all")
    if done.code:
        return done.err[-2000:]
    expected, found = rows_of_database(database), rows_of_files(folder / "events")
    wrong = {key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)}
    report(f"{len(expected)} rows in Spanner, {len(found)} by the files, {len(wrong)} differ")
    if not wrong:
        return ""
    missing = skipped(sample, folder, end)
    report(f"{len(missing)} commits are in no event, and a bounded re-read returns them")
    if len(wrong) <= len(missing) <= MOST_SKIPPED:
        report(f"the emulator has skipped {len(missing)} commits: {[format_rfc3339(at) for at in missing]}")
        return ""
    return f"{len(wrong)} rows differ: {sorted(wrong)[:5]}"


def progress(folder: Path) -> str:
    sealed = folder / "spool/backfills/1/manifests"
    return f"{len(list(sealed.iterdir())) if sealed.exists() else 0} partitions sealed"


def report(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark_sink.backfill")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dialect", choices=["googlesql", "postgresql"], default="googlesql")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="backfill-"))
    with find_or_start(churn_seconds=10) as emulator:
        sample = SampleDatabase.create(emulator.host, dialect=given.dialect)
        sample.run_ddl(*ddl(given.dialect))
        wrong = run(sample, folder, rows=given.rows, kills=given.kills, seed=given.seed)
    report(f"seed {given.seed}: {wrong or 'the files amount to what Spanner has'}; {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
