"""``discover --config``: what a database has, and what is at the destination of a configuration's sink."""

import pytest
from google.cloud import bigquery

from connector.cli.discovering.destination import DiscoveredEnds
from connector.config.loading import validated
from connector.config.sinks import DestinationObject, WatchedStream, sink_type
from connector.core.schemas import TableSchema
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.client import connected
from spark_sink.sinks.bigquery.config import BigQueryConfig
from tests.connector.builders import column
from tests.integration.commands import run

SINGERS = DestinationObject("replica.Singers", {"SingerId": "INT64", "Tags": "ARRAY<STRING>"}, ("SingerId",))
SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}


def test_people_see_the_columns_of_each_table_and_programs_the_same() -> None:
    ends = DiscoveredEnds([], "bigquery", [SINGERS])
    assert ends.to_text().splitlines() == [
        "no change streams",
        "sink bigquery",
        "  replica.Singers",
        "    column     type",
        "    SingerId*  INT64",
        "    Tags       ARRAY<STRING>",
    ]
    columns = [{"name": "SingerId", "type": "INT64"}, {"name": "Tags", "type": "ARRAY<STRING>"}]
    singers = {"name": "replica.Singers", "key": ["SingerId"], "columns": columns}
    assert ends.to_json() == {"change_streams": [], "sink": "bigquery", "objects": [singers]}


def test_a_destination_without_tables_says_so() -> None:
    assert DiscoveredEnds([], "tables", []).to_text().endswith("\nsink tables: no table is at its destination yet")
    files = DiscoveredEnds([], "files", None)
    assert files.to_text().endswith("\nsink files: its destination has no tables to list")
    assert "objects" not in files.to_json()


@pytest.mark.parametrize("dataset", ["replica", "{schema}"])
def test_the_tables_of_the_datasets_are_listed_with_those_of_others(dataset: str) -> None:
    stream = WatchedStream(
        "Everything",
        "NEW_ROW",
        "googlesql",
        "replica",
        (TableSchema.of("Singers", [column("Id", "INT64", 1, key=True)]),),
    )
    with BigQueryDouble.started() as double:
        sink = {"type": "bigquery", "dataset": dataset, "project": double.project}
        sink |= {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint}
        config = validated({"source": SOURCE, "sink": sink})
        assert isinstance(config.sink, BigQueryConfig)
        kind = sink_type("bigquery")
        assert kind.objects(config.sink, config.source, config.spark, stream) == []
        client = connected(config.sink.target(config.source))
        client.create_dataset("replica")
        names = bigquery.SchemaField("Names", "STRING", mode="REPEATED")
        client.create_table(
            bigquery.Table(f"{double.project}.replica.Others", [bigquery.SchemaField("Id", "INTEGER"), names])
        )
        found = kind.objects(config.sink, config.source, config.spark, stream)
    assert found == [DestinationObject("replica.Others", {"Id": "INT64", "Names": "ARRAY<STRING>"})]


def test_a_database_is_named_once() -> None:
    done = run("discover", "--database", "d", "--config", "config.yaml")
    assert done.code == 2
    assert "--config: it names the database: omit --database" in done.complaint
    assert "Missing option '--project'" in run("discover", "--database", "d").err
