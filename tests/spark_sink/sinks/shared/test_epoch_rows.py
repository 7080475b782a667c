"""With ``source.complete_rows``, updates have whole rows, read from the official emulator; in both dialects."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from connector.config.loading import load
from connector.core.timestamps import format_rfc3339
from connector.spool.reading import Spool
from emulator import Emulator, Workload
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.shared.completing.epoch_rows import EpochRows
from spark_sink.sinks.shared.completing.spanner_rows import Completion
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase, databases, running_emulator
from tests.integration.workloads import last_commit
from tests.spark_sink.sinks.bigquery.deliveries.runs import SinkRun

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def emulator() -> Iterator[Emulator]:
    yield from running_emulator()


@pytest.fixture
def database(emulator: Emulator) -> Iterator[MakeDatabase]:
    yield from databases(emulator)


def spooled(folder: Path, make: MakeDatabase, dialect: str, capture: str, **more: Any) -> tuple[Workload, Path, Spool]:
    """A workload, the configuration that completes its rows, and the spool that holds it."""
    sample = make(dialect=dialect, value_capture_type=capture)
    start = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=31)
    workload.run(mods=120)
    source = {
        "start": start,
        "end": last_commit(workload),
        "complete_rows": True,
        "tables": {"exclude": ["Readings"]},  # whose key BigQuery does not allow
    }
    config = configuration(folder, sample, source=source, **more)
    done = run("read", config)
    assert done.code == 0, done.err
    return workload, config, Spool.at(folder / "spool")


def changed(rows: EpochRows, spool: Spool) -> Iterator[dict[str, Any]]:
    """The events of a spool, whole."""
    for manifest in spool.manifests(1, spool.latest()):
        for file in manifest.files:
            for batch in rows.batches(file):
                yield from batch.to_pylist()


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose documents of JSON are parsed; the emulator's change records lack fractions of a second."""
    return {name: parsed(value) for name, value in row.items()}


def parsed(value: Any) -> Any:
    if isinstance(value, list):
        return [parsed(one) for one in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        return json.loads(value)
    return value


@pytest.mark.long(but=1)
@pytest.mark.parametrize("capture", ["OLD_AND_NEW_VALUES", "NEW_VALUES"])
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_updates_have_the_rows_that_were_committed(
    dialect: str, capture: str, database: MakeDatabase, tmp_path: Path
) -> None:
    workload, path, spool = spooled(tmp_path, database, dialect, capture)
    rows = EpochRows(spool, Completion.from_text(Completion.text_of(load(path).source, deletes=True)))
    expected = {
        (mod.commit_timestamp_ns, mod.table, json.dumps(mod.keys, sort_keys=True)): mod
        for mod in workload.committed
        if mod.mod_type == "UPDATE" and mod.table != "Readings"
    }
    found = 0
    for event in changed(rows, spool):
        metadata = event["source_metadata"]
        assert metadata["completed"] is True
        if metadata["mod_type"] != "UPDATE":
            continue
        payload = json.loads(event["payload"])
        keys = {name: payload[name] for name in metadata["primary_keys"]}
        mod = expected[int(event["sort_keys"][1]), event["object"], json.dumps(keys, sort_keys=True)]
        lacked = mod.row.keys() - mod.new_values.keys()
        assert payload.keys() >= {*mod.keys, *mod.row}
        assert plain({name: payload[name] for name in lacked}) == plain({name: mod.row[name] for name in lacked})
        if capture == "OLD_AND_NEW_VALUES":
            before = json.loads(event["before"])
            assert before.keys() == payload.keys()
            assert plain({name: before[name] for name in lacked}) == plain({name: mod.row[name] for name in lacked})
        found += 1
    assert found == len(expected) > 10
    assert not rows.incomplete


@pytest.mark.parametrize(("dialect", "capture"), [("googlesql", "NEW_ROW"), ("postgresql", "NEW_VALUES")])
def test_deletes_have_the_rows_that_were_removed(
    dialect: str, capture: str, database: MakeDatabase, tmp_path: Path
) -> None:
    workload, path, spool = spooled(tmp_path, database, dialect, capture)
    rows = EpochRows(spool, Completion.from_text(Completion.text_of(load(path).source, deletes=True)))
    last: dict[tuple[str, str], Mapping[str, Any]] = {}
    expected = []
    for mod in workload.committed:
        key = mod.table, json.dumps(mod.keys, sort_keys=True)
        if mod.mod_type == "DELETE" and mod.table != "Readings":
            expected.append((mod.table, plain({**mod.keys, **last[key]})))
        last[key] = mod.row
    found = [
        (event["object"], plain(json.loads(event["payload"])))
        for event in changed(rows, spool)
        if event["source_metadata"]["mod_type"] == "DELETE" and event["source_metadata"]["completed"]
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert len(found) > 5
    assert not rows.incomplete


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_change_stream_that_captures_only_changes_is_merged_by_change_data_capture(
    dialect: str, database: MakeDatabase, tmp_path: Path, bigquery_double: BigQueryDouble
) -> None:
    sink = {
        "type": "bigquery",
        "mode": "merge",
        "dataset": "ds",
        "project": bigquery_double.project,
        "endpoint": bigquery_double.endpoint,
        "grpc_endpoint": bigquery_double.grpc_endpoint,
        "location": "US",
        "arrays": "json",
        "dead_letters": str(tmp_path / "dead-letters"),
    }
    workload, path, _spool = spooled(tmp_path, database, dialect, "OLD_AND_NEW_VALUES", sink=sink)
    with SinkRun(load(path)) as run_of_sink:
        run_of_sink.only_what_is_sealed()
        run_of_sink.run()
    assert not (tmp_path / "dead-letters").exists()
    left: dict[str, dict[str, Mapping[str, Any]]] = {}
    for mod in workload.committed:
        if mod.table == "Readings":
            continue
        rows = left.setdefault(mod.table, {})
        rows.pop(json.dumps(mod.keys), None)
        if mod.mod_type != "DELETE":
            rows[json.dumps(mod.keys)] = mod.row
    for table, rows in left.items():
        found = bigquery_double.rows("ds", table.replace(".", "_"))
        assert len(found) == len(rows), table
        for name in {name for row in rows.values() for name in row}:
            nulls = sum(row[name] is None for row in rows.values())
            assert sum(row[name] is None for row in found) == nulls, f"{table}.{name}"


def test_a_column_and_a_table_that_were_dropped_since_are_in_the_rows_before(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(value_capture_type="NEW_VALUES")
    generated = "G STRING(MAX) AS (CONCAT(A, B)) STORED"
    sample.run_ddl(
        "CREATE TABLE Singles (Id INT64, A STRING(MAX), B STRING(MAX)) PRIMARY KEY (Id)",
        f"CREATE TABLE Albums2 (Id INT64, A STRING(MAX), B STRING(MAX), C STRING(MAX), {generated}) PRIMARY KEY (Id)",
    )
    start = format_rfc3339(time.time_ns())
    names = ["Id", "A", "B", "C"]
    for table, columns in (("Singles", names[:3]), ("Albums2", names)):
        with sample.database.batch() as batch:
            batch.insert(table, columns, [[key, *columns[1:]] for key in (1, 2)])
        with sample.database.batch() as batch:
            batch.update(table, ["Id", "A"], [[1, "changed"]])
    sample.run_ddl("DROP TABLE Singles", "ALTER TABLE Albums2 DROP COLUMN C")
    with sample.database.batch() as batch:
        batch.update("Albums2", ["Id", "A"], [[2, "later"]])
    end = format_rfc3339(batch.committed.timestamp_pb().ToNanoseconds())
    config = configuration(tmp_path, sample, source={"start": start, "end": end, "complete_rows": True})
    assert run("read", config).code == 0
    spool = Spool.at(tmp_path / "spool")
    rows = EpochRows(spool, Completion.from_text(Completion.text_of(load(config).source, deletes=True)))
    found = [
        (event["object"], json.loads(event["payload"]), event["source_metadata"]["completed"])
        for event in changed(rows, spool)
        if event["source_metadata"]["mod_type"] == "UPDATE"
    ]
    assert sorted(found, key=str) == [
        ("Albums2", {"Id": "1", "A": "changed", "B": "B", "C": "C"}, True),
        ("Albums2", {"Id": "2", "A": "later", "B": "B"}, True),
        ("Singles", {"Id": "1", "A": "changed", "B": "B"}, True),
    ]
