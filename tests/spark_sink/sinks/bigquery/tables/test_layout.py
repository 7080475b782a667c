"""Tables are clustered, kept, filtered, encrypted, labelled and billed as the options say; else they are refused."""

from datetime import timedelta
from typing import Any

import pytest

from connector.config import validated
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.client import connected
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.bigquery.merging.changed_keys import changed_keys
from spark_sink.sinks.bigquery.replica import BigQueryReplica
from spark_sink.sinks.bigquery.tables.partition import TablePartition
from spark_sink.sinks.bigquery.tables.table import (
    BigQueryTable,
    BigQueryTableOptions,
    BigQueryTarget,
    bigquery_table,
    errors_of_stream,
)
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import MakeScenario
from tests.spark_sink.sinks.bigquery.tables.orders import ORDERS
from tests.spark_sink.sinks.files.written import ALBUMS
from tests.spark_sink.spools import START, record

KEY = "projects/p/locations/us/keyRings/r/cryptoKeys/k"


def sink(**options: Any) -> BigQueryConfig:
    source = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
    found = validated(
        {"source": source, "sink": {"type": "bigquery", "dataset": "d", "mode": "append-only", **options}}
    ).sink
    assert isinstance(found, BigQueryConfig)
    return found


def table(**options: Any) -> BigQueryTable:
    return bigquery_table(ORDERS, sink(**options).table_options())


def test_a_table_is_clustered_by_the_columns_of_the_option_or_by_its_key() -> None:
    assert table().clustering == ("Id",)
    assert table(cluster_by={"Orders": ["Placed on", "Id"]}).clustering == ("Placed_on", "Id")
    assert table(cluster_by={"Other": ["Day"]}).clustering == ("Id",)
    assert table(cluster_by={"*": ["Day"]}).clustering == ("Day",)
    assert table(cluster_by={"*": ["Gone"]}).clustering == ("Id",), "of all others only those that have the column"
    assert table(cluster_by={"*": ["Day"], "Orders": ["Id"]}).clustering == ("Id",)


def test_check_says_which_columns_cannot_cluster_a_table() -> None:
    for column, why in (("Gone", "there is no column Gone"), ("Tags", "column Tags is repeated in BigQuery")):
        options = sink(cluster_by={"Orders": [column]}).table_options()
        assert errors_of_stream(options, "Everything", "NEW_ROW", [ORDERS]) == [
            f"sink.cluster_by: table Orders cannot be clustered by {column}: {why}"
        ]


def test_partitions_expire_and_want_a_filter_where_that_is_asked_for() -> None:
    made = table(partition_by={"*": "Day"}, partition_expiry={"Orders": "90d"}, require_partition_filter=["*"])
    assert made.partition == TablePartition("Day", "day", expiry=90 * 86400, requires_filter=True)
    other = table(partition_by={"Orders": "Day"}, partition_expiry={"*": "1h"})
    assert other.partition == TablePartition("Day", "day", expiry=3600)


def test_partitions_that_cannot_be_as_asked_for_are_reported_also_of_a_table_that_all_others_mean() -> None:
    ranged = table(partition_by={"Orders": "Id,0,100,10"}, partition_expiry={"Orders": "90d"})
    assert "sink.partition_expiry is for partitions of time" in ranged.unfit[0]
    (reason,) = table(partition_by={"*": "Gone"}, require_partition_filter=["Orders"]).unfit
    assert reason == "sink.partition_by: table Orders cannot be partitioned by Gone: there is no column Gone"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cluster_by": {"T": []}}, "needs 1 to 4 different columns"),
        ({"cluster_by": {"T": ["A", "A"]}}, "needs 1 to 4 different columns"),
        ({"cluster_by": {"T": ["A", "B", "C", "D", "E"]}}, "needs 1 to 4 different columns"),
        ({"partition_expiry": {"T": "90d"}}, "sink.partition_expiry: 'T' has no partitions"),
        ({"partition_by": {"T": "A"}, "partition_expiry": {"T": "1m"}}, "write an hour or longer"),
        ({"require_partition_filter": ["T"]}, "sink.require_partition_filter: 'T' has no partitions"),
        ({"require_partition_filter": ["*"]}, "sink.require_partition_filter: '\\*' has no partitions"),
        ({"partition_by": {"T": "A"}, "require_partition_filter": ["T"], "mode": "merge-load"}, "append-only and cha"),
        ({"partition_by": {"T": "A"}, "require_partition_filter": ["T"], "mode": "merge"}, "append-only and changelog"),
        ({"partition_by": {"T": "A"}, "require_partition_filter": ["T"], "views": True}, "without views"),
        ({"kms_key": f"{KEY}/cryptoKeyVersions/1"}, "is not a valid key"),
        ({"kms_key": KEY, "location": "EU"}, "a key in us cannot encrypt a dataset in EU"),
    ],
)
def test_what_cannot_be_combined_is_refused_before_anything_is_asked(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        sink(**options)


def test_a_key_of_the_datasets_location_is_taken() -> None:
    assert sink(kms_key=KEY.replace("/us/", "/europe/"), location="EU").kms_key
    assert sink(kms_key=KEY, location="US").kms_key


def test_options_of_older_programs_lay_tables_out_as_they_did() -> None:
    assert BigQueryTableOptions("d").layouts.to_text() == BigQueryTableOptions("d").layout == ""


def test_notes_of_changes_are_clustered_by_columns_that_they_have() -> None:
    options = sink(mode="merge-load", cluster_by={"Orders": ["Day", "Id"]}).table_options()
    assert changed_keys(bigquery_table(ORDERS, options)).clustering == ("Id",)


def test_jobs_run_in_the_billed_project_and_have_the_labels_and_the_key() -> None:
    labels = (("team", "sales"),)
    target = BigQueryTarget("p", "http://127.0.0.1:1", "", "payer", KEY, labels)
    assert BigQueryTarget.from_text(target.to_text()) == target
    client = connected(target)
    assert client.project == "payer"
    query, load = client.default_query_job_config, client.default_load_job_config
    assert query is not None
    assert load is not None
    assert query.labels == load.labels == dict(labels)
    assert load.destination_encryption_configuration.kms_key_name == KEY
    assert connected(BigQueryTarget("p", "http://127.0.0.1:1")).project == "p"


def test_tables_and_datasets_are_made_as_configured(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    scenario.maker.seal(record(START, [1], columns=ALBUMS, values={"Name": "n", "Sales": "1"}))
    config = scenario.config(
        kms_key=KEY,
        partition_by={"*": "_PARTITIONTIME"},
        partition_expiry={"Singers": "2d"},
        require_partition_filter=["Singers"],
        cluster_by={"Singers": ["Name"]},
    )
    config = config.model_copy(update={"source": config.source.model_copy(update={"labels": {"team": "sales"}})})
    with SinkRun(config, Checkpoint([])) as run:
        run.only_what_is_sealed()
        run.run()
    made = bigquery_double.table(scenario.dataset, "Singers")
    assert made.clustering == ("Name",)
    assert made.others == {
        "description": "Spanner table Singers",
        "encryptionConfiguration": {"kmsKeyName": KEY},
        "labels": {"team": "sales"},
        "requirePartitionFilter": True,
        "timePartitioning": {"type": "DAY", "expirationMs": str(timedelta(days=2) // timedelta(milliseconds=1))},
    }
    dataset = scenario.client.get_dataset(scenario.dataset)
    assert dataset.default_encryption_configuration.kms_key_name == KEY
    assert dataset.labels == {"team": "sales"}


def test_what_verify_cannot_read_or_repair_is_refused_before_rows_are_read(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    """BigQuery refused the first query, and rows of expired partitions were sent again by each repair."""
    scenario = make_scenario(bigquery_double, "append-only")
    scenario.maker.seal(record(START, [1], columns=ALBUMS, values={"Name": "n", "Sales": "1"}))
    scenario.maker.seal(record(START + SECOND, [1], table="Bands", columns=ALBUMS, values={"Name": "n", "Sales": "1"}))
    config = scenario.config(
        partition_by={"*": "_PARTITIONTIME"}, partition_expiry={"Bands": "2d"}, require_partition_filter=["Singers"]
    )
    with SinkRun(config, Checkpoint([])) as run:
        run.only_what_is_sealed()
        run.run()
    assert isinstance(config.sink, BigQueryConfig)
    replica = BigQueryReplica(config.sink, config.source, config.spool.path)
    singers, bands = TableSchema.of("Singers", ALBUMS), TableSchema.of("Bands", ALBUMS)
    with pytest.raises(ConfigurationError, match="require_partition_filter: BigQuery refuses to read all of table"):
        replica.size({"Singers": singers})
    assert replica.size({"Bands": bands}) >= 0
    with pytest.raises(ConfigurationError, match="--repair: BigQuery deletes old partitions of Bands, whose rows"):
        replica.check_repair({"Bands": bands})
    assert replica.note() == "BigQuery deletes old partitions of Bands: their rows are missing"


def test_a_billed_project_runs_the_statements_of_a_merged_table(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "merge", billing_project="payer", cluster_by={"Singers": ["Name"]})
    scenario.maker.seal(record(START, [1], columns=ALBUMS, values={"Name": "n", "Sales": "1"}))
    scenario.run()
    assert bigquery_double.table(scenario.dataset, "Singers").max_staleness == timedelta(hours=1)
    assert [row["Id"] for row in scenario.rows("Singers")] == [1]


@pytest.mark.long
def test_a_table_that_is_clustered_by_another_column_is_loaded_and_merged(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load", cluster_by={"Singers": ["Name", "Id"]})
    for number, name in enumerate("abc"):
        scenario.maker.seal(record(START + number * SECOND, [1, 2], columns=ALBUMS, values={"Name": name}))
        scenario.run()
    assert sorted((row["Id"], row["Name"]) for row in scenario.rows("Singers")) == [(1, "c"), (2, "c")]
