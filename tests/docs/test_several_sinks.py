"""The recipe of several sinks runs as its page shows it: files and BigQuery, out of one spool in a bucket."""

import subprocess
import time
from pathlib import Path
from signal import SIGTERM

import pytest
import yaml

from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool import consumers
from connector.spool.reading import Spool
from emulator import Scenario, ScriptedServer
from emulator.bigquery.double import BigQueryDouble
from tests.cloud_storage import CloudStorage
from tests.docs.clean import environment, shown
from tests.integration.commands import PATIENCE, until

PAGE = "docs/guide/several-sinks.md"


@pytest.mark.slow
@pytest.mark.spark
def test_one_spool_in_a_bucket_is_delivered_to_files_and_to_bigquery(
    cloud_storage: CloudStorage, bucket: str, tmp_path: Path
) -> None:
    now = time.time_ns()
    scenario = Scenario.generate(
        9, origin=now - 30 * SECOND, seconds=20, dialect="googlesql", mode="IMMUTABLE_KEY_RANGE",
        value_capture_type="NEW_ROW", schema_change=False,
    )  # fmt: skip
    with ScriptedServer.started(scenario, begins=now) as server, BigQueryDouble.started() as bigquery:
        read = {
            **{name: getattr(scenario, name) for name in ("project", "instance", "database", "change_stream")},
            "emulator_host": server.host,
            "start": format_rfc3339(scenario.history.origin),
            "end": format_rfc3339(scenario.history.horizon),
        }
        place = {"project": bigquery.project, "location": "US"}
        place |= {"endpoint": bigquery.endpoint, "grpc_endpoint": bigquery.grpc_endpoint}
        for name, text in zip(("files.yaml", "bigquery.yaml"), shown(PAGE, "yaml"), strict=True):
            node = yaml.safe_load(text.replace("gs://my-bucket", bucket))
            sink = {**node["sink"], **(place if node["sink"]["type"] == "bigquery" else {})}
            spark = {"master": "local[1]", "checkpoint": str(tmp_path / f"{name}-checkpoint")}
            whole = {**node, "source": read, "sink": sink, "spark": spark, "status": {"port": 0}}
            (tmp_path / name).write_text(yaml.safe_dump(whole))
        names = environment()
        run_files, run_bigquery = (line.partition("#")[0].split() for line in shown(PAGE, "")[0].splitlines())
        spool, log = Spool.at(f"{bucket}/spool"), tmp_path / "log"
        with log.open("wb") as out:
            first = subprocess.Popen(run_files, cwd=tmp_path, env=names, stderr=out)
            second = subprocess.Popen(run_bigquery, cwd=tmp_path, env=names, stderr=out)
        try:
            assert first.wait(timeout=PATIENCE) == 0, log.read_text()

            def is_done() -> bool:
                found = consumers.find(spool, "bigquery")
                return found is not None and found.epoch == spool.latest()

            until(lambda: is_done() or second.poll() is not None, "BigQuery", more=log.read_text)
            second.send_signal(SIGTERM)
            assert second.wait(timeout=PATIENCE) == 0, log.read_text()
        finally:
            for process in (first, second):
                process.kill()
                process.wait()
        rows = {table: len(bigquery.rows("replica", table)) for table in bigquery.tables("replica")}
    final = {(mod.table, tuple(mod.keys.values())): mod.mod_type for mod in scenario.committed}
    kept = [table for (table, _), kind in final.items() if kind != "DELETE"]
    for table in ("Singers", "Albums"):  # of others some rows are dead letters, for BigQuery cannot hold them
        assert rows[table] == kept.count(table) > 0
    assert {one.consumer for one in consumers.consumers(spool)} == {"files", "bigquery"}
    assert list(cloud_storage.names(f"{bucket}/events/"))
