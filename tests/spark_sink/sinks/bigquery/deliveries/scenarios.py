"""Scenarios of the sink without Spark: a random history in a spool, interrupted runs, the rows in BigQuery."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from google.api_core.exceptions import NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from connector.config import Config
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from emulator.bigquery.double import BigQueryDouble
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery import delivery as bigquery_delivery
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.commit_log import CommitLog
from spark_sink.sinks.bigquery.tables.records import TableRecords
from spark_sink.sinks.bigquery.writing import table_rows
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from spark_sink.sinks.shared.started_batches import StartedBatches
from spark_sink.sources.changes import admission
from spark_sink.sources.changes.read_limits import ReadMaxFiles
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.histories import (
    CAPTURES,
    WHOLE,
    History,
    Key,
    Row,
    appended,
    as_spanner,
    column,
    expected,
    merged,
    replayed,
)
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun, configured
from tests.spark_sink.spools import START, SpoolMaker, record

Server = LocalBigQuery | BigQueryDouble

METADATA, NUMBER = "datastream_metadata", "change_sequence_number"
_CHANGE_TYPES = {"INSERT": "INSERT", "UPDATE": "UPDATE-INSERT", "DELETE": "DELETE"}
_NUMBERS = itertools.count(1)


class KilledError(Exception):
    """Simulates the kill of a process."""


@dataclass
class Scenario:
    """A history, its spool, and the dataset that it is delivered to, whose name is unique."""

    server: Server
    folder: Path
    mode: str
    history: History = field(default_factory=lambda: History(Random(0)))
    options: dict[str, object] = field(default_factory=dict)
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint([]))

    def __post_init__(self) -> None:
        self.dataset = f"scenario_{next(_NUMBERS)}"
        self.maker = SpoolMaker(self.folder / f"spool-{self.dataset}")
        self.client = bigquery.Client(
            project=self.server.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.server.endpoint},
        )

    @property
    def dead_letters(self) -> Path:
        """The dead-letter store."""
        return Path(f"{self.maker.path}-letters/bigquery")

    def config(self, **options: object) -> Config:
        """The configuration."""
        sink: dict[str, object] = {
            "dataset": self.dataset,
            "mode": self.mode,
            "project": self.server.project,
            "endpoint": self.server.endpoint,
            "grpc_endpoint": self.server.grpc_endpoint,
            "location": "US",
            **self.options,
            **options,
        }
        sink["dataset"] = str(sink["dataset"]).format(self.dataset, schema="{schema}")
        return configured(self.maker.path, **sink)

    def sink(self, *, cores: int = 2, **options: object) -> SinkRun:
        """A run of the sink that continues from the checkpoint, with the epochs that are sealed now."""
        sink = SinkRun(self.config(**options), self.checkpoint, cores=cores)
        sink.only_what_is_sealed()
        return sink

    def run(self) -> list[str]:
        """Delivers all sealed epochs; returns the lines of its log."""
        with self.sink() as sink:
            return sink.run()

    def seal(self, transactions: int = 1) -> None:
        """Seals transactions as an epoch."""
        self.maker.seal(*(one for _ in range(transactions) for one in self.history.transaction()))

    def query(self, sql: str) -> list[Row]:
        """The result of a statement, which only local-bigquery runs; ``{}`` is the dataset."""
        found = self.client.query(sql.format(f"{self.server.project}.{self.dataset}")).result()
        return [dict(row) for row in found]

    def place(self, table: str) -> tuple[str, str]:
        """The dataset and the name of a table of the source."""
        suffix = "_changelog" if self.mode == "changelog" else ""
        if "{schema}" not in str(self.options.get("dataset")):
            return self.dataset, f"{table.replace('.', '_')}{suffix}"
        schema, _, name = table.rpartition(".")
        return f"{self.dataset}_{schema or 'd'}", f"{name}{suffix}"

    def rows(self, table: str) -> list[Row]:
        """All rows of a table of the source; none where there is no table yet."""
        dataset, name = self.place(table)
        if isinstance(self.server, BigQueryDouble):
            known = name in self.server.tables(dataset)
            return self.server.rows(dataset, name) if known else []
        try:
            found = self.client.get_table(f"{self.server.project}.{dataset}.{name}")
        except NotFound:
            return []
        return [dict(row) for row in self.client.list_rows(found)]

    # What has to be there

    def check(self) -> None:
        """Fails unless the tables hold what the history says."""
        for table in self.history.tables:
            if self.mode == "changelog":
                self._check_changelog(table)
            elif self.mode == "append-only":
                self._check_appended(table)
            elif self.mode == "merge-load":
                assert self.found(table) == expected_rows(merged(self.history, table))
            else:
                assert self.found(table) == expected_rows(replayed(appended(self.history, table)))

    def found(self, table: str) -> dict[Key, Row]:
        """The rows of a table that is merged into, by key; no key may come twice."""
        out: dict[Key, Row] = {}
        for row in self.rows(table):
            key, others = self.parted(table, row)
            assert key not in out, f"{table} has row {key} twice"
            out[key] = others
        return self._with_all(table, out)

    def _with_all(self, table: str, rows: dict[Key, Row]) -> dict[Key, Row]:
        """Columns that no row was written with are not there yet."""
        names = [name for row in rows.values() for name in row]
        return {key: dict.fromkeys(names) | row for key, row in rows.items()}

    def _check_appended(self, table: str) -> None:
        found = sorted(self.rows(table), key=lambda row: row[METADATA][NUMBER])
        have = [(row[METADATA][NUMBER], row[METADATA]["change_type"], *self.parted(table, row)) for row in found]
        wanted = [
            (number, _CHANGE_TYPES[mod_type], key, expected_row(row))
            for number, mod_type, key, row in appended(self.history, table)
        ]
        assert have == wanted
        assert len({row[METADATA]["uuid"] for row in found}) == len(found)

    def _check_changelog(self, table: str) -> None:
        prefix = "_metadata_spanner_"
        have = Counter(
            repr(
                (
                    f"{row[prefix + 'server_transaction_id'][1:]}",
                    row[prefix + "record_sequence"],
                    row[prefix + "mod_type"],
                    *self.parted(table, row),
                )
            )
            for row in self.rows(table)
        )
        wanted = Counter(
            repr((str(int(number[:16], 16)), f"{int(number[17:33], 16):08d}", mod_type, key, expected_row(row)))
            for number, mod_type, key, row in appended(self.history, table)
        )
        assert have == wanted

    def check_whole_transactions(self) -> None:
        """Fails if a transaction is visible in part in an appended table, or a change twice."""
        for table in self.history.tables:
            seen = Counter(self.commit_of(row) for row in self.rows(table))
            made = Counter(int(change.number[:16], 16) for change in self.history.changes if change.table == table)
            assert {at: made[at] for at in seen} == seen

    def commit_of(self, row: Row) -> int:
        """The commit timestamp of an appended row's change."""
        if self.mode == "changelog":
            return int(row["_metadata_spanner_server_transaction_id"][1:])
        return int(row[METADATA][NUMBER][:16], 16)

    def parted(self, table: str, row: Row) -> tuple[Key, Row]:
        """A row's key and its other columns, as Spanner writes them."""
        values = {
            name: as_spanner(value) for name, value in row.items() if not name.startswith(("_metadata", METADATA))
        }
        key = tuple(values.pop(name) for name in self.history.tables[table].keys)
        return key, dict(sorted(values.items()))


MakeScenario = Callable[..., Scenario]


def expected_row(row: Row) -> Row:
    return {name: expected(value) for name, value in sorted(row.items())}


def expected_rows(rows: dict[Key, Row]) -> dict[Key, Row]:
    return {key: expected_row(row) for key, row in rows.items()}


class Sealing:
    """Seals epochs a second apart, of a table's rows with these ids."""

    def __init__(self, scenario: Scenario) -> None:
        self._trial = scenario
        self._at = START

    def __call__(self, ids: Any, *tables: str, **changed: Any) -> None:
        self.epoch(self.records(ids, *tables, **changed))

    def records(self, ids: Any, *tables: str, **changed: Any) -> list[DataChangeRecord]:
        """Changes of a second, for :meth:`epoch`."""
        self._at += SECOND
        return [record(self._at, ids, table=table, **changed) for table in tables or ("Singers",)]

    def epoch(self, *changes: list[DataChangeRecord]) -> None:
        """Seals several of these as one epoch."""
        self._trial.maker.seal(*itertools.chain.from_iterable(changes))


Delivered = Callable[..., tuple[Scenario, Sealing]]


def ids_of(scenario: Scenario, table: str = "Singers") -> list[int]:
    """The ids of a table's rows, in their order."""
    return sorted(row["Id"] for row in scenario.rows(table))


def line_of(scenario: Scenario) -> str:
    """The error of a run that fails."""
    with scenario.sink() as sink, pytest.raises(SinkError) as raised:
        sink.run()
    assert "\n" not in str(raised.value)
    return str(raised.value)


# Interrupted runs

Interruption = Callable[[SinkRun], None]


@contextmanager
def killed_at(owner: type, method: str, *, call: int = 1, after: bool = False) -> Iterator[None]:
    """While the context is open, the process ends before or after a method's work, at that call and all later ones."""
    original: Callable[..., Any] = getattr(owner, method)
    calls = itertools.count(1)

    def dying(*args: object, **kwargs: object) -> Any:
        if next(calls) < call:
            return original(*args, **kwargs)
        if after:
            original(*args, **kwargs)
        raise KilledError(method)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, dying)
        yield


def at(owner: type, method: str, *, call: int = 1, after: bool = False) -> Interruption:
    """Runs the sink until it is killed there."""

    def run(sink: SinkRun) -> None:
        with killed_at(owner, method, call=call, after=after), pytest.raises(KilledError):
            sink.run()

    return run


def some_tasks(sink: SinkRun) -> None:
    """Runs the first two tasks of a micro-batch that has more."""
    assert sink.plan()
    tasks = sink.tasks()
    assert len(tasks) > 2
    for task in tasks[:2]:
        list(sink.reports(task))


def singers(scenario: Scenario) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of table Singers by their keys, with dates as text."""
    return {
        (row["Region"], str(row["Id"])): {
            "Name": row["Name"],
            "Born": None if row["Born"] is None else str(row["Born"]),
            "Tags": row["Tags"],
        }
        for row in scenario.rows("Singers")
    }


def some_parts(sink: SinkRun) -> None:
    """Runs a task until it has reported a table."""
    assert sink.plan()
    assert next(sink.reports(sink.tasks()[0])).events


def all_tasks(sink: SinkRun) -> None:
    """Runs all tasks, and nothing after them."""
    at(SinkRun, "deliver")(sink)


@contextmanager
def sized(*, part: int = 1, slice_bytes: int = table_rows.SLICE) -> Iterator[None]:
    """While the context is open, parts and slices have these sizes in bytes, and each part is worth a task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "SMALLEST_TASK", 1)
        patch.setattr(table_rows, "SLICE", slice_bytes)
        patch.setattr(bigquery_delivery, "_PART_BYTES", part)
        patch.setattr(bigquery_delivery, "_PART_BYTES_OF_A_LOAD", part)
        yield


# All of it at random

_POINTS: list[tuple[type, str]] = [
    (StartedBatches, "begin"),
    (TableRecords, "save"),
    (BigQueryClient, "create"),
    (BigQueryClient, "add_columns"),
    (BigQueryClient, "load"),
    (BigQueryClient, "query"),
    (BigQueryClient, "delete"),
    (BigQueryWriter, "create_pending"),
    (BigQueryWriter, "append"),
    (BigQueryWriter, "finalize"),
    (BigQueryWriter, "commit"),
    (CommitLog, "enter"),
    (CommitLog, "committed"),
    (SinkRun, "deliver"),
]
_LATE = [(BigQueryClient, "query"), (BigQueryWriter, "commit"), (CommitLog, "committed"), (CommitLog, "enter")]


def _nothing() -> None: ...


def campaign(scenario: Scenario, random: Random) -> None:
    """Interrupted runs, after each of which only whole transactions are visible; then all rows exist, once."""
    interrupted_runs(
        scenario,
        random,
        scenario.check_whole_transactions if scenario.mode in ("append-only", "changelog") else _nothing,
    )
    scenario.check()


def interrupted_runs(scenario: Scenario, random: Random, after_each: Callable[[], None] = _nothing) -> None:
    """Seals and delivers in several runs, of which all but the last are interrupted."""
    for _ in range(random.randrange(2, 4)):
        for _ in range(random.randrange(1, 3)):
            scenario.seal(random.randrange(1, 3))
            _evolve(scenario, random)
        if random.random() < 0.5:
            scenario.checkpoint = Checkpoint([])
        with (
            sized(part=random.choice([1, 6000, 10**9]), slice_bytes=random.choice([1, 2000, 10**7])),
            scenario.sink(cores=random.choice([1, 2, 5])) as sink,
            suppress(KilledError),
        ):
            _cut_short(sink, random)
        after_each()
    scenario.run()


def _cut_short(sink: SinkRun, random: Random) -> None:
    """Runs the sink until it ends, or is killed somewhere."""
    limit = ReadMaxFiles(random.choice([1, 2, 100]))
    how = random.randrange(6)
    if how > 0:
        point = random.choice(_POINTS if how < 4 else _LATE)
        with killed_at(*point, call=random.randrange(1, 5), after=random.random() < 0.5):
            sink.run(limit)
    elif sink.plan(limit):
        tasks = sink.tasks()
        for task in tasks[: random.randrange(len(tasks) + 1)]:
            for _ in itertools.islice(sink.reports(task), random.randrange(1, 4)):
                pass


def _evolve(scenario: Scenario, random: Random) -> None:
    """Sometimes alters a table or the change stream."""
    history = scenario.history
    if random.random() < 0.2:
        history.capture = random.choice(CAPTURES if scenario.mode != "merge" else WHOLE)
    names = [one.name for one in history.tables["Singers"].columns]
    if random.random() < 0.2 and "Seen" not in names:
        history.add("Singers", column("Seen", "TIMESTAMP", 9))
    if random.random() < 0.1 and "Born" in names:
        history.drop("Singers", "Born")
