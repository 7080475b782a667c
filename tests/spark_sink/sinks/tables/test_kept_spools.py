"""New lakehouse tables from the kept spool alone equal the old ones."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import Format
from tests.spark_sink.sinks.named.kept_copies import TABLES, Rows, check_copies
from tests.spark_sink.sinks.tables.reading import target
from tests.spark_sink.spools import SpoolMaker


class Lakes:
    """Folders of tables. One that was removed has another name from then on, because the session caches tables."""

    def __init__(self, lake: SparkSession, folder: Path, of_format: Format, mode: str) -> None:
        self._lake = lake
        self._folder = folder
        self._format: Format = of_format
        self._mode = mode
        self._removed: set[str] = set()

    def sink(self, name: str) -> dict[str, object]:
        return {"type": "tables", "format": self._format, "mode": self._mode, "path": str(self._of(name))}

    def rows(self, name: str) -> Rows:
        current = "NOT _is_deleted" if self._mode == "merge" else "_is_current"
        found: Rows = {}
        for table in TABLES:
            path = target(self._of(name), self._format, table)
            self._lake.sql(f"REFRESH TABLE {path}")
            rows = self._lake.sql(f"SELECT Id, Name FROM {path} WHERE {current}").collect()
            found |= {(table, row["Id"]): row["Name"] for row in rows}
        return found

    def remove(self, name: str) -> None:
        shutil.rmtree(self._of(name))
        self._removed.add(name)

    def _of(self, name: str) -> Path:
        return self._folder / (f"{name}-again" if name in self._removed else name)


@pytest.mark.parametrize("mode", ["merge", pytest.param("history", marks=pytest.mark.slow)])
def test_tables_from_a_kept_spool_equal_the_old_ones(
    lake: SparkSession, merging_format: Format, spool: SpoolMaker, tmp_path: Path, mode: str
) -> None:
    check_copies(lake, spool, Lakes(lake, tmp_path / "lakes", merging_format, mode))
