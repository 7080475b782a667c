"""DuckDB reads the versions of a published cut, with the statements of the page about cuts."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sink.sinks.tables.config import Format
from tests.spark_sink.cuts.bank import SUM, TABLES
from tests.spark_sink.cuts.campaign import Campaign

_VERSIONS = (
    "SELECT t.name, t.version FROM"
    " (SELECT unnest(tables) AS t FROM {cuts} WHERE sink = 'tables' AND epoch = {epoch} ORDER BY epoch DESC)"
)
_SCANS = {"delta": "delta_scan('{}', version = {})", "iceberg": "iceberg_scan('{}', snapshot_from_id = {})"}


def test_duckdb_reads_all_tables_as_of_a_cut(lake: SparkSession, merging_format: Format, tmp_path: Path) -> None:
    duckdb, extensions = pytest.importorskip("duckdb"), pytest.importorskip("duckdb_extensions")
    campaign = Campaign(lake, merging_format, tmp_path, seed=5)
    process = campaign.process()
    campaign.deliver(*process)
    for _ in range(2):
        campaign.bank.seal(6)
        campaign.deliver(*process)
    for name in ("avro", merging_format):
        extensions.import_extension(name)
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {merging_format}")
        folder = tmp_path / "lake"
        for epoch in (1, 2, 3):
            statement = _VERSIONS.format(cuts=f"{merging_format}_scan('{folder}/_cuts')", epoch=epoch)
            versions = dict(connection.execute(statement).fetchall())
            assert set(versions) == set(TABLES)
            scans = [_SCANS[merging_format].format(folder / name, version) for name, version in versions.items()]
            rows = " UNION ALL ".join(f"SELECT Balance FROM {scan} WHERE NOT _is_deleted" for scan in scans)
            assert connection.execute(f"SELECT sum(Balance) FROM ({rows})").fetchone()[0] == SUM
