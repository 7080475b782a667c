"""The BigQuery sink when drivers come late, checkpoints are lost, jobs fail, and options change in between."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from google.api_core import exceptions

from connector.config import Config, SpoolConfig
from connector.core.records import ColumnType, DataChangeRecord
from connector.core.timestamps import SECOND
from connector.errors import TRANSIENT, SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.consumers import find
from connector.spool.storage.local import LocalStore
from emulator.bigquery.double import BigQueryDouble
from spark_sink.dead_letters_command import replayed
from spark_sink.errors import AlteredTableError, SinkError
from spark_sink.failures import code_of
from spark_sink.sinks.bigquery.client import BigQueryClient, reason_of
from spark_sink.sinks.bigquery.commit_log import KEPT, CommitLog
from spark_sink.sinks.bigquery.replay import replay_into
from spark_sink.sinks.bigquery.tables.table import BigQueryTarget
from spark_sink.sinks.shared.dead_letters import DeadLetters
from spark_sink.sources.changes.read_limits import ReadMaxFiles
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.bigquery.deliveries.runs import Checkpoint, SinkRun, configured
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import KilledError, MakeScenario, ids_of, killed_at
from tests.spark_sink.spools import KEY, NAME, START, SpoolMaker, record

TEXT, NUMBER = (ColumnType("V", f'{{"code":"{code}"}}', False, 2) for code in ("STRING", "INT64"))


@pytest.fixture
def double() -> Iterator[BigQueryDouble]:
    with BigQueryDouble.started() as server:
        yield server


@pytest.fixture
def spool(tmp_path: Path) -> SpoolMaker:
    return SpoolMaker(tmp_path / "spool")


def config(double: BigQueryDouble, spool: SpoolMaker, **options: object) -> Config:
    sink: dict[str, object] = {"dataset": "ds", "mode": "append-only", "location": "US", "project": double.project}
    return configured(
        spool.path, **sink | {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint} | options
    )


def run(config: Config, checkpoint: Checkpoint) -> list[str]:
    with SinkRun(config, checkpoint) as sink:
        sink.only_what_is_sealed()
        return sink.run()


def interrupted(config: Config, checkpoint: Checkpoint, *, committed: bool) -> None:
    """A run that is killed after its tasks, or after the driver's work, before Spark records it."""
    with SinkRun(config, checkpoint) as sink:
        sink.only_what_is_sealed()
        assert sink.plan()
        reports = [row for task in sink.tasks() for row in sink.reports(task)]
        if committed:
            sink.deliver(reports)


def ids(double: BigQueryDouble, dataset: str = "ds") -> list[int]:
    return sorted(row["Id"] for row in double.rows(dataset, "Singers"))


def dead_letters(spool: SpoolMaker) -> DeadLetters:
    return DeadLetters(f"{spool.path}-letters/bigquery")


def replay(config: Config, spool: SpoolMaker) -> tuple[int, int]:
    """The numbers of dead letters that were written, and that were rejected again."""
    store = dead_letters(spool)
    with replay_into(config) as into:
        done = replayed(store, store.files(), into, [])
    return done.sent, done.rejected


def retyped(double: BigQueryDouble, kind: str) -> None:
    """Somebody drops column V of the table, and adds it again with another type."""
    double.retype("ds", "Singers", "V", kind)


# Drivers and checkpoints


def test_a_driver_that_wakes_up_after_another_has_delivered_its_micro_batch_commits_nothing(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    spool.seal(record(START + SECOND, [1, 2]))
    one, checkpoint = config(double, spool), Checkpoint([])
    with SinkRun(one, checkpoint) as late:
        late.only_what_is_sealed()
        late.plan()
        reports = [row for task in late.tasks() for row in late.reports(task)]
    run(one, checkpoint)
    spool.seal(record(START + 2 * SECOND, [3]))
    run(one, checkpoint)
    late.deliver(reports)  # finds what the other has entered
    assert ids(double) == [1, 2, 3]


def test_a_driver_that_wakes_up_when_its_entry_is_long_gone_gets_an_error(spool: SpoolMaker) -> None:
    commit_log = CommitLog(spool.spool)
    spool.fill(3)
    consumers.record(spool.spool, "bigquery", 2, now=START)
    with pytest.raises(SpoolInUseError, match="another sink has delivered the epochs from 2 on"):
        commit_log.enter(2, "Singers", ("stream",))
    assert commit_log.enter(3, "Singers", ("stream",)).streams == ("stream",)


def test_entries_are_kept_for_a_while_after_their_micro_batch_is_done(spool: SpoolMaker) -> None:
    commit_log = CommitLog(spool.spool)
    for first in (1, 2, 3):
        commit_log.enter(first, "Singers", (f"stream{first}",))
    consumers.record(spool.spool, "bigquery", KEPT + 2, now=START)
    commit_log.forget()
    assert [commit_log.find(first, "Singers") is not None for first in (1, 2, 3)] == [False, True, True]


def test_a_checkpoint_that_is_lost_before_progress_was_recorded_repeats_nothing(
    double: BigQueryDouble, spool: SpoolMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStore, "rewrite_interval", 1.0)  # as a bucket's
    one = config(double, spool)
    for number in range(1, 4):
        spool.seal(record(START + number * SECOND, [number]))
    with SinkRun(one, Checkpoint([])) as sink:
        sink.only_what_is_sealed()
        for _ in range(2):
            assert sink.plan(ReadMaxFiles(1))
            sink.deliver([row for task in sink.tasks() for row in sink.reports(task)])
            sink.checkpoint.done = True
    consumer = find(spool.spool, "bigquery")
    assert consumer is not None
    assert consumer.epoch < 2, "else this shows nothing"
    monkeypatch.setattr(LocalStore, "rewrite_interval", 0.0)
    run(one, Checkpoint([]))
    assert ids(double) == [1, 2, 3]


def test_a_micro_batch_that_is_committed_in_part_is_done_with_the_options_that_it_was_started_with(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    spool.seal(record(START + SECOND, [1]), record(START + 2 * SECOND, [2], table="Albums"))
    checkpoint = Checkpoint([])
    with SinkRun(config(double, spool), checkpoint) as sink:
        sink.only_what_is_sealed()
        sink.plan()
        reports = [row for task in sink.tasks() for row in sink.reports(task)]
        sink.deliver([row for row in reports if row.table == "Singers"])
    run(config(double, spool, project="other", dataset="other"), checkpoint)
    assert ids(double) == [1]
    assert [row["Id"] for row in double.rows("ds", "Albums")] == [2]
    assert double.datasets() == ["ds"]


def test_a_table_that_was_made_in_another_mode_is_rejected_with_what_to_change(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    spool.seal(record(START + SECOND, [1]))
    checkpoint = Checkpoint([])
    run(config(double, spool, mode="merge"), checkpoint)
    spool.seal(record(START + 2 * SECOND, [2]))
    with pytest.raises(SinkError, match=r"Singers was made for mode merge") as caught:
        run(config(double, spool), checkpoint)
    assert "sink.dataset or sink.prefix" in str(caught.value)
    run(config(double, spool, dataset="log"), checkpoint)
    assert ids(double, "log") == [2]


# A table that is altered while it is written


@pytest.mark.parametrize("mode", ["append-only", "merge"])
def test_a_table_that_is_altered_while_it_is_written_is_stopped_once_the_sink_has_started_again(
    double: BigQueryDouble, spool: SpoolMaker, mode: str
) -> None:
    one, checkpoint = config(double, spool, mode=mode), Checkpoint([])
    spool.seal(record(START + SECOND, [1], columns=(KEY, TEXT), values={"V": "a"}))
    run(one, checkpoint)
    changed = record(START + 2 * SECOND, [2], columns=(KEY, TEXT), values={"V": "b"})
    spool.seal(changed, record(START + 2 * SECOND, [2], columns=(KEY, TEXT), values={"V": "b"}, table="Albums"))
    with SinkRun(one, checkpoint) as sink:
        sink.only_what_is_sealed()
        assert sink.plan()
        tasks = sink.tasks()
        retyped(double, "INT64")
        with pytest.raises(AlteredTableError, match=r"ds\.Singers of BigQuery was altered") as raised:
            _ = [row for task in tasks for row in sink.reports(task)]
    assert code_of(raised.value) == TRANSIENT
    run(one, checkpoint)
    assert ids(double) == [1]
    assert [row["Id"] for row in double.rows("ds", "Albums")] == [2]
    assert [file.table for file in dead_letters(spool).files()] == ["Singers"]


# A stream that is altered while it is merged


def captured(at: int, how: str, mod_type: str) -> DataChangeRecord:
    return replace(record(at, [1], mod_type=mod_type, columns=(KEY, NAME)), value_capture_type=how)


def test_a_stream_altered_to_capture_changes_only_can_continue_in_another_mode(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    merging, checkpoint = config(double, spool, mode="merge"), Checkpoint([])
    spool.seal(captured(START + SECOND, "NEW_ROW", "INSERT"))
    run(merging, checkpoint)
    spool.seal(captured(START + 2 * SECOND, "NEW_VALUES", "UPDATE"))
    for _ in range(2):
        with pytest.raises(SinkError, match=r"ALTER CHANGE STREAM Everything SET OPTIONS"):
            run(merging, checkpoint)
    run(config(double, spool, dataset="log"), checkpoint)
    assert ids(double, "log") == [1]


# Letters


def test_dead_letters_of_a_micro_batch_that_is_not_done_wait_for_it(double: BigQueryDouble, spool: SpoolMaker) -> None:
    one, checkpoint = config(double, spool), Checkpoint([])
    spool.seal(record(START + SECOND, [1], columns=(KEY, TEXT), values={"V": "a"}))
    run(one, checkpoint)
    spool.seal(record(START + 2 * SECOND, [2], columns=(KEY, NUMBER), values={"V": "7"}))
    interrupted(one, checkpoint, committed=True)
    retyped(double, "INT64")
    before = [file.reasons for file in dead_letters(spool).files()]
    assert replay(one, spool) == (0, 0)
    assert [file.reasons for file in dead_letters(spool).files()] == before
    run(one, checkpoint)
    assert replay(one, spool) == (1, 0)
    assert ids(double) == [1, 2]


def test_a_replay_without_the_dead_letters_spool_is_one_line_and_leaves_all_as_it_was(
    double: BigQueryDouble, spool: SpoolMaker, tmp_path: Path
) -> None:
    one = config(double, spool)
    spool.seal(record(START + SECOND, [1]))
    with pytest.raises(SpoolError, match="does not know how far the sink has come"):
        replay(one, spool)
    elsewhere = one.model_copy(update={"spool": SpoolConfig(path=str(tmp_path / "elsewhere"))})
    with pytest.raises(SpoolError, match=r"there is no spool at .*elsewhere\. Set spool\.path to the spool that"):
        replay(elsewhere, spool)
    assert not (tmp_path / "elsewhere").exists()


def test_dead_letters_of_an_attempt_that_did_not_end_are_dropped_by_the_next(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    one, checkpoint = config(double, spool), Checkpoint([])
    double.refuse("Name", "n", "no such name")
    spool.seal(record(START + SECOND, [1]))
    interrupted(one, checkpoint, committed=False)
    assert [file.count for file in dead_letters(spool).files()] == [1]
    double.take_all()
    assert run(one, checkpoint) == ["1 rows to 1 tables"]
    assert dead_letters(spool).files() == []
    assert ids(double) == [1]


def test_rows_that_were_committed_do_not_become_dead_letters_when_their_table_is_stopped(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    one, checkpoint = config(double, spool), Checkpoint([])
    spool.seal(record(START + SECOND, [1], columns=(KEY, TEXT), values={"V": "a"}))
    interrupted(one, checkpoint, committed=True)
    retyped(double, "INT64")
    run(one, checkpoint)
    assert dead_letters(spool).files() == []
    assert ids(double) == [1]


@pytest.mark.parametrize("repair", ["column", "table"])
def test_a_stopped_table_continues_when_it_is_repaired_and_replayed_though_some_dead_letters_do_not_fit(
    double: BigQueryDouble, spool: SpoolMaker, repair: str
) -> None:
    one, checkpoint = config(double, spool), Checkpoint([])
    spool.seal(record(START + SECOND, [1], columns=(KEY, TEXT), values={"V": "a"}))
    run(one, checkpoint)
    spool.seal(
        record(START + 2 * SECOND, [2], columns=(KEY, NUMBER), values={"V": "7"}),
        record(START + 3 * SECOND, [3], table="Albums"),
    )
    (said,) = run(one, checkpoint)
    assert said.startswith("1 rows to 2 tables, 1 to the dead letters at ")
    assert replay(one, spool) == (0, 1), "nothing is repaired yet"
    if repair == "column":
        retyped(double, "INT64")
    else:
        double.drop("ds", "Singers")
    assert replay(one, spool) == (1, 0)
    spool.seal(record(START + 4 * SECOND, [4], columns=(KEY, NUMBER), values={"V": "8"}))
    assert run(one, checkpoint) == ["1 rows to 1 tables"]
    assert ids(double) == ([1, 2, 4] if repair == "column" else [2, 4])


# Jobs


def staleness(double: BigQueryDouble, dataset: str) -> str:
    return f"ALTER TABLE `{double.project}.{dataset}.Singers` SET OPTIONS (max_staleness = INTERVAL 60 SECOND)"


@pytest.mark.parametrize("region", ["US", "asia-northeast1"])
def test_a_job_that_is_done_is_found_again_where_its_dataset_is(
    double: BigQueryDouble, spool: SpoolMaker, region: str
) -> None:
    spool.seal(record(START + SECOND, [1]))
    run(config(double, spool, location=region), Checkpoint([]))
    client = BigQueryClient(BigQueryTarget(double.project, double.endpoint), patience=1)
    for _ in range(2):
        client.query(staleness(double, "ds"), "ds", "Singers", job_id="once")
    assert double.counts.requests["jobs.get"] == 1


def test_a_job_that_failed_many_times_runs_when_what_it_failed_of_is_repaired(
    double: BigQueryDouble, spool: SpoolMaker
) -> None:
    spool.seal(record(START + SECOND, [1]))
    run(config(double, spool), Checkpoint([]))
    client = BigQueryClient(BigQueryTarget(double.project, double.endpoint), patience=1)
    double.deny("ds", "Singers")
    for _ in range(7):
        with pytest.raises(SinkError, match=r"permission denied"):
            client.query(staleness(double, "ds"), "ds", "Singers", job_id="merge")
    double.allow("ds", "Singers")
    client.query(staleness(double, "ds"), "ds", "Singers", job_id="merge")


@pytest.mark.long
def test_a_staging_table_that_is_gone_before_its_merge_is_loaded_again(
    local_bigquery: LocalBigQuery, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(local_bigquery, "merge-load")
    scenario.maker.seal(record(START + SECOND, [1, 2]))
    with scenario.sink() as sink, killed_at(BigQueryClient, "query"), pytest.raises(KilledError):
        sink.run()
    staged = [one for one in scenario.client.list_tables(scenario.dataset) if one.table_id.startswith("spanner_cdc_")]
    for table in staged:
        scenario.client.delete_table(table)
    assert len(staged) == 1
    scenario.run()
    assert ids_of(scenario) == [1, 2]


def test_a_quota_that_is_used_up_is_not_called_a_permission() -> None:
    error = exceptions.from_http_status(403, "Quota exceeded", errors=[{"reason": "quotaExceeded"}])
    assert reason_of(error)[0] == "a quota is used up"
    assert reason_of(exceptions.Forbidden("no"))[0] == "permission denied"
