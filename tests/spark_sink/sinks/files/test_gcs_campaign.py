"""The file sink into Cloud Storage, killed again and again over an hour and a half of many tables."""

import io
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import orjson
import pytest

from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from spark_sink.sinks.files.complete_minutes import FOLDER
from tests.cloud_storage import CloudStorage
from tests.spark_sink.processes import program
from tests.spark_sink.sinks.files.gcs_config import config
from tests.spark_sink.spools import START, SpoolMaker, record

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3600)]

TABLES = 20
MINUTES = 90
EPOCHS = 2
"""A minute."""

ROWS = 278
"""Of a table in an epoch: 1,000,800 in all."""

KILLS = 20


def lines(data: bytes) -> Iterator[dict[str, object]]:
    return map(orjson.loads, data.splitlines())


def avro_rows(data: bytes) -> Iterator[dict[str, object]]:
    return iter(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]


def filled(bucket: str) -> SpoolMaker:
    """A spool of all epochs; a row's id consists of its minute, epoch and position."""
    spool = SpoolMaker(f"{bucket}/spool")
    at = START
    for minute in range(MINUTES):
        for epoch in range(EPOCHS):
            at = START + minute * MINUTE + epoch * 30 * SECOND + 1
            first = (minute * EPOCHS + epoch) * ROWS
            spool.seal(*(record(at + n, range(first, first + ROWS), table=f"T{n:02d}") for n in range(TABLES)))
    spool.seal(high=at + SECOND, final=True)
    return spool


@pytest.mark.parametrize(("file_format", "rows"), [("jsonl", lines), ("avro", avro_rows)])
def test_a_million_events_of_twenty_tables_come_once_each_however_often_the_sink_is_killed(
    cloud_storage: CloudStorage,
    bucket: str,
    tmp_path: Path,
    file_format: str,
    rows: Callable[[bytes], Iterator[dict[str, object]]],
) -> None:
    spool = filled(bucket)
    sink = f"{bucket}/events"
    configured = config(tmp_path, spool, sink, format=file_format)
    whole = 2 * TABLES * MINUTES
    killed = []
    for number in range(1, KILLS + 1):
        with program(tmp_path / f"log{number}", "-m", "spark_sink", configured) as one:
            least = number * whole // (KILLS + 1)
            found = 0
            while found < least:
                assert not one.has_ended(), one.said()
                time.sleep(0.2)  # a list of thousands of objects takes its time, too
                found = len(cloud_storage.names(sink))
            one.kill()
            killed.append(found)
    assert killed[-1] < whole, killed
    with program(tmp_path / "log", "-m", "spark_sink", configured) as one:
        one.end_input()
        assert one.code() == 0, one.said()

    written = cloud_storage.objects(sink)
    documents = [name for name in written if name.startswith(f"{FOLDER}/")]
    assert len(documents) == MINUTES - 1, "the last minute is not over"
    objects = {name: data for name, data in written.items() if not name.startswith(f"{FOLDER}/")}
    folders = {
        f"d_T{table:02d}/{format_rfc3339(START + minute * MINUTE)[:16].translate(str.maketrans('-T:', '///'))}/"
        for table in range(TABLES)
        for minute in range(MINUTES)
    }
    assert {name for name, data in objects.items() if name.endswith("/") and not data} == folders
    files = {name: data for name, data in objects.items() if not name.endswith("/")}
    assert all(name.endswith(f".{file_format}") for name in files)
    assert Counter(f"{name.rpartition('/')[0]}/" for name in files) == Counter(folders)
    ids: dict[str, list[int]] = {f"d_T{table:02d}": [] for table in range(TABLES)}
    uuids: set[object] = set()
    for name in sorted(files):
        minute = []
        for event in rows(files[name]):
            uuids.add(event["uuid"])
            minute.append(event["payload"]["Id"])  # type: ignore[index]
        ids[name.partition("/")[0]] += map(int, minute)
    assert all(found == list(range(MINUTES * EPOCHS * ROWS)) for found in ids.values())
    assert len(uuids) == TABLES * MINUTES * EPOCHS * ROWS
    sys.stdout.write(f"{len(uuids)} events in {len(files)} objects, {len(killed)} kills at {killed} of {whole}\n")
