"""New lakehouse tables from the kept spool alone equal the old ones."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.core.timestamps import format_rfc3339
from spark_sink.sinks.tables.config import Format
from tests.spark_sink.sinks.named.kept_copies import TABLES, KeptHistory, KeptSinks, Rows, check_copies
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


@pytest.mark.long
def test_a_table_that_is_built_again_since_a_timestamp_has_what_was_committed_after_it(
    lake: SparkSession, merging_format: Format, spool: SpoolMaker, tmp_path: Path
) -> None:
    """The short form: what is one code for all sinks is shown with other destinations."""
    copies = Lakes(lake, tmp_path / "lakes", merging_format, "merge")
    history, sinks = KeptHistory(spool, seed=5), KeptSinks(lake, spool, copies)
    history.seal(3)
    sinks.deliver("one")
    assert copies.rows("one") == history.rows()
    sinks.forget("one")
    middle = spool.spool.manifest(2)
    sinks.deliver("one", start=format_rfc3339((middle.watermark_low + middle.watermark_high) // 2))
    assert copies.rows("one") == history.rows(middle.watermark_low) != history.rows()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["merge", "history"])
def test_tables_from_a_kept_spool_equal_the_old_ones(
    lake: SparkSession, merging_format: Format, spool: SpoolMaker, tmp_path: Path, mode: str
) -> None:
    check_copies(lake, spool, Lakes(lake, tmp_path / "lakes", merging_format, mode))
