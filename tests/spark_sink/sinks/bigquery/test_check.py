"""``check`` says what a BigQuery sink takes of its quotas, by the tables that are watched and those that exist."""

import threading

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from connector.config.loading import Config, validated
from connector.config.sinks import WatchedStream, sink_type
from connector.core.schemas import TableSchema
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.client import BigQueryClient, ExistingTable
from tests.connector.builders import column

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
TABLES = tuple(TableSchema.of(name, [column("Id", "INT64", 1, key=True)]) for name in ("Singers", "Albums"))


def estimates(config: Config) -> list[str]:
    stream = WatchedStream("Everything", "NEW_ROW", "googlesql", "", TABLES)
    return sink_type(config.sink.type).estimates(config.sink, config.source, config.spark, stream)


@pytest.mark.parametrize("mode", ["merge", "merge-load"])
def test_check_reports_how_much_is_read_of_the_tables_that_are_there(mode: str) -> None:
    with BigQueryDouble.started() as double:
        client = bigquery.Client(
            project=double.project, credentials=AnonymousCredentials(), client_options={"api_endpoint": double.endpoint}
        )
        client.create_dataset("d")
        client.create_table(bigquery.Table(f"{double.project}.d.Singers", [bigquery.SchemaField("Id", "INT64")]))
        double.set_size("d", "Singers", 10**13)
        sink = {"type": "bigquery", "dataset": "d", "mode": mode, "project": double.project}
        sink |= {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint}
        first, second, third = estimates(validated({"source": SOURCE, "sink": sink}))
    assert first.startswith(f"2 tables in mode {mode}")
    assert second.startswith("1 tables of 10,000.0 GB are read up to 24 times a day")
    assert third.startswith("warning: that is 109 %")


def replica(double: BigQueryDouble, tables: list[str]) -> Config:
    client = bigquery.Client(
        project=double.project, credentials=AnonymousCredentials(), client_options={"api_endpoint": double.endpoint}
    )
    client.create_dataset("d")
    for table in tables:
        client.create_table(bigquery.Table(f"{double.project}.d.{table}", [bigquery.SchemaField("Id", "INT64")]))
    sink = {"type": "bigquery", "dataset": "d", "mode": "merge", "project": double.project}
    sink |= {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint}
    return validated({"source": SOURCE, "sink": sink})


def test_check_says_why_it_does_not_know_how_large_tables_are() -> None:
    with BigQueryDouble.started() as double:
        config = replica(double, ["Singers"])
        double.deny("d", "Albums")
        first, second, third = estimates(config)
    assert first.startswith("2 tables in mode merge")
    assert second == "each table is read up to 24 times a day to merge what changed"
    assert third.startswith("sizes unknown: cannot use BigQuery's table d.Albums: permission denied")


def test_check_asks_for_some_tables_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2, timeout=300)
    find = BigQueryClient.find

    def meeting(self: BigQueryClient, dataset: str, name: str) -> ExistingTable | None:
        together.wait()
        return find(self, dataset, name)

    monkeypatch.setattr(BigQueryClient, "find", meeting)
    with BigQueryDouble.started() as double:
        assert len(estimates(replica(double, ["Singers", "Albums"]))) == 2


def test_check_reports_of_streams_where_rows_are_appended_and_nothing_of_files() -> None:
    sink = {"type": "bigquery", "dataset": "d", "mode": "append-only"}
    (note,) = estimates(validated({"source": SOURCE, "sink": sink}))
    assert note.startswith("2 tables in mode append-only: at most 5,000 new streams an hour, of 10,000")
    assert estimates(validated({"source": SOURCE})) == []


def expiring(mode: str, capture: str, *, completes_rows: bool = False) -> list[str]:
    """The errors of a sink whose tables' partitions expire, as ``run`` finds them: without tables."""
    partitions = {"partition_by": {"*": "At"}, "partition_expiry": {"*": "90d"}}
    sink = {"type": "bigquery", "dataset": "d", "mode": mode, **partitions}
    config = validated({"source": SOURCE, "sink": sink})
    kind = sink_type(config.sink.type)
    stream = WatchedStream("Everything", capture, "googlesql", "", (), completes_rows)
    return kind.stream_errors(config.sink, stream) if kind.stream_decides(config.sink) else []


def test_partial_rows_are_not_merged_into_partitions_that_expire() -> None:
    """An update of a row that had expired inserted it again, with NULL in the columns that it did not name."""
    (error,) = expiring("merge-load", "OLD_AND_NEW_VALUES")
    assert error.startswith("sink.partition_expiry: merging into partitions that expire")
    assert "needs whole rows, and change stream Everything captures OLD_AND_NEW_VALUES" in error
    assert error.endswith("or set source.complete_rows")
    assert not expiring("merge-load", "NEW_ROW")
    assert not expiring("merge-load", "OLD_AND_NEW_VALUES", completes_rows=True)
    assert not expiring("append-only", "OLD_AND_NEW_VALUES")


@pytest.mark.parametrize("capture", ["NEW_VALUES", "NEW_ROW"])
def test_check_finds_tables_of_others_whose_partitions_expire(capture: str) -> None:
    with BigQueryDouble.started() as double:
        client = bigquery.Client(
            project=double.project, credentials=AnonymousCredentials(), client_options={"api_endpoint": double.endpoint}
        )
        client.create_dataset("d")
        for name in ("Singers", "Albums"):
            table = bigquery.Table(f"{double.project}.d.{name}", [bigquery.SchemaField("Id", "INT64")])
            expiration = 10**9 if name == "Singers" else None
            table.time_partitioning = bigquery.TimePartitioning(type_="DAY", expiration_ms=expiration)
            client.create_table(table)
        sink = {"type": "bigquery", "dataset": "d", "mode": "merge-load", "project": double.project}
        sink |= {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint}
        config = validated({"source": SOURCE, "sink": sink})
        stream = WatchedStream("Everything", capture, "googlesql", "", TABLES)
        errors = sink_type(config.sink.type).destination_errors(config.sink, config.source, stream)
    assert len(errors) == (capture == "NEW_VALUES")
    assert all(error.startswith("sink: table d.Singers has partitions that expire") for error in errors)
