"""The program of docs/guide/lakehouse.md runs as it stands."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_sink
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from tests.spark_sink.spools import SpoolMaker

PAGE = Path(__file__).parents[4] / "docs" / "guide" / "lakehouse.md"


@pytest.mark.skipif(spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse")
def test_three_lines_keep_tables_equal_to_spanner(
    lake: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spool = SpoolMaker(tmp_path / "spool")
    keys = spool.fill(3)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"spark": lake, "spark_sink": spark_sink}
    for name in ("./spool", "./lake", "./checkpoint"):  # the JVM has another folder
        program = program.replace(f'"{name}"', f'"{tmp_path / name}"')
    exec(program, names)
    query = names["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    found = lake.read.format("delta").load(str(tmp_path / "lake" / "Singers")).collect()
    assert sorted(row["Id"] for row in found) == keys
