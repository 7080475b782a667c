"""A self-test with every sink, against stand-ins of Cloud Storage and BigQuery."""

import json
from collections.abc import Iterator

import pytest

from emulator import Emulator
from emulator.bigquery.double import BigQueryDouble
from spark_sink.self_test import __main__ as command
from spark_sink.self_test.appended_rows import AppendedRows
from spark_sink.self_test.probes import bigquery as probes
from spark_sink.self_test.report import SelfTestVerdict
from spark_sink.self_test.workload import Committed
from spark_sink.sinks.bigquery.client import connected
from spark_sink.sinks.bigquery.tables.table import BigQueryTarget
from tests.cloud_storage import CloudStorage
from tests.integration.servers import emulator as emulator
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.self_test.planned import TABLES, workload


@pytest.fixture
def dataset(local_bigquery: LocalBigQuery) -> Iterator[str]:
    client = connected(BigQueryTarget("local", local_bigquery.endpoint, local_bigquery.grpc_endpoint))
    client.create_dataset("self_test")
    yield "self_test"
    client.delete_dataset("self_test", delete_contents=True)


def arguments(emulator: Emulator, server: LocalBigQuery | BigQueryDouble, dataset: str) -> list[str]:
    named = {
        "project": "self-test-project",
        "instance": "self-test-instance",
        "emulator-host": emulator.host,
        "dataset": dataset,
        "bigquery-project": server.project,
        "bigquery-endpoint": server.endpoint,
        "bigquery-grpc-endpoint": server.grpc_endpoint,
    }
    return [f"--{name}={value}" for name, value in named.items()] + ["--json"]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.emulator
@pytest.mark.timeout(1800)
def test_every_sink_that_the_stand_ins_can_hold_is_good_and_nothing_is_left(
    emulator: Emulator,
    local_bigquery: LocalBigQuery,
    dataset: str,
    cloud_storage: CloudStorage,
    bucket: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*arguments(emulator, local_bigquery, dataset), "--modes=merge-load,append-only,changelog"]
    code = command.main([*given, f"--bucket={bucket}"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, report
    names = {one["name"] for one in report["checks"] if one["status"] == "good"}
    assert {
        "files: its events",
        "files: verify",
        "files of Cloud Storage: its events",
        "files of Cloud Storage: verify",
        "bigquery, merge-load: verify",
        "bigquery, append-only: its rows",
        "bigquery, append-only: verify",
        "bigquery, changelog: its rows",
    } <= names
    assert cloud_storage.names(bucket) == []
    client = connected(BigQueryTarget("local", local_bigquery.endpoint, local_bigquery.grpc_endpoint))
    assert list(client.list_tables(dataset)) == []


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.emulator
def test_the_double_holds_the_rows_of_the_workload_in_the_mode_merge(
    emulator: Emulator,
    bigquery_double: BigQueryDouble,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    connected(BigQueryTarget(bigquery_double.project, bigquery_double.endpoint)).create_dataset("d")
    held: dict[str, int] = {}
    delete = probes.delete_tables

    def counting(target: BigQueryTarget, dataset: str, names: tuple[str, ...]) -> None:
        for table in connected(target).list_tables(f"{target.project}.{dataset}"):
            held[table.table_id.rpartition("_")[2]] = len(bigquery_double.rows(dataset, table.table_id))
        delete(target, dataset, names)

    monkeypatch.setattr(probes, "delete_tables", counting)
    code = command.main([*arguments(emulator, bigquery_double, "d"), "--modes=merge"])
    report = json.loads(capsys.readouterr().out)
    assert code == 0, report
    assert held["children"] > 500
    assert held["types"] >= 7
    client = connected(BigQueryTarget(bigquery_double.project, bigquery_double.endpoint))
    assert list(client.list_tables("d")) == []


@pytest.mark.long
@pytest.mark.spark
def test_rows_of_bigquery_that_are_missing_repeated_or_extra_are_named(
    local_bigquery: LocalBigQuery, dataset: str
) -> None:
    committed, _ = workload(0)
    name = next(name for name in TABLES if name.endswith("parents"))
    one = next(transaction for transaction in committed if {mod.table for mod in transaction.mods} >= {name})
    mods = tuple(mod for mod in one.mods if mod.table == name)[:3]
    target = BigQueryTarget("local", local_bigquery.endpoint, local_bigquery.grpc_endpoint)
    place = probes.Place(target, dataset, "a_")
    ids = [int(str(mod.key[0])) for mod in mods]
    values = ", ".join(
        f"(STRUCT('INSERT' AS change_type, '{at:016X}/0/0' AS change_sequence_number), {number})"
        for number, at in (
            (ids[1], one.timestamp),
            (ids[2], one.timestamp),
            (ids[2], one.timestamp),
            (99, one.timestamp),
        )
    )
    columns = "STRUCT<change_type STRING, change_sequence_number STRING>"
    client = connected(target)
    client.query(f"CREATE TABLE `local.{dataset}.a_{name}` (datastream_metadata {columns}, id INT64)").result()
    client.query(f"INSERT INTO `local.{dataset}.a_{name}` (datastream_metadata, id) VALUES {values}").result()
    rows = AppendedRows(place.client, "local", dataset, "append-only", "a_")
    found = rows.differences({name: TABLES[name]}, [Committed(one.timestamp, mods)])
    assert [line.split(" committed")[0] for line in found] == [
        f"missing: INSERT {name} ({ids[0]},)",
        f"repeated: INSERT {name} ({ids[2]},)",
        f"extra: INSERT {name} (99,)",
    ]


def test_the_double_runs_no_queries_so_that_nothing_is_probed(bigquery_double: BigQueryDouble) -> None:
    target = BigQueryTarget(bigquery_double.project, bigquery_double.endpoint, bigquery_double.grpc_endpoint)
    assert probes.why_no_queries(target)


@pytest.mark.slow
def test_probes_of_an_emulator_are_seen_and_never_confirmed(local_bigquery: LocalBigQuery, dataset: str) -> None:
    target = BigQueryTarget("local", local_bigquery.endpoint, local_bigquery.grpc_endpoint)
    place = probes.Place(target, dataset, "p_", patience=10.0)
    assert probes.why_no_queries(target) == ""
    found = {one.about: one for one in probes.observed(place)}
    assert {one.verdict for one in found.values()} == {SelfTestVerdict.SEEN, SelfTestVerdict.NOT_PROBED}
    (floats,) = (one for about, one in found.items() if "Infinity" in about)
    assert floats.detail.startswith("yes: ")
    probes.delete_tables(target, dataset, ["p_"])
    assert list(connected(target).list_tables(dataset)) == []
