"""Delta in a metastore: tables are found by name, by another session too."""

from pathlib import Path

import pytest

from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from tests.spark_sink.sinks.tables.connect.programs import ran

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.skipif(spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse"),
]


def test_tables_of_delta_in_two_databases_of_a_metastore_are_written_by_one_session_and_then_another(
    tmp_path: Path,
) -> None:
    merged, appended = [[1, "right", None], [2, "later", 7], [4, "later", 7]], 6
    first = ran(tmp_path / "log", "catalogs.metastore", str(tmp_path), "first")
    assert (first["operas"], len(first["films"])) == (merged, appended)
    again = ran(tmp_path / "log", "catalogs.metastore", str(tmp_path), "again")
    assert (again["operas"], len(again["films"])) == ([*merged, [5, "new", 5]], appended)
    assert again["location"].startswith(f"file:{tmp_path}/warehouse/operas.db/")
