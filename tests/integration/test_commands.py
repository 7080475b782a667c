"""The reports of `discover`, `spool`, `check` and the status page."""

import json
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339
from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.sink_report import NOTHING, write_report
from emulator import Workload
from emulator.workload.tables import Dialect
from tests.integration.commands import Background, configuration, manifests, options, reading, run
from tests.integration.delivered import unless_skipped
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_discover_reports_streams_with_their_options_tables_columns_and_keys(
    dialect: str, database: MakeDatabase
) -> None:
    sample = database(dialect=dialect, value_capture_type="NEW_VALUES")
    done = run("discover", *options(sample), "--json")
    assert done.code == 0, done.err
    (stream,) = json.loads(done.out)
    assert stream["change_stream"] == sample.change_stream
    assert (stream["dialect"], stream["value_capture_type"]) == (dialect, "NEW_VALUES")
    assert stream["partition_mode"] == "IMMUTABLE_KEY_RANGE"
    assert re.fullmatch(r"\d+[dh]", stream["retention_period"])
    tables = {
        table["table"]: (table["primary_keys"], [column["name"] for column in table["columns"]])
        for table in stream["tables"]
    }
    assert tables == {
        table.name: ([column.name for column in table.key], [column.name for column in table.columns])
        for table in sample.tables
    }
    (schema,) = [one for one in stream["spannerDatabase"]["schemas"] if one["schema"] == "sales"]
    (invoices,) = [one for one in schema["tables"] if one["table"] == "Invoices"]
    key = {"googlesql": "INT64", "postgresql": "bigint"}[dialect]
    first = {"column": "InvoiceId", "dataType": key, "isPrimaryKey": True, "ordinalPosition": 1}
    assert invoices["columns"][0] == first
    columns = {column["name"]: column for table in stream["tables"] for column in table["columns"]}
    in_sinks = {"jsonl": "number", "avro": "long", "bigquery": "INT64", "spanner": "INT64", "tables": "bigint"}
    assert columns["InvoiceId"]["sinks"] == in_sinks
    assert all(column["data_type"] and column["unified_type"] for column in columns.values())
    text = run("discover", *options(sample)).out.decode()
    assert re.search(rf"^    InvoiceId\* +{key} +long +number +long +INT64 +INT64 +bigint$", text, re.MULTILINE)


def test_discover_lists_the_tables_of_another_database_that_a_sink_writes(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample, replica = database(), database()
    sink = {
        "type": "spanner",
        "project": replica.project,
        "instance": replica.instance,
        "database": replica.database_id,
    }
    path = configuration(tmp_path, sample, sink=sink)
    done = run("discover", "--config", path, "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert [stream["change_stream"] for stream in report["change_streams"]] == [sample.change_stream]
    found = {one["name"]: one for one in report["objects"]}
    assert {table.name for table in replica.tables} <= found.keys()
    assert found["Singers"]["key"] == ["SingerId"]
    assert {"name": "SingerId", "type": "INT64"} in found["Singers"]["columns"]


def test_spool_reports_epochs_and_consumers_and_forgets_one(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    start = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=31)
    workload.run(mods=40)
    end = format_rfc3339(workload.committed[-1].commit_timestamp_ns)
    assert run("read", configuration(tmp_path, sample, source={"start": start, "end": end})).code == 0
    spool = tmp_path / "spool"
    consumers.register(Spool.at(spool), "slow", now=time.time_ns())
    consumers.record(Spool.at(spool), "quick", Spool.at(spool).latest(), now=time.time_ns())

    report = json.loads(run("spool", spool, "--json").out)
    kept = manifests(spool)
    assert report["source"]["database"] == sample.database_id
    assert (report["first_epoch"], report["last_epoch"]) == (1, len(kept))
    assert report["rows"] == len(workload.committed)
    assert report["watermark"] == end
    files = [path.stat().st_size for name in ("segments", "manifests") for path in (spool / name).iterdir()]
    assert sum(files) < report["bytes"] < sum(files) * 1.5
    behind = {consumer["consumer"]: consumer["behind_rows"] for consumer in report["consumers"]}
    assert behind == {"slow": len(workload.committed), "quick": 0}
    assert [epoch["epoch"] for epoch in report["epochs"]] == [manifest.epoch for manifest in kept]

    assert run("spool", spool, "--forget", "slow").code == 0
    text = run("spool", spool).out.decode()
    assert "quick" in text
    assert "slow" not in text
    missing = run("spool", spool, "--forget", "slow")
    assert missing.code == 1
    assert "quick" in missing.complaint


def test_the_status_page_and_the_metrics_answer_while_another_connection_is_silent(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=32)
    with reading(configuration(tmp_path, sample)) as daemon:
        found = re.search(r"url=http://([0-9.]+):(\d+)/", daemon.said)
        assert found is not None
        with socket.create_connection((found[1], int(found[2]))):  # a browser opens such connections in advance
            workload.run(mods=30)
            address = f"http://{found[1]}:{found[2]}"
            with unless_skipped(sample, lambda: workload.committed, tmp_path / "spool"):
                daemon.until(
                    lambda: sum(json.loads(fetched(f"{address}/api/status"))["mods"].values()) >= 30, "all mods sealed"
                )
            page, metrics = json.loads(fetched(f"{address}/api/status")), fetched(f"{address}/metrics").decode()
            assert sum(page["mods"].values()) == 30
            assert "sealed" in page["watermark"]
            inserts = sum(mod.mod_type == "INSERT" for mod in workload.committed)
            assert f'spanner_cdc_mods_total{{mod_type="INSERT"}} {float(inserts)}' in metrics
            assert re.search(r"^spanner_cdc_watermark_lag_seconds [0-9.]+$", metrics, re.MULTILINE)
            assert daemon.stop().code == 0


def test_the_status_page_and_the_metrics_report_dead_letters_and_stopped_tables(
    database: MakeDatabase, tmp_path: Path
) -> None:
    why = "table Singers is stopped: its key changed"
    with reading(configuration(tmp_path, database())) as daemon:
        found = re.search(r"url=(http://[0-9.]+:\d+)/", daemon.said)
        assert found is not None
        write_report(Spool.at(tmp_path / "spool"), "bigquery", NOTHING.after(1, 7, {"Singers": why}))
        daemon.until(
            lambda: json.loads(fetched(f"{found[1]}/api/status"))["sink"]["dead_letters"] == 7,
            "the dead letters are reported",
        )
        assert json.loads(fetched(f"{found[1]}/api/status"))["sink"]["stopped_tables"] == {"Singers": why}
        metrics = fetched(f"{found[1]}/metrics").decode()
        assert "spanner_cdc_dead_letters_total 7.0" in metrics
        assert "spanner_cdc_stopped_tables 1.0" in metrics
        assert daemon.stop().code == 0


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_check_and_run_report_partial_updates_and_the_statement_that_helps(
    dialect: Dialect, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect, value_capture_type="OLD_AND_NEW_VALUES")
    config = configuration(tmp_path, sample, source={"end": "now"})
    found = run("check", config)
    assert found.code == 0
    said = re.search(r"warning: source\.change_stream: .* whole rows: (ALTER CHANGE STREAM .*)", found.out.decode())
    assert said is not None
    service = Background("run", config, log=tmp_path / "log")
    try:
        service.until(lambda: "INFO reading" in service.said, "the daemon reads")
    finally:
        service.process.kill()  # and its sink ends with it
        service.process.wait()
    before, _, _ = service.said.partition("INFO reading")
    assert said[1] in before.replace("\\", "")
    sample.run_ddl(said[1])
    assert "warning:" not in run("check", config).out.decode()


@pytest.mark.long
def test_check_accepts_a_valid_configuration_and_ignores_the_start_once_the_spool_has_epochs(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=33)
    start = format_rfc3339(time.time_ns())
    workload.run(mods=10)
    end = format_rfc3339(workload.committed[-1].commit_timestamp_ns)
    config = configuration(tmp_path, sample, source={"start": start, "end": end})
    assert run("check", config).code == 0
    assert run("read", config).code == 0
    # The start is used only while the spool is empty, so one that is too old by now is not an error.
    assert run("check", configuration(tmp_path, sample, source={"start": "2026-01-01T00:00:00Z"})).code == 0
