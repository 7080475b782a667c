"""Of all processes that merge into a table, one merges at a time, also after kills."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery import jobs
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.merging.turns import Turns
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTableOptions, BigQueryTarget, bigquery_table
from tests.property.bigquery_merging import SCHEMA
from tests.spark_sink.spools import SpoolMaker

TABLE = bigquery_table(SCHEMA, BigQueryTableOptions("ds", "merge-load"))


class Running:
    """Jobs that run until they are ended; stands in for a client that can only wait for their ends."""

    def __init__(self) -> None:
        self.ended: dict[str, threading.Event] = {}
        self.at_a_time = self.most = 0
        self._lock = threading.Lock()

    def settle(self, job_id: str, dataset: str, name: str) -> None:
        self.ended[job_id].wait()

    def run(self, job_id: str) -> None:
        with self._lock:
            self.at_a_time += 1
            self.most = max(self.most, self.at_a_time)
        with self._lock:
            self.at_a_time -= 1
        self.ended[job_id].set()


class RunningClient(BigQueryClient):
    """A client of such jobs."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def settle(self, job_id: str, dataset: str, name: str) -> None:
        self._running.settle(job_id, dataset, name)


@pytest.fixture
def spool(tmp_path: Path) -> SpoolMaker:
    return SpoolMaker(tmp_path / "spool")


def test_of_many_processes_one_merges_into_a_table_at_a_time(spool: SpoolMaker) -> None:
    running = Running()
    names = [[f"p{process}_{number}" for number in range(10)] for process in range(6)]
    running.ended = {name: threading.Event() for process in names for name in process}

    def process(jobs_of_process: list[str]) -> None:
        turns = Turns(spool.spool, RunningClient(running), "p", TABLE)
        for name in jobs_of_process:
            turns.take(name)
            running.run(name)

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(process, names))
    assert running.most == 1
    assert all(event.is_set() for event in running.ended.values())


def test_tables_do_not_wait_for_each_other(spool: SpoolMaker) -> None:
    running = Running()  # which fails the test if it is asked for a job
    other = bigquery_table(SCHEMA, BigQueryTableOptions("other", "merge-load"))
    for table in (TABLE, other):
        Turns(spool.spool, RunningClient(running), "p", table).take("job")


def test_a_process_that_continues_with_the_job_that_it_had_named_does_not_wait_for_it(spool: SpoolMaker) -> None:
    turns = Turns(spool.spool, RunningClient(Running()), "p", TABLE)
    turns.take("job")
    turns.take("job")


@pytest.fixture
def client(bigquery_double: BigQueryDouble, monkeypatch: pytest.MonkeyPatch) -> Iterator[BigQueryClient]:
    monkeypatch.setattr(jobs, "PREVENTED_AFTER", 0.0)
    client = BigQueryClient(BigQueryTarget(bigquery_double.project, bigquery_double.endpoint))
    client.create_dataset("ds", "US")
    client.create(TABLE)
    yield client
    client.delete("ds", TABLE.name)


def statement(double: BigQueryDouble, table: BigQueryTable) -> str:
    """A statement that the double runs."""
    path = f"{double.project}.{table.dataset}.{table.name}"
    return f"ALTER TABLE `{path}` SET OPTIONS (max_staleness = INTERVAL 60 SECOND)"


def test_a_job_that_was_named_and_not_started_is_prevented_and_runs_later_in_a_turn_of_its_own(
    spool: SpoolMaker, bigquery_double: BigQueryDouble, client: BigQueryClient
) -> None:
    slow, fast = (Turns(spool.spool, client, bigquery_double.project, TABLE) for _ in range(2))
    slow.take("slow")  # and then the process is suspended
    sql = statement(bigquery_double, TABLE)
    client.query(sql, "ds", TABLE.name, job_id="fast", before=fast.take)
    named: list[str] = []

    def take(job_id: str) -> None:
        named.append(job_id)
        if job_id != "slow":  # it had its turn
            slow.take(job_id)

    client.query(sql, "ds", TABLE.name, job_id="slow", before=take)
    assert named == ["slow", "slow_1"]
    client.settle("slow_1", "ds", TABLE.name)


def test_a_job_that_has_run_is_not_prevented(bigquery_double: BigQueryDouble, client: BigQueryClient) -> None:
    client.query(statement(bigquery_double, TABLE), "ds", TABLE.name, job_id="done")
    before = bigquery_double.counts.requests["jobs.insert"]
    client.settle("done", "ds", TABLE.name)
    assert bigquery_double.counts.requests["jobs.insert"] == before


def test_the_spool_keeps_one_file_for_the_turns_of_a_table(spool: SpoolMaker) -> None:
    running = Running()
    turns = Turns(spool.spool, RunningClient(running), "p", TABLE)
    for number in range(5):
        running.ended[str(number)] = threading.Event()
        running.ended[str(number)].set()
        turns.take(str(number))
    assert len(spool.spool.storage.walk("bigquery/turns")) == 1
