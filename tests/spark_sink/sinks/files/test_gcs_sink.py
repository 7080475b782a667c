"""Spark over a spool in Cloud Storage, and the file sink's process into it."""

import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.spool import consumers
from connector.spool.storage import lease
from spark_sink.errors import SinkError
from spark_sink.failures import line_and_code
from spark_sink.sinks.files.complete_minutes import FOLDER, CompleteMinute
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.cloud_storage import CloudStorage, Proxy
from tests.spark_sink.processes import eventually, program
from tests.spark_sink.sinks.files.gcs_config import config
from tests.spark_sink.spools import NO_DEAD_LETTERS, START, SpoolMaker, record

pytestmark = pytest.mark.spark

READS = """
import json, sys
from pyspark.sql import SparkSession
import spark_sink
spool, checkpoint, out = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "768m").config("spark.log.level", "OFF").getOrCreate())
spark_sink.register(spark)
batch = spark.read.format("spanner-change-stream").option("spool", spool).load()
rows = []
stream = spark.readStream.format("spanner-change-stream").option("spool", spool).load()
query = (stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    .foreachBatch(lambda df, _: rows.extend(row.uuid for row in df.collect())).start())
query.awaitTermination()
uuids = [row.uuid for row in batch.collect()]
typed = sorted(row.Id for row in spark_sink.typed(batch, "Singers").collect())
open(out, "w").write(json.dumps({"batch": uuids, "stream": rows, "typed": typed}))
"""


@pytest.fixture
def spool(bucket: str) -> SpoolMaker:
    return SpoolMaker(f"{bucket}/a/spool")


def expected(spool: SpoolMaker, root: Path, shape: FileOptions) -> dict[str, bytes]:
    """Files as a run that nothing disturbs writes them, and their folders."""
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, NO_DEAD_LETTERS)
    for group in file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=shape.by_minute):
        assert list(writer.write(group))
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return files | {f"{path.rpartition('/')[0]}/": b"" for path in files}


@pytest.mark.long
def test_events_are_read_from_a_bucket_as_a_batch_and_as_a_stream(spool: SpoolMaker, tmp_path: Path) -> None:
    ids = spool.fill(4)
    out = tmp_path / "out.json"
    with program(tmp_path / "log", "-c", READS, spool.path, str(tmp_path / "checkpoint"), str(out)) as job:
        assert job.code() == 0, job.said()
    read = orjson.loads(out.read_bytes())
    assert read["typed"] == ids
    assert sorted(read["batch"]) == sorted(read["stream"])
    assert len(set(read["stream"])) == len(ids)
    assert consumers.find(spool.spool, "default") is not None


@pytest.mark.slow
def test_a_sink_that_is_killed_leaves_the_same_objects_with_the_same_bytes(
    cloud_storage: CloudStorage, bucket: str, spool: SpoolMaker, tmp_path: Path
) -> None:
    at = START
    for minute in range(10):
        for epoch in range(2):
            at = START + minute * MINUTE + epoch * SECOND
            spool.seal(*(record(at + n, range(500), table=f"T{n}") for n in range(4)))
    spool.seal(high=at + SECOND, final=True)
    sink = f"{bucket}/events"
    configured = config(tmp_path, spool, sink, gzip="true", rotate_bytes="150KB")

    def objects(least: int) -> Callable[[], bool]:
        return lambda: len(cloud_storage.names(sink)) >= least

    points: dict[str, Callable[[], bool]] = {
        "a micro-batch is planned": lambda: (tmp_path / "checkpoint/offsets/0").exists(),
        "some objects are there": objects(7),
    }
    for number, (point, reached) in enumerate(points.items()):
        with program(tmp_path / f"log{number}", "-m", "spark_sink", configured) as one:
            eventually(lambda: reached() or one.has_ended(), point)  # noqa: B023
            one.kill()
    with program(tmp_path / "log", "-m", "spark_sink", configured) as one:
        one.end_input()
        assert one.code() == 0, one.said()
    shape = FileOptions(gzip=True, rotate_bytes=150_000, by_minute=True)
    found = cloud_storage.objects(sink)
    documents = {name: data for name, data in found.items() if name.startswith(f"{FOLDER}/")}
    files = {name: data for name, data in found.items() if name not in documents}
    assert files == expected(spool, tmp_path / "expected", shape)
    assert [name[-7:] for name in documents] == [f"{minute:02d}.json" for minute in range(9)], "the last is not over"
    minutes = map(CompleteMinute.model_validate_json, documents.values())
    named = {file for minute in minutes for of_table in minute.files.values() for file in of_table}
    assert named == {name for name in files if not name.endswith("/") and "/10/09/" not in name}
    assert len(cloud_storage.names(sink)) > 80


@pytest.mark.long
def test_a_sink_whose_lock_was_taken_over_stops_with_one_line_and_writes_nothing_more(
    cloud_storage: CloudStorage, bucket: str, spool: SpoolMaker, tmp_path: Path, gcs_proxy: Proxy
) -> None:
    spool.fill(2)
    gcs_proxy.requests.clear()
    configured = config(
        tmp_path, spool, f"{bucket}/events", rotate_interval=0, spool_billed_to="payer", user_project="payer"
    )
    with program(tmp_path / "log", "-m", "spark_sink", configured) as sink:
        eventually(lambda: "batch 0: " in sink.said() or sink.has_ended(), "a micro-batch")
        before = cloud_storage.names(f"{bucket}/events")
        assert len(gcs_proxy.requests) > 20
        assert [one for one in gcs_proxy.requests if "userProject=payer" not in one] == []
        (lock,) = (name for name in cloud_storage.names(spool.path) if name.endswith(".sink.lock"))
        other = lease.LeaseHolder("another", "", 7, "0", "nonce").to_json()
        asked = len(gcs_proxy.requests)
        cloud_storage.put(f"{bucket}/{lock}", other)
        eventually(
            lambda: any("alt=media" in one and "sink.lock" in one for one in gcs_proxy.requests[asked:]),
            "it has tried to renew its lock, and asks who holds it",
        )
        threading.Event().wait(lease.RENEWAL)
        spool.fill(1)
        assert sink.code() == 1, sink.said()
    *_, line = sink.said().splitlines()
    assert line.startswith("spark_sink: another sink, or a replay of dead letters, holds the spool at ")
    assert line.endswith(" (process 7 on another), which took over while this one did not renew it")
    assert "Traceback" not in sink.said()
    assert cloud_storage.names(f"{bucket}/events") == before
    assert cloud_storage.objects(spool.path)[lock.removeprefix("a/spool/")] == other


def test_a_bucket_that_is_not_there_is_one_line_with_the_way_out_and_code_1(
    cloud_storage: CloudStorage, spool: SpoolMaker
) -> None:
    """The failures of the process itself are tested with a folder."""
    spool.fill(2)
    shape = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=False)
    destination = destination_at("gs://nowhere-at-all/x", cloud_storage.url)
    writer = FileWriter(spool.spool, spool.spool_id, destination, shape, NO_DEAD_LETTERS)
    (group, *_) = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=False)
    with pytest.raises(SinkError) as raised:
        list(writer.write(group))
    line, code = line_and_code(raised.value)
    assert code == 1
    assert line.startswith("cannot use gs://nowhere-at-all/x/d_Singers/")
    assert "there is no bucket nowhere-at-all. Create it, or choose another with sink.path. If it was deleted, " in line
