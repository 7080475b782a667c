"""An archive with an environment, as docs/deployment/spark-clusters.md has it, on executors that have nothing else."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from tests.packaging.environments import archive, unpacked
from tests.packaging.wheels import build, why_not
from tests.spark_sink.spools import SpoolMaker

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(why_not() is not None, reason=f"no wheel can be built: {why_not()}"),
]

JOB = """
import sys

from pyspark.sql import SparkSession

import connector
import spark_sink


def where(_):
    import connector
    import msgspec
    import pyarrow

    return [module.__file__ for module in (connector, msgspec, pyarrow)]


spark = SparkSession.builder.getOrCreate()
spark_sink.register(spark)
events = spark.read.format("spanner-change-stream").option("spool", sys.argv[1]).load()
print("events:", events.count())
print("driver:", connector.__file__)
for path in spark.sparkContext.parallelize(range(4), 4).flatMap(where).distinct().collect():
    print("executor:", path)
"""


def spark_home(folder: Path) -> Path:
    """Makes a folder with links to PySpark's files: workers of a local cluster keep their own below Spark's home."""
    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name != "work":
            (folder / path.name).symlink_to(path)
    return folder


def test_a_job_reads_a_spool_on_executors_whose_only_environment_is_the_archive(tmp_path: Path) -> None:
    service, _ = build(tmp_path / "wheels")
    packed = archive(service, tmp_path)
    ids = SpoolMaker(tmp_path / "spool").fill(3)
    driver = tmp_path / "driver"
    unpacked(packed, driver / "environment")
    (driver / "job.py").write_text(JOB)
    home = spark_home(tmp_path / "spark")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))},
        "PYSPARK_PYTHON": "./environment/bin/python",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"),
            *("--archives", f"{packed}#environment", "job.py", str(tmp_path / "spool")),
        ],
        cwd=driver,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    printed = [line.partition(": ") for line in done.stdout.splitlines()]
    found = {name: [value for key, _, value in printed if key == name] for name in ("events", "driver", "executor")}
    assert found["events"] == [str(len(ids))]
    assert [Path(path).is_relative_to(driver / "environment") for path in found["driver"]] == [True]
    assert len(found["executor"]) >= 3
    assert [path for path in found["executor"] if not Path(path).is_relative_to(home / "work")] == []
