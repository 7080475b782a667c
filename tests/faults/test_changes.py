"""A change stream is dropped or altered, or watches more tables and columns, while it is read."""

import json
import time
from pathlib import Path

import pytest

from connector.core.timestamps import format_rfc3339, parse
from connector.spool.reading import Spool
from emulator import SampleDatabase, Workload
from tests.integration.commands import Background, configuration, manifests, reading, watermark
from tests.integration.contract import Event
from tests.integration.delivered import assert_delivered, assert_sound, in_spanners_encoding, of_rows, returned
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator


def delivered(folder: Path) -> list[Event]:
    return assert_sound(folder / "spool", manifests(folder / "spool"))


def await_sealed(daemon: Background, folder: Path, count: int) -> None:
    daemon.until(lambda: sum(manifest.rows for manifest in manifests(folder / "spool")) >= count, f"{count} rows")


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_a_dropped_stream_ends_the_daemon_in_one_line_and_earlier_commits_are_sealed(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=71)
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    mark = "`" if dialect == "googlesql" else '"'
    with reading(config) as daemon:
        workload.run(mods=30)
        last = workload.committed[-1].commit_timestamp_ns
        daemon.until(lambda: watermark(tmp_path / "spool") >= last, "all sealed")
        sample.run_ddl(f"DROP CHANGE STREAM {mark}{sample.change_stream}{mark}")
        done = daemon.wait()
    assert done.code == 4
    assert "the change stream is gone" in done.complaint
    assert "What was sealed is kept" in done.complaint
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


def test_an_altered_stream_is_read_with_the_value_capture_type_of_each_record(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(value_capture_type="NEW_ROW")
    workload = Workload(sample, seed=72)
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    with reading(config) as daemon:
        workload.run(mods=30)
        before = len(workload.committed)
        sample.run_ddl("ALTER CHANGE STREAM Everything SET OPTIONS (value_capture_type = 'OLD_AND_NEW_VALUES')")
        workload.run(mods=30)
        last = workload.committed[-1].commit_timestamp_ns
        daemon.until(lambda: watermark(tmp_path / "spool") >= last, "all sealed")
        assert daemon.stop().code == 0
    rows = delivered(tmp_path)
    mods = workload.committed
    left = returned(sample, mods, (parse(row["source_metadata"]["commit_timestamp"]) for row in rows))
    before -= sum(mod not in left for mod in mods[:before])
    mods = left
    expected = in_spanners_encoding(mods[:before], "NEW_ROW") + in_spanners_encoding(
        mods[before:], "OLD_AND_NEW_VALUES"
    )
    assert of_rows(rows) == expected
    captures = [row["source_metadata"]["value_capture_type"] for row in rows]
    assert captures == ["NEW_ROW"] * before + ["OLD_AND_NEW_VALUES"] * (len(mods) - before)


def insert(sample: SampleDatabase, table: str, **row: object) -> None:
    with sample.database.batch() as batch:
        batch.insert(table, list(row), [list(row.values())])


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_columns_and_tables_that_are_added_while_the_daemon_reads_have_their_schemas(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    config = configuration(tmp_path, sample, source={"start": format_rfc3339(time.time_ns())})
    added, created = (
        ("ALTER TABLE Singers ADD COLUMN Extra JSON", "CREATE TABLE Later (Id INT64 NOT NULL) PRIMARY KEY (Id)")
        if dialect == "googlesql"
        else ('ALTER TABLE "Singers" ADD COLUMN "Extra" jsonb', 'CREATE TABLE "Later" ("Id" bigint PRIMARY KEY)')
    )
    with reading(config) as daemon:
        insert(sample, "Singers", SingerId="1", FirstName="a")
        insert(sample, "Order", Group="g", Line="1")
        sample.run_ddl(added, created)
        insert(sample, "Singers", SingerId="2", Extra='{"b":1}')
        insert(sample, "Later", Id="1")
        insert(sample, "Order", Group="g", Line="2")
        await_sealed(daemon, tmp_path, 5)
        assert daemon.stop().code == 0
    rows = delivered(tmp_path)
    keys = {(row["object"], index): row["schema_key"] for index, row in enumerate(rows)}
    assert keys["Singers", 0] != keys["Singers", 2]
    assert keys["Order", 1] == keys["Order", 4]
    schema = json.loads((tmp_path / "spool" / "schemas" / f"{keys['Singers', 2]}.json").read_text())
    assert "Extra" in {column["name"] for column in schema["columns"]}
    assert schema["primary_keys"] == ["SingerId"]
    assert json.loads(json.loads(rows[2]["payload"])["Extra"]) == {"b": 1}
    later = Spool.at(tmp_path / "spool").schema(keys["Later", 3])
    assert (later.table, later.primary_keys) == ("Later", ("Id",))
