"""Python workers of Spark keep little for garbage collections to look at."""

import subprocess
import sys
from pathlib import Path

import orjson

from connector.core.timestamps import SECOND
from tests.spark_sink.spools import SpoolMaker, record

_TASKS = """
import gc, sys, orjson
from spark_sink.sources.changes.data_source import SpannerChangeStream
source = SpannerChangeStream({"spool": sys.argv[1]})
reader = source.reader(source.schema())
found = []
for _ in range(2):
    rows = sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))
    found.append([rows, gc.get_freeze_count(), len(gc.get_objects())])
sys.stdout.buffer.write(orjson.dumps(found))
"""
"""The program of a worker, without Spark."""


def test_collections_pass_over_what_the_first_task_imported(tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    spool.seal(*(record(spool.watermark + SECOND, [key], sequence=key) for key in range(20)))
    done = subprocess.run([sys.executable, "-c", _TASKS, spool.path], capture_output=True, check=True)
    (first, aside, left), (second, still_aside, left_again) = orjson.loads(done.stdout)
    assert first == second == 20
    assert aside > 50_000  # what PySpark, Arrow and our modules consist of
    assert still_aside == aside
    assert max(left, left_again) < 5_000
