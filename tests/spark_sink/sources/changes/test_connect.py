"""Spark Connect: the session has no JVM of its own, and sends what it registers to the server."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark_sink.spools import SpoolMaker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="needs pyspark[connect]"),
]


@pytest.mark.usefixtures("pandas")
def test_a_spool_is_read_as_a_batch_and_as_a_stream_through_spark_connect(tmp_path: Path) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    ids = spool.fill(epochs=5)
    (tmp_path / "out").mkdir()
    program = [
        sys.executable,
        "-m",
        "tests.spark_sink.sources.changes.programs.connect_query",
        str(tmp_path / "out"),
        spool.path,
    ]
    any_port = {"SPARK_TESTING": "1"}  # instead of 15002
    env = os.environ | {"PYSPARK_PYTHON": sys.executable} | any_port
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(program, stdout=subprocess.PIPE, stderr=log, env=env, timeout=600, check=False)
    assert done.returncode == 0, (tmp_path / "log").read_text()[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"session": "pyspark.sql.connect.session", "batch": ids, "stream": ids}
