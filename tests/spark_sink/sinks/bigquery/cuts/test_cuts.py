"""A cut is a row of the table ``_cuts``, one for each epoch, which says how the tables are read as of it."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from connector.config import validated
from connector.config.sink_start import keep_start
from connector.config.sinks import WatchedStream, sink_type
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import ConfigurationError
from connector.spool import consumers
from emulator.bigquery.double import BigQueryDouble
from spark_sink.sinks.bigquery.cuts.store import BigQueryCuts
from spark_sink.sinks.bigquery.cuts.table import CutRow, bound_of, cuts_table
from spark_sink.sinks.bigquery.tables.table import BigQueryTableOptions, BigQueryTarget
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from tests.connector.builders import column
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.cuts.cut_runs import CutScenario, deliver
from tests.spark_sink.sinks.bigquery.deliveries.runs import SOURCE, Checkpoint
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, MakeScenario, Scenario, Sealing, killed_at
from tests.spark_sink.spools import KEY, NAME, START, record

CUT = PublishedCut(
    timestamp=START + 1,
    epoch=3,
    spool_id="id",
    published_at=START + SECOND,
    tables={"A": TableAtCut(), "B": TableAtCut(incomplete="it's stopped:\n'why'")},
)


def rows(scenario: Scenario, name: str = "_cuts") -> list[dict[str, Any]]:
    """The published rows, as they were added."""
    return scenario.query(f"SELECT * FROM `{{}}.{name}` ORDER BY epoch, published_at")


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("mode", "read_by"),
    [
        ("append-only", "datastream_metadata.change_sequence_number <= bound"),
        ("changelog", "_metadata_spanner_commit_timestamp <= commit_timestamp"),
    ],
)
def test_a_cut_of_appended_tables_has_a_bound_of_the_change_sequence_number(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, mode: str, read_by: str
) -> None:
    scenario = make_scenario(local_bigquery, mode)
    scenario.maker.seal(record(START + SECOND, [1]), record(START + SECOND, [1], table="Albums"))
    deliver(scenario)
    (row,) = rows(scenario)
    assert row["timestamp"] == "2026-03-01T10:00:01.000000Z"
    assert format_rfc3339(int(row["commit_timestamp"].timestamp()) * SECOND) == row["timestamp"]
    assert (row["epoch"], row["sink"], row["spool_id"]) == (1, "bigquery", scenario.maker.spool_id)
    assert row["bound"] == f"{START + SECOND:016X}/FFFFFFFFFFFFFFFF/FFFFFFFFFFFFFFFF"
    assert (row["read_by"], row["as_of"]) == (read_by, None)
    suffix = "_changelog" if mode == "changelog" else ""
    assert row["tables"] == [
        {"table": name, "name": f"{scenario.dataset}.{name}{suffix}", "incomplete": ""}
        for name in ("Albums", "Singers")
    ]


def test_the_bound_is_above_all_changes_of_its_time_and_below_later_ones() -> None:
    assert f"{START:016X}/{2**63:016X}/{99:016X}" <= bound_of(START) < f"{START + 1:016X}/{0:016X}/{0:016X}"


def test_a_merged_tables_cut_is_a_time_of_bigquerys_clock_and_there_once_though_the_sink_is_killed(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load", prefix="p_")
    scenario.maker.seal(record(START + SECOND, [1]))
    with killed_at(BigQueryCuts, "publish", after=True), pytest.raises(KilledError):
        deliver(scenario)
    deliver(scenario)
    (row,) = rows(scenario, "p__cuts")
    assert (row["epoch"], row["read_by"], row["bound"]) == (1, "FOR SYSTEM_TIME AS OF as_of", None)
    (now,) = scenario.query("SELECT CURRENT_TIMESTAMP() AS at")
    assert row["as_of"] < now["at"]
    assert row["tables"] == [{"table": "Singers", "name": f"{scenario.dataset}.p_Singers", "incomplete": ""}]


def test_a_cut_of_changes_that_bigquery_merges_says_that_it_cannot_be_pinned(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "merge")
    scenario.maker.seal(record(START + SECOND, [1]))
    deliver(scenario)
    (row,) = bigquery_double.rows(scenario.dataset, "_cuts")
    assert (row["epoch"], row["bound"], row["as_of"]) == (1, None, None)
    assert row["read_by"].startswith("cannot be pinned")
    assert row["timestamp"] == "2026-03-01T10:00:01.000000Z"


@pytest.mark.long
def test_a_table_that_has_no_rows_yet_has_no_name_and_no_version(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario, tmp_path: Path
) -> None:
    run = CutScenario(local_bigquery, tmp_path, "append-only", 0)
    run.deliver()
    spool = run.scenario.maker.spool
    store = BigQueryCuts(spool, target(local_bigquery), options(run.scenario.dataset), sink="bigquery")
    store.publish(CUT.model_copy(update={"spool_id": spool.header().spool_id}))
    first, second = run.published()
    assert {table.version for table in first.tables.values()} == {bound_of(first.timestamp)}
    assert second.timestamp == START + 1
    assert second.tables == {"A": TableAtCut(), "B": CUT.tables["B"]}


def target(server: LocalBigQuery) -> BigQueryTarget:
    return BigQueryTarget(server.project, server.endpoint, server.grpc_endpoint)


def options(dataset: str) -> BigQueryTableOptions:
    return BigQueryTableOptions(dataset, "append-only")


@pytest.mark.long
def test_of_an_epoch_that_was_published_twice_the_later_row_counts(
    local_bigquery: LocalBigQuery, tmp_path: Path
) -> None:
    run = CutScenario(local_bigquery, tmp_path, "append-only", 0)
    run.deliver()
    spool = run.scenario.maker.spool
    (cut,) = run.published()
    store = BigQueryCuts(spool, target(local_bigquery), options(run.scenario.dataset), sink="bigquery")
    why = {**cut.tables, "Savings": TableAtCut(incomplete="later")}
    store.publish(cut.model_copy(update={"published_at": cut.published_at + SECOND, "tables": why}))
    assert [one.incomplete for one in run.published()] == [{"Savings": "later"}]


def test_before_there_is_a_table_no_cut_is_listed(local_bigquery: LocalBigQuery, tmp_path: Path) -> None:
    assert CutScenario(local_bigquery, tmp_path, "append-only", 0).published() == []


@pytest.mark.long
def test_reasons_with_quotes_are_inserted_as_they_are(local_bigquery: LocalBigQuery, tmp_path: Path) -> None:
    run = CutScenario(local_bigquery, tmp_path, "merge-load", 0)
    run.deliver()
    name = f"local.{run.scenario.dataset}._cuts"
    run.scenario.query(CutRow(CUT, "s", "merge-load", {}).insert_statement(name))
    *_, row = rows(run.scenario)
    assert row["tables"][1] == {"table": "B", "name": "", "incomplete": "it's stopped:\n'why'"}


def test_the_statement_that_notes_bigquerys_clock_is_one_insert() -> None:
    row = CutRow(CUT, "s", "merge-load", {"A": "d.A"})
    assert row.insert_statement("p.d._cuts") == (
        "INSERT INTO `p.d._cuts` (`timestamp`, `commit_timestamp`, `epoch`, `spool_id`, `sink`, `published_at`,"
        " `read_by`, `bound`, `as_of`, `tables`) VALUES ('2026-03-01T10:00:00.000000001Z',"
        " TIMESTAMP_MICROS(1772359200000000), 3, 'id', 's', TIMESTAMP_MICROS(1772359201000000),"
        " 'FOR SYSTEM_TIME AS OF as_of', NULL, CURRENT_TIMESTAMP(),"
        " ARRAY<STRUCT<`table` STRING, `name` STRING, `incomplete` STRING>>[('A', 'd.A', ''),"
        " ('B', '', 'it\\'s stopped:\\n\\'why\\'')])"
    )
    assert row.job_id("p.d._cuts") == row.job_id("p.d._cuts") != row.job_id("p.e._cuts")


@pytest.mark.long
def test_a_sink_that_is_forgotten_adds_the_rows_of_its_cuts_to_a_new_table(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load")
    scenario.maker.seal(record(START + SECOND, [1]))
    spool = scenario.maker.spool
    for _ in range(2):
        keep_start(spool, "bigquery", "oldest", by_minute=False, now=START)
        deliver(scenario)
        assert [row["epoch"] for row in rows(scenario)] == [1]
        consumers.forget(spool, "bigquery")
        scenario.checkpoint = Checkpoint([])
        scenario.query("DROP TABLE `{}._cuts`")
        scenario.query("DROP TABLE `{}.Singers`")


def test_with_a_dataset_for_each_schema_the_cuts_are_in_the_default_schemas() -> None:
    made = cuts_table(BigQueryTableOptions("replica_{schema}", default_schema="my-db", prefix="p_"))
    assert (made.dataset, made.name) == ("replica_my_db", "p__cuts")


# Views


def test_a_view_has_the_newest_row_of_each_key_as_of_the_newest_cut(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    for mode in ("append-only", "changelog"):
        scenario = make_scenario(local_bigquery, mode, views=True)
        seal = Sealing(scenario)
        seal([1, 2, 3])
        seal([1], mod_type="DELETE")
        seal([2], mod_type="UPDATE", values={"Name": "changed"})
        deliver(scenario)
        suffix = "_changelog" if mode == "changelog" else ""
        view = f"SELECT Id, Name FROM `{{}}.Singers{suffix}_at_cut` ORDER BY Id"
        expected = [{"Id": 2, "Name": "changed"}, {"Id": 3, "Name": "n"}]
        assert scenario.query(view) == expected
        seal([4])
        with killed_at(BigQueryCuts, "publish"), pytest.raises(KilledError):
            deliver(scenario)
        assert len(scenario.rows("Singers")) == 6
        assert scenario.query(view) == expected, "the cut that has it is not published"
        deliver(scenario)
        assert len(scenario.query(view)) == 3


@pytest.mark.long
def test_a_view_gets_the_columns_that_its_table_gets(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "append-only", views=True)
    scenario.maker.seal(record(START + SECOND, [1]))
    deliver(scenario)
    wider = (KEY, NAME, column("Born", "DATE", 3))
    values: dict[str, object] = {"Name": "n", "Born": "2000-01-01"}
    scenario.maker.seal(record(START + 2 * SECOND, [2], columns=wider, values=values))
    deliver(scenario)
    (found,) = scenario.query("SELECT * EXCEPT (datastream_metadata) FROM `{}.Singers_at_cut` WHERE Id = 2")
    assert {**found, "Born": str(found["Born"])} == {"Id": 2, "Name": "n", "Born": "2000-01-01"}


@pytest.mark.long
def test_a_table_whose_record_knows_no_schema_holds_up_no_cut_and_has_a_view_from_its_next_change_on(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "append-only")
    seal = Sealing(scenario)
    seal([1], "Singers", "Other")
    deliver(scenario)
    path = Path(scenario.maker.path, "consumers", "bigquery.tables")
    document = orjson.loads(path.read_bytes())
    for table in document["tables"].values():
        del table["schema_key"]
    path.write_bytes(orjson.dumps(document))
    scenario.options["views"] = True
    seal([2], "Other")
    deliver(scenario)
    assert [row["epoch"] for row in rows(scenario)] == [1, 2]
    assert len(scenario.query("SELECT Id FROM `{}.Other_at_cut`")) == 2
    seal([2])
    deliver(scenario)
    assert len(scenario.query("SELECT Id FROM `{}.Singers_at_cut`")) == 2


@pytest.mark.parametrize("mode", ["merge", "merge-load"])
def test_views_of_merged_tables_are_refused_with_the_reason(mode: str) -> None:
    sink = {"type": "bigquery", "dataset": "d", "mode": mode, "views": True}
    with pytest.raises(ConfigurationError, match="by a constant time only: take mode append-only"):
        validated({"source": SOURCE, "sink": sink})


def test_views_need_whole_rows_and_names_of_their_own() -> None:
    config = validated(
        {"source": SOURCE, "sink": {"type": "bigquery", "dataset": "d", "mode": "append-only", "views": True}}
    )
    kind = sink_type("bigquery")
    assert kind.stream_decides(config.sink)
    tables = tuple(TableSchema.of(name, [column("Id", "INT64", 1, key=True)]) for name in ("A", "A_at_cut"))
    partial = WatchedStream("Everything", "NEW_VALUES", "googlesql", "", tables)
    rows_error, name_error = kind.stream_errors(config.sink, partial)
    assert rows_error.startswith("sink.views: views need whole rows, and change stream Everything captures NEW_VALUES")
    assert name_error.startswith(
        "sink.views: the view of table A would be d.A_at_cut in BigQuery, as table A_at_cut is"
    )
    whole = WatchedStream("Everything", "NEW_ROW", "googlesql", "", tables[:1])
    assert kind.stream_errors(config.sink, whole) == []
