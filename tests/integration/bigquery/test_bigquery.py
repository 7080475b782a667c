"""BigQuery's tables equal Spanner's, or hold their whole history, however often the sink and Spark are killed.

A campaign of 200,000 mods and 20 kills:
`pytest --run-slow -s tests/integration/bigquery/test_bigquery.py::test_campaign[X]`, where X is merge, merge-load or
append-only, a hyphen, and googlesql or postgresql.
"""

import asyncio
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from random import Random
from typing import get_args

import pytest
from google.api_core.exceptions import FailedPrecondition

from connector.check.findings import findings_of
from connector.config import load
from connector.core.timestamps import format_rfc3339
from emulator import TABLES, Column, CommittedMod, SampleDatabase, Table, Workload
from emulator.bigquery.double import BigQueryDouble
from emulator.workload.tables import Dialect
from tests.integration.bigquery.runs import ServiceRun, Victim, victims
from tests.integration.bigquery.tables import (
    METADATA,
    Row,
    Rows,
    Server,
    assert_equal,
    bigquery_names,
    bigquery_rows,
    by_key,
    key_of,
    spanner_tables,
)
from tests.integration.commands import configuration, run
from tests.integration.delivered import unless_skipped
from tests.integration.servers import CHURN_SECONDS, MakeDatabase
from tests.local_bigquery import local_bigquery as local_bigquery
from tests.local_bigquery import local_bigquery_server as local_bigquery_server

pytestmark = pytest.mark.emulator

CAPTURES = ("OLD_AND_NEW_VALUES", "NEW_VALUES", "NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
CAPTURES_OF = {"merge": CAPTURES[2:], "merge-load": CAPTURES, "append-only": CAPTURES[2:]}
"""The capture types of a campaign's streams, by turns; a history can be replayed only if NULL columns are not omitted.
"""

VISITS = Table(
    "Visits",
    (
        Column("Place", "STRING", nullable=False),
        Column("Began", "TIMESTAMP", nullable=False),
        Column("Day", "DATE", nullable=False),
        Column("Valid", "BOOL", nullable=False),
        Column("Note", "STRING"),
        Column("Photo", "BYTES"),
        Column("Marks", "INT64", array=True),
    ),
    key_length=4,
)
"""A key of every type that BigQuery allows in keys, except numbers, which other tables have."""

_VISITS_DDL = {
    "googlesql": "CREATE TABLE Visits (Place STRING(MAX) NOT NULL, Began TIMESTAMP NOT NULL, Day DATE NOT NULL,"
    " Valid BOOL NOT NULL, Note STRING(MAX), Photo BYTES(MAX), Marks ARRAY<INT64>)"
    " PRIMARY KEY (Place, Began, Day, Valid)",
    "postgresql": 'CREATE TABLE "Visits" ("Place" varchar NOT NULL, "Began" timestamptz NOT NULL, "Day" date NOT NULL,'
    ' "Valid" boolean NOT NULL, "Note" varchar, "Photo" bytea, "Marks" bigint[],'
    ' PRIMARY KEY ("Place", "Began", "Day", "Valid"))',
}
_NO_KEYS_OF_BIGQUERY = "Readings"
"""Its key has BYTES, so changes cannot be merged into it."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a campaign, about: mods; those of a transaction, of one kind in a row in it, and a second; rows in a table.

    Most are committed while the service is down, and has been for a while: commits wait for readers, because the
    emulator looks through all that was ever captured, ten times a second for each partition. It does so for a dead
    reader, too, until the partition ends. So a long campaign has several databases, one after the other.
    """

    mods: int
    average: float
    run_length: float
    rate: float
    rows_per_table: int
    rest: float


SHORT = Size(mods=600, average=8, run_length=3, rate=10, rows_per_table=50, rest=0)
LONG = Size(mods=40_000, average=40, run_length=20, rate=100, rows_per_table=2000, rest=2 * CHURN_SECONDS)
DATABASES, KILLS_OF_EACH = 5, 4

Did = Counter[str]
"""Counts of what a campaign did, by name."""


@pytest.fixture
def bigquery_double() -> Iterator[BigQueryDouble]:
    with BigQueryDouble.started() as double:
        yield double


@pytest.fixture
def server(request: pytest.FixtureRequest, mode: str) -> Server:
    """The stand-in for a mode: only the double merges by change data capture, and it runs no queries."""
    found: Server = request.getfixturevalue("bigquery_double" if mode == "merge" else "local_bigquery")
    return found


def configured(folder: Path, sample: SampleDatabase, server: Server, mode: str, **source: object) -> Path:
    excluded = [] if mode == "append-only" else [_NO_KEYS_OF_BIGQUERY]
    return configuration(
        folder,
        sample,
        source={"tables": {"include": ["*"], "exclude": excluded}, **source},
        sink={
            "type": "bigquery",
            "mode": mode,
            "project": server.project,
            "dataset": sample.database_id.replace("-", "_"),
            "location": "US",
            "max_staleness": "1s",  # rows that are loaded and merged would gather for an hour
            "endpoint": server.endpoint,
            "grpc_endpoint": server.grpc_endpoint,
            "dead_letters": str(folder / "dead-letters"),
        },
        spark={
            "master": "local[2]",
            "checkpoint": str(folder / "checkpoint"),
            "trigger": "100ms",
            "config": {"spark.driver.memory": "768m"},
        },
    )


@contextmanager
def committing(workload: Workload, rate: float) -> Iterator[None]:
    """Commits for as long as the context is open."""
    left = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="load") as thread:
        loading = thread.submit(workload.run, stop=left, rate=rate)
        try:
            yield
        finally:
            left.set()
        loading.result()


def commit_up_to(workload: Workload, mods: int) -> None:
    """Commits until there are so many mods, and one transaction at least."""
    workload.run(mods=max(1, mods - len(workload.committed)))


def alter(sample: SampleDatabase, capture: str) -> None:
    """Changes the value capture type of the stream while transactions continue."""
    option = f"(value_capture_type = '{capture}')"
    name, options = (
        (sample.change_stream, "OPTIONS ") if sample.dialect == "googlesql" else (f'"{sample.change_stream}"', "")
    )
    deadline = time.monotonic() + 300
    while True:
        try:
            sample.run_ddl(f"ALTER CHANGE STREAM {name} SET {options}{option}")
        except FailedPrecondition:  # the emulator changes no schema while there is a transaction
            assert time.monotonic() < deadline
        else:
            return


def campaign(
    folder: Path, sample: SampleDatabase, server: Server, mode: str, size: Size, killed: list[Victim], seed: int
) -> Did:
    """Commits and kills, lets the service end, and compares the tables."""
    random, captures = Random(seed), cycle(CAPTURES_OF[mode])
    sample.run_ddl(_VISITS_DDL[sample.dialect])
    sample = replace(sample, tables=(*TABLES, VISITS))
    start = format_rfc3339(time.time_ns())
    workload = Workload(
        sample,
        seed=seed,
        average_size=size.average,
        rows_per_table=size.rows_per_table,
        run_length=size.run_length,
    )
    config = configured(folder, sample, server, mode, start=start)
    did: Did = Counter(f"kills of {victim}" for victim in killed)
    for number, victim in enumerate(killed):
        commit_up_to(workload, size.mods * (number + 1) // (len(killed) + 1))
        with committing(workload, size.rate), ServiceRun(config, folder / f"run{number}.log") as service:
            alter(sample, next(captures))
            if number == 0 or random.random() < 0.75:
                service.await_batch()
                time.sleep(random.uniform(0.0, 2.0))
            else:
                time.sleep(random.uniform(0.0, 4.0))  # it starts meanwhile
            service.kill(victim)
            did["micro-batches"] += service.batches
        time.sleep(size.rest)
    alter(sample, next(captures))
    commit_up_to(workload, size.mods)
    config = configured(
        folder, sample, server, mode, start=start, end=format_rfc3339(workload.committed[-1].commit_timestamp_ns)
    )
    with ServiceRun(config, folder / "service.log") as service:
        ended = service.end()
        did["micro-batches"] += service.batches
    assert ended.code == 0, ended.err
    assert not list((folder / "dead-letters").rglob("*")), "rows were rejected"
    with unless_skipped(sample, lambda: workload.committed, folder / "spool"):
        did["rows compared"] = assert_delivered(sample, server, mode, workload.committed)
    did["mods committed"], did["transactions"] = len(workload.committed), workload.transactions
    return did


def assert_delivered(sample: SampleDatabase, server: Server, mode: str, mods: list[CommittedMod]) -> int:
    """Fails unless BigQuery's tables are what they should be; returns how many rows equal Spanner's."""
    excluded = () if mode == "append-only" else (_NO_KEYS_OF_BIGQUERY,)
    tables = {table.name: table for table in sample.tables if table.name not in excluded}
    dataset = sample.database_id.replace("-", "_")
    assert bigquery_names(server, dataset) == {"_cuts", *(name.replace(".", "_") for name in tables)}
    found = {name: bigquery_rows(server, dataset, name.replace(".", "_"), table) for name, table in tables.items()}
    if mode == "append-only":
        assert_once(mods, found)
        come_to = {name: replayed(tables[name], history) for name, history in found.items()}
    else:
        come_to = {name: by_key(tables[name], merged) for name, merged in found.items()}
    if isinstance(server, BigQueryDouble):
        assert not any(server.conflicts(dataset, name) for name in server.tables(dataset))
    return assert_equal(spanner_tables(sample, tables.values()), come_to)


def assert_once(mods: list[CommittedMod], histories: Mapping[str, list[Row]]) -> None:
    """Fails unless every mod has a row of its own, of its kind."""
    kinds = {"INSERT": "INSERT", "UPDATE": "UPDATE-INSERT", "DELETE": "DELETE"}
    found = Counter((name, row[METADATA]["change_type"]) for name, history in histories.items() for row in history)
    assert found == Counter((mod.table, kinds[mod.mod_type]) for mod in mods)
    assert len({row[METADATA]["uuid"] for history in histories.values() for row in history}) == len(mods)


def replayed(table: Table, history: list[Row]) -> Rows:
    """The rows that a history leaves; it is in the order of its sequence numbers as texts."""
    numbers = [row[METADATA]["change_sequence_number"] for row in history]
    assert numbers == sorted(set(numbers)), f"sequence numbers of {table.name} are out of order, or not unique"
    rows: dict[tuple[object, ...], Row] = {}
    for row in history:
        key, kind = key_of(table, row), row[METADATA]["change_type"]
        assert (key in rows) is (kind != "INSERT"), f"{kind} of {table.name} out of order: {key}"
        if kind == "DELETE":
            del rows[key]
        else:
            rows[key] = row
    return by_key(table, rows.values())


@pytest.fixture
def seed() -> int:
    """Printed, so that a failure can be repeated with the same seed."""
    drawn = time.time_ns() % 1_000_000
    sys.stdout.write(f"seed {drawn}\n")
    return drawn


def print_counts(mode: str, dialect: Dialect, did: Did, began: float) -> None:
    parts = ", ".join(f"{count:,} {what}" for what, count in sorted(did.items()))
    sys.stdout.write(f"{mode}, {dialect}: {parts}, {time.monotonic() - began:.0f} seconds\n")


@pytest.mark.long(but=1)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "dialect", "victim"),
    [
        ("merge", "googlesql", Victim.SPARK),
        pytest.param("merge-load", "postgresql", Victim.SERVICE, marks=pytest.mark.slow),
        pytest.param("append-only", "googlesql", Victim.SINK, marks=pytest.mark.slow),
    ],
)
def test_what_was_committed_is_in_bigquery_once_though_the_sink_is_killed(
    mode: str, dialect: Dialect, victim: Victim, database: MakeDatabase, server: Server, seed: int, tmp_path: Path
) -> None:
    began = time.monotonic()
    sample = database(dialect=dialect, value_capture_type=CAPTURES_OF[mode][0])
    print_counts(mode, dialect, campaign(tmp_path, sample, server, mode, SHORT, [victim], seed), began)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dialect", get_args(Dialect))
@pytest.mark.parametrize("mode", ["merge", "merge-load", "append-only"])
def test_campaign(
    mode: str, dialect: Dialect, database: MakeDatabase, server: Server, seed: int, tmp_path: Path
) -> None:
    began = time.monotonic()
    did: Did = Counter()
    killed = victims(DATABASES * KILLS_OF_EACH, Random(seed))
    for number in range(DATABASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        sample = database(dialect=dialect, value_capture_type=CAPTURES_OF[mode][0])
        turn = killed[number::DATABASES]
        did += campaign(folder, sample, server, mode, LONG, turn, seed + number)
        sample.drop()
    print_counts(mode, dialect, did, began)


def faults(config: Path) -> list[str]:
    return asyncio.run(findings_of(load(config))).errors


@pytest.mark.long
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_merge_refuses_a_stream_that_leaves_columns_out_with_the_statement_that_helps(
    dialect: Dialect, database: MakeDatabase, bigquery_double: BigQueryDouble, tmp_path: Path
) -> None:
    sample = database(dialect=dialect, value_capture_type="OLD_AND_NEW_VALUES")
    config = configured(tmp_path, sample, bigquery_double, "merge")
    there = set(tmp_path.iterdir())
    for command in ("check", "run"):
        refused = run(command, config)
        assert refused.code == 2
        assert f"change stream {sample.change_stream} captures OLD_AND_NEW_VALUES: ALTER" in refused.complaint
    assert set(tmp_path.iterdir()) == there
    assert bigquery_double.datasets() == []
    alter(sample, "NEW_VALUES")
    (fault,) = faults(config)
    assert f"change stream {sample.change_stream} captures NEW_VALUES: ALTER" in fault

    helping = re.search(_HELPING[dialect], refused.complaint)
    assert helping is not None
    sample.run_ddl(helping[1])
    assert faults(config) == []
    alter(sample, "NEW_ROW_AND_OLD_VALUES")
    assert faults(config) == []


_HELPING: Mapping[Dialect, str] = {
    "googlesql": r": (ALTER CHANGE STREAM \w+ SET OPTIONS \(.*?\)) ",
    "postgresql": r'PostgreSQL: (ALTER CHANGE STREAM "\w+" SET \(.*?\))\)',
}


@pytest.mark.long(but=1)
@pytest.mark.parametrize("capture", CAPTURES)
def test_other_modes_take_whatever_a_stream_captures(
    capture: str, database: MakeDatabase, bigquery_double: BigQueryDouble, tmp_path: Path
) -> None:
    sample = database(value_capture_type=capture)
    for mode in ("merge-load", "append-only", "changelog"):
        assert faults(configured(tmp_path, sample, bigquery_double, mode)) == []
