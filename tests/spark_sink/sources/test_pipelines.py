"""A declarative pipeline with tables of the sources, run by Spark's own command."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.spark_sink.spools import SpoolMaker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("pyspark.pipelines") is None, reason="needs PySpark 4.1"),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("grpc_status", "yaml")), reason="needs pyspark[connect]"
    ),
]

SPEC = """\
name: singers
libraries:
  - glob:
      include: tables.py
storage: file://{folder}/storage
"""

TABLES = """\
from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

import spark_sink

spark = SparkSession.active()
spark_sink.register(spark)


@pipelines.table
def streamed() -> DataFrame:
    events = spark.readStream.format("spanner-change-stream").option("spool", {spool!r}).load()
    return spark_sink.typed(events, "Singers", spool={spool!r})


@pipelines.materialized_view
def read_at_once() -> DataFrame:
    events = spark.read.format("spanner-change-stream").option("spool", {spool!r}).load()
    return spark_sink.typed(events, "Singers", spool={spool!r})
"""


@pytest.mark.usefixtures("pandas")
def test_a_declarative_pipeline_has_every_row_of_a_spool_once(tmp_path: Path) -> None:
    """Whatever the exit code of the command is, whose client does not know each answer of the server."""
    spool = SpoolMaker(tmp_path / "spool")
    ids = spool.fill(epochs=3)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    (tmp_path / "tables.py").write_text(TABLES.format(spool=spool.path))
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    command += ["--conf", f"spark.sql.warehouse.dir={tmp_path}/warehouse", "--conf", "spark.ui.enabled=false"]
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "log").open("wb") as log:
        subprocess.run(command, cwd=tmp_path, stdout=log, stderr=log, env=env, timeout=600, check=False)
    text = (tmp_path / "log").read_text()
    for table in ("streamed", "read_at_once"):
        files = [str(file) for file in (tmp_path / "warehouse" / table).glob("*.parquet")]
        assert files, text[-8000:]
        found = ds.dataset(files, format="parquet").to_table(columns=["Id", "_is_deleted"])
        assert sorted(found["Id"].to_pylist()) == ids, text[-8000:]
