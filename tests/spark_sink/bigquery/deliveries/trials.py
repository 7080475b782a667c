"""A sink's whole way without Spark: a random history in a spool, lives that are cut short, and what is in BigQuery."""

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
from pyspark.sql.streaming.datasource import ReadMaxFiles

from connector.config import Config
from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from emulator.bigquery.double import BigQueryDouble
from spark_sink.bigquery import delivery as bigquery_delivery
from spark_sink.bigquery import parts as bigquery_parts
from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.commit_log import Ledger
from spark_sink.bigquery.tables import BigQueryTables
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.errors import SinkError
from spark_sink.sink.started_batches import BegunBatches
from spark_sink.source import admission
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.bigquery.deliveries.histories import (
    CAPTURES,
    WHOLE,
    Key,
    Row,
    appended,
    column,
    expected,
    merged,
    replayed,
    told,
)
from tests.spark_sink.bigquery.deliveries.histories import History as History
from tests.spark_sink.bigquery.deliveries.lives import Checkpoint, Life, configured
from tests.spark_sink.spools import START, SpoolMaker, record

Server = LocalBigQuery | BigQueryDouble

METADATA, NUMBER = "datastream_metadata", "change_sequence_number"
_CHANGE_TYPES = {"INSERT": "INSERT", "UPDATE": "UPDATE-INSERT", "DELETE": "DELETE"}
_NUMBERS = itertools.count(1)


class KilledError(Exception):
    """Stands for the end of a process."""


@dataclass
class Trial:
    """A history, its spool, and the dataset that it goes to, of whose name no other is."""

    server: Server
    folder: Path
    mode: str
    history: History = field(default_factory=lambda: History(Random(0)))
    options: dict[str, object] = field(default_factory=dict)
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint([]))

    def __post_init__(self) -> None:
        self.dataset = f"trial_{next(_NUMBERS)}"
        self.maker = SpoolMaker(self.folder / f"spool-{self.dataset}")
        self.client = bigquery.Client(
            project=self.server.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.server.endpoint},
        )

    @property
    def letters(self) -> Path:
        """The dead-letter place."""
        return Path(f"{self.maker.path}-letters")

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

    def life(self, *, cores: int = 2, **options: object) -> Life:
        """A run of the sink that goes on from the checkpoint, with what is sealed by now."""
        life = Life(self.config(**options), self.checkpoint, cores=cores)
        life.only_what_is_sealed()
        return life

    def run(self) -> list[str]:
        """Delivers all that is sealed; what is said."""
        with self.life() as life:
            return life.run()

    def seal(self, transactions: int = 1) -> None:
        """Seals transactions as an epoch."""
        self.maker.seal(*(one for _ in range(transactions) for one in self.history.transaction()))

    def query(self, sql: str) -> list[Row]:
        """What a statement gives, which only the stand-in runs; ``{}`` is the dataset."""
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
        """Fails where of a transaction a part of its changes to an appended table can be seen, or one twice."""
        for table in self.history.tables:
            seen = Counter(self.commit_of(row) for row in self.rows(table))
            made = Counter(int(change.number[:16], 16) for change in self.history.changes if change.table == table)
            assert {at: made[at] for at in seen} == seen

    def commit_of(self, row: Row) -> int:
        """When the change was committed that an appended row is of."""
        if self.mode == "changelog":
            return int(row["_metadata_spanner_server_transaction_id"][1:])
        return int(row[METADATA][NUMBER][:16], 16)

    def parted(self, table: str, row: Row) -> tuple[Key, Row]:
        """A row's key and its other columns, as Spanner writes them."""
        values = {name: told(value) for name, value in row.items() if not name.startswith(("_metadata", METADATA))}
        key = tuple(values.pop(name) for name in self.history.tables[table].keys)
        return key, dict(sorted(values.items()))


MakeTrial = Callable[..., Trial]


@pytest.fixture
def make(tmp_path: Path) -> MakeTrial:
    """Makes trials on a server, in a mode, with options of the sink."""

    def trial(server: Server, mode: str, **options: object) -> Trial:
        return Trial(server, tmp_path, mode, History(Random(0)), options)

    return trial


def expected_row(row: Row) -> Row:
    return {name: expected(value) for name, value in sorted(row.items())}


def expected_rows(rows: dict[Key, Row]) -> dict[Key, Row]:
    return {key: expected_row(row) for key, row in rows.items()}


class Sealing:
    """Seals epochs a second apart, of a table's rows with these ids."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
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


def ids_of(trial: Trial, table: str = "Singers") -> list[int]:
    """The ids of a table's rows, in their order."""
    return sorted(row["Id"] for row in trial.rows(table))


def line_of(trial: Trial) -> str:
    """What a run says that ends."""
    with trial.life() as life, pytest.raises(SinkError) as raised:
        life.run()
    assert "\n" not in str(raised.value)
    return str(raised.value)


# Lives that are cut short

Cut = Callable[[Life], None]


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


def at(owner: type, method: str, *, call: int = 1, after: bool = False) -> Cut:
    """Runs a life until it is killed there."""

    def run(life: Life) -> None:
        with killed_at(owner, method, call=call, after=after), pytest.raises(KilledError):
            life.run()

    return run


def some_tasks(life: Life) -> None:
    """Runs the first two tasks of a micro-batch that has more."""
    assert life.plan()
    tasks = life.tasks()
    assert len(tasks) > 2
    for task in tasks[:2]:
        list(life.told(task))


def some_parts(life: Life) -> None:
    """Runs a task until it has told of a table."""
    assert life.plan()
    assert next(life.told(life.tasks()[0])).rows


def all_tasks(life: Life) -> None:
    """Runs all tasks, and nothing after them."""
    at(Life, "deliver")(life)


@contextmanager
def sized(*, part: int = 1, piece: int = bigquery_parts.PIECE) -> Iterator[None]:
    """While the context is open, a part has so many bytes of segments, a request of rows; each is worth a task."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "SMALLEST_TASK", 1)
        patch.setattr(bigquery_parts, "PIECE", piece)
        patch.setattr(bigquery_delivery, "_PART_BYTES", part)
        patch.setattr(bigquery_delivery, "_PART_BYTES_OF_A_LOAD", part)
        yield


# All of it at random

_POINTS: list[tuple[type, str]] = [
    (BegunBatches, "begin"),
    (BigQueryTables, "_note"),
    (BigQueryClient, "create"),
    (BigQueryClient, "add_columns"),
    (BigQueryClient, "load"),
    (BigQueryClient, "merge"),
    (BigQueryClient, "delete"),
    (BigQueryWriter, "create_pending"),
    (BigQueryWriter, "append"),
    (BigQueryWriter, "finalize"),
    (BigQueryWriter, "commit"),
    (Ledger, "enter"),
    (Ledger, "committed"),
    (Life, "deliver"),
]
_LATE = [(BigQueryClient, "merge"), (BigQueryWriter, "commit"), (Ledger, "committed"), (Ledger, "enter")]


def _nothing() -> None: ...


def campaign(trial: Trial, random: Random) -> None:
    """Lives that are cut short, of which each leaves only what is whole; then all is there, once."""
    lives(trial, random, trial.check_whole_transactions if trial.mode in ("append-only", "changelog") else _nothing)
    trial.check()


def lives(trial: Trial, random: Random, after_each: Callable[[], None] = _nothing) -> None:
    """Seals and delivers in lives of which all but the last are cut short."""
    for _ in range(random.randrange(2, 4)):
        for _ in range(random.randrange(1, 3)):
            trial.seal(random.randrange(1, 3))
            _evolve(trial, random)
        if random.random() < 0.5:
            trial.checkpoint = Checkpoint([])
        with (
            sized(part=random.choice([1, 6000, 10**9]), piece=random.choice([1, 2000, 10**7])),
            trial.life(cores=random.choice([1, 2, 5])) as life,
            suppress(KilledError),
        ):
            _cut_short(life, random)
        after_each()
    trial.run()


def _cut_short(life: Life, random: Random) -> None:
    """Runs a life until it ends, or is killed somewhere."""
    limit = ReadMaxFiles(random.choice([1, 2, 100]))
    how = random.randrange(6)
    if how > 0:
        point = random.choice(_POINTS if how < 4 else _LATE)
        with killed_at(*point, call=random.randrange(1, 5), after=random.random() < 0.5):
            life.run(limit)
    elif life.plan(limit):
        tasks = life.tasks()
        for task in tasks[: random.randrange(len(tasks) + 1)]:
            for _ in itertools.islice(life.told(task), random.randrange(1, 4)):
                pass


def _evolve(trial: Trial, random: Random) -> None:
    """Alters a table, or the change stream, now and then."""
    history = trial.history
    if random.random() < 0.2:
        history.capture = random.choice(CAPTURES if trial.mode != "merge" else WHOLE)
    names = [one.name for one in history.tables["Singers"].columns]
    if random.random() < 0.2 and "Seen" not in names:
        history.add("Singers", column("Seen", "TIMESTAMP", 9))
    if random.random() < 0.1 and "Born" in names:
        history.drop("Singers", "Born")
