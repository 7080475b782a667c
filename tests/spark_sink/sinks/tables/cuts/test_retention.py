"""The properties by which tables of Delta keep the versions of published cuts, and their logs."""

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_sink.sinks.shared.feed import Feed
from spark_sink.sinks.tables.config import TableOptions, TablesConfig
from spark_sink.sinks.tables.formats.retentions import longer
from spark_sink.sinks.tables.libraries import LIBRARIES, spark_version
from spark_sink.sinks.tables.merge_into import TablesWriter
from tests.spark_sink.sinks.tables.changes import change
from tests.spark_sink.sinks.tables.reading import epochs, target
from tests.spark_sink.spools import SpoolMaker

FILES, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"


def options_of(path: Path, keep: str, **properties: str) -> TableOptions:
    sink = {"format": "delta", "path": str(path), "cuts": {"keep": keep}, "table_properties": properties}
    return TablesConfig.model_validate(sink).options


def days(number: int) -> str:
    return f"interval {number * 24 * 3600} seconds"


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("7d", {}),
        ("20d", {FILES: days(20), LOG: days(30)}),
        ("60d", {FILES: days(60), LOG: days(67)}),
    ],
)
def test_a_log_is_kept_for_some_days_longer_than_cuts_and_never_for_less_than_by_deltas_default(
    tmp_path: Path, keep: str, expected: dict[str, str]
) -> None:
    assert options_of(tmp_path, keep).properties == expected


def test_the_users_own_properties_come_first(tmp_path: Path) -> None:
    options = options_of(tmp_path, "60d", **{LOG: "interval 1 day"})
    assert options.properties == {FILES: days(60), LOG: "interval 1 day"}
    assert options.kept == {FILES: days(60)}


def test_a_property_that_is_longer_already_or_is_not_understood_stays() -> None:
    wanted = {FILES: days(60), LOG: days(67)}
    assert longer({}, wanted) == wanted, "by Delta's defaults"
    assert longer({FILES: "interval 1 week 2 days", LOG: "66 days"}, wanted) == wanted
    assert longer({FILES: days(60), LOG: "INTERVAL 10 WEEKS"}, wanted) == {}
    assert longer({FILES: "interval 9 moons", LOG: ""}, wanted) == {}
    assert longer({}, {FILES: days(20), LOG: days(30)}) == {FILES: days(20)}


@pytest.mark.long
@pytest.mark.skipif(spark_version() not in LIBRARIES["delta"].versions, reason="needs Delta: make test-lakehouse")
def test_where_cuts_are_kept_for_longer_than_before_a_table_of_the_sink_keeps_its_versions_longer(
    lake: SparkSession, tmp_path: Path
) -> None:
    spool = SpoolMaker(tmp_path / "spool")
    former = {FILES: days(20), LOG: days(20)}  # as an older version of the sink has set them
    others = target(tmp_path / "lake", "delta", "Albums")
    lake.sql(
        f"CREATE TABLE {others} (Id BIGINT, Name STRING, _mod_type STRING, _change_timestamp TIMESTAMP,"
        " _change_sequence_number STRING, _uuid STRING, _is_deleted BOOLEAN, _present ARRAY<STRING>, _epoch BIGINT)"
        f" USING delta TBLPROPERTIES ('{LOG}' = 'interval 20 days')"
    )
    options = replace(options_of(tmp_path / "lake", "60d"), mode="append")
    for at, of_sink in enumerate((replace(options, properties=former, kept={}), options), 1):
        epoch = spool.seal(*(change(at, [at], table=table) for table in ("Albums", "Singers")))
        assert not TablesWriter(Feed.at(spool.path), of_sink, "tables").write(epochs(lake, spool, epoch, epoch)).stopped
    shown = {
        table: lake.sql(f"SHOW TBLPROPERTIES {target(tmp_path / 'lake', 'delta', table)}").collect()
        for table in ("Albums", "Singers")
    }
    found = {table: {row["key"]: row["value"] for row in rows} for table, rows in shown.items()}
    assert found["Singers"] | {FILES: days(60), LOG: days(67)} == found["Singers"]
    assert (FILES in found["Albums"], found["Albums"][LOG]) == (False, "interval 20 days"), "somebody else created it"
