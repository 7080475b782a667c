"""The snippets of Python in README and docs run as they stand, with the names and paths of a test put in."""

import json
import subprocess
import textwrap
from pathlib import Path

import pytest

from emulator import Workload
from tests.connector.api.streams import drawn, serving, settings, written
from tests.docs.clean import BIN, environment, shown
from tests.integration.servers import MakeDatabase
from tests.spark_sink.spools import SpoolMaker

SPARK = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
found = {}
for name, text in json.load(open("blocks.json")).items():
    names = {"spark": spark}
    exec(compile(text, name, "exec"), names)
    for query in spark.streams.active:
        query.awaitTermination()
    rows = names.get("rows")
    if rows is None:
        found[name] = [names["events"].isStreaming, *(names["singers"].columns[:2] if "singers" in names else [])]
    else:
        found[name] = sorted(row.SingerId for row in rows.collect())
found["parquet"] = spark.read.parquet("data/lake").count()
print(json.dumps(found))
"""
ASYNC = """
import asyncio
stored = []
store = stored.append

async def main():
{block}

asyncio.run(main())
print(len(stored))
"""


def python(folder: Path, program: str, **more: str) -> str:
    """Runs a program in a folder; returns what it prints."""
    command = [str(BIN / "python"), "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.emulator
@pytest.mark.spark
def test_snippets_for_spark_run_in_a_session(database: MakeDatabase, tmp_path: Path) -> None:
    SpoolMaker(tmp_path / "spool").fill(2)
    sample = database()
    workload = Workload(sample, seed=4)
    workload.run(mods=60)
    singers = {key for table, key in _rows(workload) if table == "Singers"}
    pages = {
        "README.md": shown("README.md", "python")[0],
        "package.md": shown("docs/deployment/package.md", "python")[0],
        "spark.md": shown("docs/spark.md", "python")[0],
        "several-sinks.md": shown("docs/guide/several-sinks.md", "python")[0],
        "as of a timestamp": shown("docs/spark.md", "python")[1],
    }
    placed = {"/data/spool": "spool", "gs://my-bucket/spool": "spool", "/data/": f"{tmp_path}/data/"}
    placed |= {"my-project": sample.project, "my-instance": sample.instance, "my-database": sample.database_id}
    for name, text in pages.items():
        for shown_value, value in placed.items():
            text = text.replace(shown_value, value)
        pages[name] = text
    (tmp_path / "blocks.json").write_text(json.dumps(pages))
    found = json.loads(python(tmp_path, SPARK, SPANNER_EMULATOR_HOST=sample.host))
    assert found == {
        "README.md": [True, "Id", "Name"],
        "package.md": [True],
        "spark.md": [True],
        "several-sinks.md": [True],
        "as of a timestamp": sorted(singers),
        "parquet": 10,
    }


def _rows(workload: Workload) -> set[tuple[str, int]]:
    rows: set[tuple[str, int]] = set()
    for mod in workload.committed:
        if mod.table == "Singers":
            row = (mod.table, int(str(mod.keys["SingerId"])))
            (rows.discard if mod.mod_type == "DELETE" else rows.add)(row)
    return rows


def test_the_snippet_for_a_python_program_resumes_by_a_checkpoint(tmp_path: Path) -> None:
    block = textwrap.indent(shown("README.md", "python")[1], "    ")
    with serving(drawn()) as server:
        written(tmp_path / "config.yaml", settings(server))
        assert int(python(tmp_path, ASYNC.format(block=block))) > 0


def test_the_snippet_for_tests_of_ones_own_serves_a_scenario(tmp_path: Path) -> None:
    (block,) = shown("docs/testing.md", "python")
    assert int(python(tmp_path, f"{block}\nprint(len(scenario.committed))")) > 0
