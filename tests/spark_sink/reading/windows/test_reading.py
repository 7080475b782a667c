"""Executors read what one process reads, whatever breaks off."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession

from connector.config.loading import validated
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.read import in_process, read
from connector.daemon.spool_sink import SpoolSink, WrittenEpoch
from connector.errors import (
    ConfigurationError,
    DataLostError,
    PlacementLostError,
    SpannerCdcError,
    SpoolInUseError,
    StreamError,
)
from connector.reader.stopping import StopRequest
from connector.spool.manifest import FUNCTIONS_VERSION
from connector.spool.reading import Spool
from emulator import ScriptedServer
from emulator.scenario.history import PartitionMode
from emulator.workload.tables import Dialect
from spark_sink.reading.windows import job, reading
from spark_sink.reading.windows.job import WindowJob
from spark_sink.reading.windows.reading import on_executors
from spark_sink.reading.windows.segments import WriterSetup
from spark_sink.reading.windows.shares import FORMAT, TaskError
from spark_sink.reading.windows.task import WindowSetup
from tests.property.refilled import Refilled
from tests.spark_sink.reading.windows.windows import brief_placement, configured, done, events, manifests, served

every_kind = pytest.mark.parametrize(
    ("mode", "dialect"), [(mode, dialect) for mode in get_args(PartitionMode) for dialect in get_args(Dialect)]
)


@pytest.mark.long(but=1)
@every_kind
def test_executors_read_what_one_process_reads(
    spark: SparkSession, tmp_path: Path, mode: PartitionMode, dialect: Dialect
) -> None:
    with served(mode=mode, dialect=dialect) as (scenario, server):
        expected = done(configured(tmp_path / "process", scenario, server), in_process)
        config = configured(tmp_path / "executors", scenario, server)
        assert done(config, on_executors(spark)) == expected
    assert len(expected) == len(scenario.committed)
    last = manifests(config)[-1]
    assert last.final
    assert last.schema_keys == manifests(configured(tmp_path / "process", scenario, server))[-1].schema_keys
    assert last.watermark_high == scenario.history.horizon


@pytest.mark.long
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_executors_read_the_functions_of_all_placements_as_one_process_does(
    spark: SparkSession, tmp_path: Path, dialect: Dialect
) -> None:
    with served(mode="MUTABLE_KEY_RANGE", dialect=dialect, placements=3) as (scenario, server):
        expected = done(configured(tmp_path / "process", scenario, server), in_process)
        config = configured(tmp_path / "executors", scenario, server)
        assert done(config, on_executors(spark)) == expected
    assert len(expected) == len(scenario.committed)
    assert manifests(config)[-1].version == FUNCTIONS_VERSION


@pytest.mark.long
def test_executors_lose_nothing_of_a_placement_that_is_left_and_gets_partitions_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing announces those: a window in which there are some ends before them."""
    refilled = type("Refilled", (Refilled,), {})
    monkeypatch.setattr("emulator.scenario.timelines._Mutable", refilled)
    with served(mode="MUTABLE_KEY_RANGE", placements=5) as (scenario, server):
        config = configured(tmp_path / "executors", scenario, server)
        assert len(done(config, on_executors(spark))) == len(scenario.committed)
    assert refilled.__dict__["count"] > 0


@pytest.mark.long(but=1)
@pytest.mark.parametrize("is_on_executors", [False, True])
def test_a_placement_that_came_and_went_while_nothing_was_read_ends_the_next_run_with_one_line(
    spark: SparkSession, tmp_path: Path, *, is_on_executors: bool
) -> None:
    reader = on_executors(spark) if is_on_executors else in_process
    scenario, gone = brief_placement(time.time_ns() - 70 * SECOND)
    origin = scenario.history.origin
    with ScriptedServer.started(scenario, begins=origin + 3 * SECOND, speed=0.05) as server:
        end = {"end": format_rfc3339(origin + 2 * SECOND)}
        before = done(configured(tmp_path, scenario, server, **end), reader)
    assert before
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        server.engine.drop_placement(gone.name)
        config = configured(tmp_path, scenario, server)
        with pytest.raises(PlacementLostError) as caught:
            done(config, reader)
    assert f"placement {gone.name} was dropped before it was read: its read function " in caught.value.message
    assert f"spanner-cdc spool {config.spool.path} --restart-at 20" in caught.value.hint
    assert events(config) == before


@pytest.mark.long
@pytest.mark.usefixtures("pandas")
def test_executors_read_what_one_process_reads_where_pandas_is_installed(spark: SparkSession, tmp_path: Path) -> None:
    with served() as (scenario, server):
        expected = done(configured(tmp_path / "process", scenario, server), in_process)
        assert done(configured(tmp_path / "executors", scenario, server), on_executors(spark)) == expected


SALT = "0123456789-salt-of-the-tests"
MASKED = {"exclude": ["*.[!SG]*ue"], "hash": {"*.[SG]*": {"salt": SALT}}}
"""Columns of tables that are known and of those that are new; of Albums, that of a key of two columns."""


@pytest.mark.long
@pytest.mark.parametrize("columns", [{}, MASKED], ids=["all columns", "columns that stay out"])
def test_new_tables_have_the_schemas_that_one_process_gives_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any]
) -> None:
    plans, write = list[str](), job._written

    def written(ordered: DataFrame, writers: WriterSetup) -> DataFrame:
        frame: Any = ordered
        plan = frame._jdf.queryExecution()
        plans.extend((plan.toString(), plan.logical().toJSON(), plan.analyzed().toJSON()))
        return write(ordered, writers)

    monkeypatch.setattr(job, "_written", written)
    monkeypatch.setattr(reading.WindowReader, "_slices", lambda *_: 3)
    with served(unknown=3) as (scenario, server):
        expected = done(configured(tmp_path / "process", scenario, server, columns=columns), in_process)
        config = configured(tmp_path / "executors", scenario, server, reader="executors", columns=columns)
        found = done(config, on_executors(spark))
    assert found == expected
    is_masked = bool(columns)
    payloads = [event["payload"] for event in found if event["object"] == "Albums"]
    assert payloads
    assert {len(payload["SingerId"]) == 64 for payload in payloads} == {is_masked}
    assert any("BoolValue" in event["payload"] for event in found) is not is_masked
    assert any(FORMAT in plan for plan in plans)
    assert not [plan for plan in plans if SALT in plan]
    header, last = Spool.at(config.spool.path).header(), manifests(config)[-1]
    assert len(last.schema_keys) > len(header.schema_keys)
    for key in last.schema_keys.values():
        assert Spool.at(config.spool.path).schema(key).key == key


class Killed(BaseException):
    """Stands for the end of the driver's process."""


@pytest.mark.long(but=1)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_driver_that_is_killed_around_a_seal_loses_nothing_and_repeats_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_sealed: bool
) -> None:
    deliver = SpoolSink.deliver_written

    async def killed(sink: SpoolSink, written: WrittenEpoch) -> None:
        if is_sealed:
            await deliver(sink, written)
        raise Killed

    with served() as (scenario, server):
        expected = done(configured(tmp_path / "process", scenario, server), in_process)
        config = configured(tmp_path / "executors", scenario, server)
        monkeypatch.setattr(SpoolSink, "deliver_written", killed)
        with pytest.raises(BaseException) as raised:
            done(config, on_executors(spark))
        assert "Killed" in repr(raised.value)
        monkeypatch.undo()
        assert done(config, on_executors(spark)) == expected
    named = {file.path.removeprefix("segments/") for manifest in manifests(config) for file in manifest.files}
    assert {path.name for path in Path(config.spool.path, "segments").iterdir()} == named


@pytest.mark.long
def test_a_stop_abandons_the_window(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = WindowJob.run
    stop = StopRequest(drain_timeout=60 * SECOND)

    with served() as (scenario, server):
        config = configured(tmp_path, scenario, server)

        async def stopped() -> None:
            loop = asyncio.get_running_loop()

            def started(job: WindowJob, *arguments: Any, **options: Any) -> Any:
                loop.call_soon_threadsafe(stop.request)
                while not job.cancelled.is_set():
                    time.sleep(0.01)
                return run(job, *arguments, **options)

            monkeypatch.setattr(WindowJob, "run", started)
            await read(config, stop, range_reader=on_executors(spark))

        asyncio.run(stopped())
        monkeypatch.undo()
        assert manifests(config) == []
        assert len(done(config, on_executors(spark))) == len(scenario.committed)


def test_an_error_of_a_task_is_raised_in_the_driver_as_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served() as (scenario, server):
        config = configured(tmp_path, scenario, server)
        setup = WindowSetup.of

        def of(*arguments: Any) -> Any:
            made = setup(*arguments)
            return replace(made, stream=replace(made.stream, change_stream="Nothing"))

        monkeypatch.setattr(WindowSetup, "of", of)
        with pytest.raises(SpannerCdcError, match="Nothing"):
            done(config, on_executors(spark))
    assert manifests(config) == []


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError(["a", "b"]),
        DataLostError("lost", hint="Restart.", earliest=7),
        StreamError("broken"),
        SpoolInUseError("taken", hint="Stop it."),
    ],
)
def test_an_error_is_the_same_after_its_way_to_the_driver(error: SpannerCdcError) -> None:
    found = TaskError.of(error).rebuilt()
    assert (type(found), str(found), found.exit_code) == (type(error), str(error), error.exit_code)
    assert getattr(found, "earliest", None) == getattr(error, "earliest", None)


def test_options_that_executors_do_not_take_are_refused(tmp_path: Path) -> None:
    with served(transactions=1) as (scenario, server), pytest.raises(ConfigurationError, match="workers"):
        configured(tmp_path, scenario, server, reader="executors", workers=2)


def test_a_folder_of_this_machine_is_refused_for_executors_of_others(tmp_path: Path) -> None:
    with served(transactions=1) as (scenario, server):
        configured(tmp_path, scenario, server, reader="executors")
    node = yaml.safe_load((tmp_path / "config.yaml").read_text())
    with pytest.raises(ConfigurationError, match="is a folder of this machine, which executors of yarn do not reach"):
        validated({**node, "spark": {"master": "yarn"}})
