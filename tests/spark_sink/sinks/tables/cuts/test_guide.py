"""The statements of the guide read all tables as of a published cut, in Spark and in DuckDB."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_sink
from spark_sink.sinks.tables.config import Format
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.cuts.bank import SUM, TABLES
from tests.spark_sink.cuts.campaign import Campaign
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, killed_at
from tests.spark_sink.sinks.tables.reading import target

_GUIDE = Path(__file__).parents[5] / "docs" / "guide" / "cuts.md"
_NAMES = dict(zip(("Orders", "Lines"), TABLES, strict=True))


def statements() -> Mapping[str, list[str]]:
    """The statements in the section on SQL, by the words before them."""
    section = _GUIDE.read_text().split("### SQL")[1].split("\n## ")[0]
    found: dict[str, list[str]] = {}
    for block in re.findall(r"```sql\n(.*?)```", section, re.DOTALL):
        for title, statement in re.findall(r"-- ([^\n]*)\n(.*?);", block, re.DOTALL):
            found.setdefault(title, []).append(statement)
    return found


def replaced(statement: str, versions: Mapping[str, str]) -> str:
    """A statement with the bank's tables, and with versions of them where there are some."""
    for name, version in (("Orders", "31"), ("Lines", "17")):
        of_bank = _NAMES[name]
        statement = statement.replace(name, of_bank).replace(
            f"AS OF {version}", f"AS OF {versions.get(of_bank, version)}"
        )
    return statement.replace("OrderId", "Id")


def of_spool(statement: str, spool_id: str) -> str:
    """A statement with the id of the spool that the cuts are of."""
    return re.sub(r"spool_id = '\w+'", f"spool_id = '{spool_id}'", statement)


@pytest.fixture
def bank(lake: SparkSession, merging_format: Format, tmp_path: Path) -> Campaign:
    """Two cuts of a bank, and an epoch of which one of the two tables is written."""
    campaign = Campaign(lake, merging_format, tmp_path, seed=5)
    process = campaign.process()
    campaign.deliver(*process)
    campaign.bank.seal(6)
    campaign.deliver(*process)
    campaign.bank.seal(6)
    with killed_at(TablesWriter, "_merge", call=2), pytest.raises(KilledError):
        campaign.deliver(*process)
    return campaign


@pytest.mark.slow
def test_the_statements_of_the_guide_read_tables_as_of_the_newest_cut(
    lake: SparkSession, merging_format: Format, tmp_path: Path, bank: Campaign
) -> None:
    folder = tmp_path / "lake"
    found = spark_sink.as_of(lake, path=folder, format=merging_format)
    assert found.epoch == 2
    ask, join = (
        re.sub(r"lake\.music\.(\w+)", lambda name: target(folder, merging_format, name[1]), replaced(one, {}))
        for one in statements()["Spark"]
    )
    spool_id = bank.bank.maker.spool_id
    versions = {row["name"]: str(row["version"]) for row in lake.sql(of_spool(ask, spool_id)).collect()}
    assert versions.keys() == set(TABLES)
    expected = found[TABLES[0]].join(found[TABLES[1]], "Id").select("Id").collect()
    joined = lake.sql(replaced(join, versions)).select("Id").collect()
    assert sorted(joined) == sorted(expected) != []

    duckdb, extensions = pytest.importorskip("duckdb"), pytest.importorskip("duckdb_extensions")
    for name in ("avro", merging_format):
        extensions.import_extension(name)
    with duckdb.connect() as connection:
        connection.execute(f"LOAD {merging_format}")
        (ask,) = statements()["DuckDB, a folder of Iceberg; of Delta with delta_scan"]
        ask = (
            of_spool(ask, spool_id)
            .replace("iceberg_scan", f"{merging_format}_scan")
            .replace("/lake/music", str(folder))
        )
        assert {name: str(version) for name, version in connection.execute(ask).fetchall()} == versions
        (scan,) = statements()[f"DuckDB, a folder of {merging_format.capitalize()}"]
        scans = (scan.replace("Orders", name).replace("31", versions[name]) for name in TABLES)
        rows = " UNION ALL ".join(f"SELECT Balance FROM ({one}) WHERE NOT _is_deleted" for one in scans)
        total = connection.execute(f"SELECT sum(Balance) FROM ({rows})".replace("/lake/music", str(folder))).fetchone()
        assert total == (SUM,)
