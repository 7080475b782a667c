"""The sink as a service runs it, between two databases."""

import time
from pathlib import Path

import pytest
from google.cloud.spanner_v1 import COMMIT_TIMESTAMP

from connector.config.destination import check_kept
from connector.config.loading import validated
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError
from emulator import SampleDatabase, Workload
from spark_sink.sinks.spanner.writing.progress import DDL as PROGRESS
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.campaign.bank import DDL
from tests.spark_sink.sinks.spanner.campaign.campaign import Campaign
from tests.spark_sink.sinks.spanner.samples import SPARK, empty, rows_of


def config_of(folder: Path, source: SampleDatabase, start: str, end: str | None, **sink: object) -> Path:
    bounds = {"start": start, **({"end": end} if end else {})}
    spark = {**SPARK, "checkpoint": str(folder / "checkpoint")}
    sink = {"type": "spanner", "dead_letters": str(folder / "dead"), **sink}
    return configuration(folder, source, source=bounds, spark=spark, sink=sink)


@pytest.mark.long(but=1)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("dialect", "mode"), [("googlesql", "transactions"), pytest.param("postgresql", "rows", marks=pytest.mark.slow)]
)
def test_tables_are_created_and_equal_those_of_the_source(
    database: MakeDatabase, dialect: str, mode: str, tmp_path: Path
) -> None:
    """All types of columns, interleaved tables, inserts, updates and deletes; the destination begins empty.

    The tests of a backfill do the same in the other mode of each dialect.
    """
    source = database(dialect=dialect, value_capture_type="NEW_ROW" if mode == "rows" else "OLD_AND_NEW_VALUES")
    replica = database(dialect=dialect)
    empty(replica)
    start = format_rfc3339(time.time_ns())
    workload = Workload(source, seed=3, average_size=8)
    workload.run(mods=250)
    end = format_rfc3339(workload.committed[-1].commit_timestamp_ns)
    config = config_of(tmp_path, source, start, end, database=replica.database_id, mode=mode, create_tables=True)
    done = run("run", config)
    assert done.code == 0, done.err
    assert not (tmp_path / "dead").exists()
    assert rows_of(replica) == rows_of(source)
    assert "created " in done.err


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("mode", [pytest.param("rows", marks=pytest.mark.slow), "transactions"])
def test_the_bank_is_the_same_though_processes_are_killed_and_answers_are_lost(
    database: MakeDatabase, tmp_path: Path, mode: str
) -> None:
    campaign = Campaign(database(), database(), tmp_path, mode, seed=11, accounts=30)
    assert campaign.run(kills=1, mods=300) == ""


@pytest.mark.long(but=4)
@pytest.mark.parametrize(
    ("sink", "source", "said"),
    [
        ({"database": ""}, {}, "sink.database"),
        ({"database": "d", "mode": "fast"}, {}, "sink.mode"),
        ({"database": "d", "columns": {"Name": "name"}}, {}, "sink.columns: 'Name' is not table.column"),
        ({"database": "d", "tables": {"A": "C", "B": "C"}}, {}, "sink.tables: several tables would be C"),
        ({"database": "d", "transaction_tag": ""}, {}, "sink.transaction_tag: '' is not a valid tag"),
        ({"database": "no-such-database"}, {}, "sink.database: database not found"),
        ({"database": "no-such-database"}, {}, "Check sink.project, sink.instance and sink.database"),
        ({"database": "sample"}, {"complete_rows": True}, "source.complete_rows: sink spanner needs no whole rows"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_before_anything_starts(
    database: MakeDatabase, tmp_path: Path, sink: dict[str, object], source: dict[str, object], said: str
) -> None:
    sample = database()
    config = configuration(tmp_path, sample, source=source, spark=dict(SPARK), sink={"type": "spanner", **sink})
    done = run("check", config)
    assert done.code == 2, done.err
    assert said in done.err + done.out.decode()


def test_check_names_the_source_itself_and_each_table_and_column_that_is_missing(
    database: MakeDatabase, tmp_path: Path
) -> None:
    source, replica = database(), database()
    source.run_ddl(*DDL["googlesql"], "CREATE TABLE Both (Id INT64, Name STRING(MAX)) PRIMARY KEY (Id)")
    replica.run_ddl("CREATE TABLE Both (Id INT64) PRIMARY KEY (Id)")
    same = run("check", config_of(tmp_path, source, "now", None, database=source.database_id))
    assert same.code != 0
    assert "is the source itself" in same.err + same.out.decode()
    done = run("check", config_of(tmp_path, source, "now", None, database=replica.database_id))
    assert done.code != 0
    text = done.err + done.out.decode()
    assert "the destination has no table Accounts" in text
    assert "table Both of the destination has no column Name" in text


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "command", [("run",), ("run", "--sink-only"), ("backfill",), ("verify", "--repair")], ids=" ".join
)
def test_no_command_writes_into_the_source_itself(
    database: MakeDatabase, tmp_path: Path, command: tuple[str, ...]
) -> None:
    source = database()
    done = run(command[0], config_of(tmp_path, source, "now", None, database=source.database_id), *command[1:])
    assert done.code == 2, done.err
    assert "is the source itself: name another database" in done.err
    assert not (tmp_path / "spool").exists()


def test_what_every_delivery_and_replay_asks_first_refuses_the_source_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    source = {"project": "p", "instance": "prod", "database": "orders", "change_stream": "E"}

    def asked(**sink: object) -> None:
        sink = {"type": "spanner", "database": "orders", **sink}
        check_kept(validated({"source": source, "spool": {"path": str(tmp_path / "spool")}, "sink": sink}))

    for same in ({"instance": ""}, {"instance": "prod"}, {"endpoint": "regional.test:443"}):
        with pytest.raises(ConfigurationError, match="databases/orders is the source itself"):
            asked(**same)
    asked(instance="copy")
    asked(emulator_host="localhost:9010")


@pytest.mark.long
def test_the_bookkeeping_table_of_a_source_that_is_a_destination_itself_is_neither_missed_nor_compared(
    database: MakeDatabase, tmp_path: Path
) -> None:
    source, replica = database(), database()
    source.run_ddl(PROGRESS["googlesql"])
    config = config_of(tmp_path, source, "now", None, database=replica.database_id)
    checked = run("check", config)
    assert "spanner_cdc_progress" not in checked.err + checked.out.decode()
    replica.run_ddl(PROGRESS["googlesql"])
    with source.database.batch() as batch:
        row = ("a", "b", 1, 0, COMMIT_TIMESTAMP)
        batch.insert("spanner_cdc_progress", ("sink", "owner", "epoch", "events", "updated"), [row])
    against = f"projects/{replica.project}/instances/{replica.instance}/databases/{replica.database_id}"
    compared = run("verify", config, "--against", against)
    assert compared.code == 0, compared.err + compared.out.decode()
    assert "spanner_cdc_progress" not in compared.err + compared.out.decode()
