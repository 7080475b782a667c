"""On the official emulator, while partitions split and merge: every transaction once, though reading is broken off."""

import asyncio
import json
import threading
import time
from collections.abc import Iterable

import pytest

import connector
from connector.core.timestamps import format_rfc3339
from emulator import SampleDatabase, Workload
from tests.connector.api.streams import Row, expected_of, rows_of
from tests.integration.delivered import returned
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator


def settings(sample: SampleDatabase, start: int) -> dict[str, object]:
    return {
        "source": {
            "project": sample.project,
            "instance": sample.instance,
            "database": sample.database_id,
            "change_stream": sample.change_stream,
            "emulator_host": sample.host,
            "start": format_rfc3339(start),
        },
        "spool": {"seal_interval": "100ms"},
    }


async def read_with_breaks(
    config: connector.Config, workload: Workload, done: threading.Event
) -> list[connector.Transaction]:
    """Reads until everything that was committed has come, and leaves the stream after every third epoch."""
    found: list[connector.Transaction] = []
    after: str | None = None
    high = 0
    while not (done.is_set() and high >= workload.committed[-1].commit_timestamp_ns):
        async with connector.read_epochs(config, after=after) as epochs:
            for _ in range(3):
                epoch = await anext(epochs)
                found += epoch.transactions()
                after, high = epoch.checkpoint, epoch.high
                if done.is_set() and high >= workload.committed[-1].commit_timestamp_ns:
                    break
    return found


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_every_transaction_comes_once_though_reading_is_broken_off_and_resumed(
    dialect: str, database: MakeDatabase
) -> None:
    sample = database(dialect=dialect)
    start = time.time_ns()
    workload, done = Workload(sample, seed=17), threading.Event()

    def commit() -> None:
        workload.run(seconds=6, rate=60)
        done.set()

    thread = threading.Thread(target=commit, name="workload")
    thread.start()
    try:
        config = connector.load_config(settings(sample, start))
        found = asyncio.run(asyncio.wait_for(read_with_breaks(config, workload, done), 120))
    finally:
        thread.join()
    delivered = [transaction.commit_timestamp for transaction in found for _ in transaction.events]
    mods = returned(sample, workload.committed, delivered)
    assert in_any_order(map(rows_of, found)) == in_any_order(expected_of(mods, sample.tables))


def in_any_order(transactions: Iterable[list[Row]]) -> list[list[str]]:
    """Transactions in their order, each with its rows sorted: the emulator orders them within a transaction."""
    return [sorted(json.dumps(row, sort_keys=True) for row in rows) for rows in transactions]
