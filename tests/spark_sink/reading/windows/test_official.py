"""Windows of the official emulator, whose partitions split, merge and move within them."""

import time
from dataclasses import replace

import pytest

from connector.core.records import DataChangeRecord
from connector.core.timestamps import SECOND
from connector.spanner.partition_query import StreamAddress
from emulator import SampleDatabase, Workload
from spark_sink.reading.windows.task import WindowSetup
from tests.connector.builders import address_of
from tests.integration.servers import CHURN_SECONDS, MakeDatabase
from tests.spark_sink.reading.windows.shared_reading import windows

pytestmark = pytest.mark.emulator


def setup_of(sample: SampleDatabase) -> WindowSetup:
    name = f"projects/{sample.project}/instances/{sample.instance}/databases/{sample.database_id}"
    names = (sample.dialect, sample.change_stream, "IMMUTABLE_KEY_RANGE")
    return WindowSetup(StreamAddress(address_of(name, sample.host), "high", *names, SECOND), "spool", "stop")


def read(sample: SampleDatabase, start: int, end: int, *, length: int, most: int) -> list[DataChangeRecord]:
    """All records, without when they were read and the memory that they take."""
    return [
        replace(record, read_timestamp=0, size=0)
        for changes, _ in windows(setup_of(sample), start, end, length=length, most=most)
        for record in changes.records()
    ]


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["googlesql", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_windows_in_many_shares_are_what_one_reader_reads_and_what_was_committed(
    dialect: str, database: MakeDatabase
) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=5)
    began = time.monotonic()
    while time.monotonic() < began + 3 * CHURN_SECONDS:  # several generations of partitions
        workload.run(mods=40)
    mods = workload.committed
    start, end = mods[0].commit_timestamp_ns, mods[-1].commit_timestamp_ns
    together = read(sample, start, end, length=1000 * SECOND, most=1)
    shared = read(sample, start, end, length=2 * SECOND, most=3)
    assert shared == together
    assert sum(len(record.mods) for record in shared) == len(mods)
    assert {record.commit_timestamp for record in shared} == {mod.commit_timestamp_ns for mod in mods}
