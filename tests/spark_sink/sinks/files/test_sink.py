"""The file sink's process: ``python -m spark_sink CONFIG``."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.daemon.sink_process import Patience, SinkProcess
from connector.errors import TRANSIENT
from connector.reader.stopping import StopRequest
from connector.spool import consumers
from connector.telemetry.metrics import ReaderMetrics
from spark_sink.sinks.files.complete_minutes import FOLDER, CompleteMinute
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.spark_sink.processes import Program, eventually, program
from tests.spark_sink.spools import NO_DEAD_LETTERS, START, SpoolMaker, record

pytestmark = pytest.mark.spark


def config(folder: Path, **sink: object) -> str:
    path = folder / "config.yaml"
    options = "".join(f", {name}: {value}" for name, value in sink.items())
    path.write_text(
        f"source: {{project: project, instance: instance, database: d, change_stream: Everything}}\n"
        f"spool: {{path: {folder / 'spool'}}}\n"
        f"sink: {{path: {folder / 'out'}{options}}}\n"
        f"spark: {{master: 'local[2]', checkpoint: {folder / 'checkpoint'}, trigger: 100ms,"
        f" config: {{spark.driver.memory: 768m}}}}\n"
    )
    return str(path)


def passed(spool: SpoolMaker, epoch: int) -> bool:
    known = consumers.find(spool.spool, "files")
    return known is not None and known.epoch >= epoch


def contents(root: Path) -> dict[str, bytes]:
    """The files below a root, without the documents of complete minutes."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        name: path.read_bytes() for path in files if not (name := str(path.relative_to(root))).startswith(f"{FOLDER}/")
    }


def expected(spool: SpoolMaker, root: Path, shape: FileOptions) -> dict[str, bytes]:
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, NO_DEAD_LETTERS)
    for group in file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=shape.by_minute):
        assert list(writer.write(group))
    return contents(root)


@pytest.mark.long
def test_a_sink_that_is_killed_anywhere_delivers_the_same_files_and_bytes(spool: SpoolMaker, tmp_path: Path) -> None:
    at = START
    for minute in range(6):
        for epoch in range(3):
            at = START + minute * MINUTE + epoch * SECOND
            spool.seal(*(record(at + n, range(1000), table=f"T{n}") for n in range(3)))
    spool.seal(high=at + SECOND, final=True)
    out = tmp_path / "out"
    points: dict[str, Callable[[Program], object]] = {
        "a file is half written": lambda _: any(out.rglob("*.tmp")),
        "a document is there": lambda _: any(out.rglob("*.json")),
    }
    configured = config(tmp_path, gzip="true", rotate_bytes="150KB")
    for number, (point, reached) in enumerate(points.items()):
        with program(tmp_path / f"log{number}", "-m", "spark_sink", configured) as sink:
            eventually(lambda: reached(sink) or sink.has_ended(), point)  # noqa: B023
            sink.kill()
    with program(tmp_path / "log", "-m", "spark_sink", configured) as sink:
        sink.end_input()
        assert sink.code() == 0, sink.said()
    shape = FileOptions(gzip=True, rotate_bytes=150_000, by_minute=True)
    assert contents(out) == expected(spool, tmp_path / "expected", shape)
    assert len(contents(out)) > 36
    documents = [CompleteMinute.model_validate_json(path.read_bytes()) for path in sorted(out.rglob("*.json"))]
    assert [one.minute for one in documents] == [START + minute * MINUTE for minute in range(5)], "one is not over"
    named = {file for one in documents for files in one.files.values() for file in files}
    assert named == {name for name in contents(out) if "/10/05/" not in name}


@pytest.mark.long
def test_a_sink_continues_after_its_jvm_was_killed_and_after_sigterm_and_an_error_of_its_last_delivery_is_code_1(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    """It writes Avro, which is configured."""
    spool.fill(2)
    configured, held = config(tmp_path, rotate_interval=0, format="avro", gzip="true"), str(tmp_path / "never")
    with program(tmp_path / "log0", "-m", "tests.spark_sink.sinks.files.held_sink", configured, held) as sink:
        eventually(lambda: "2 files" in sink.said() or sink.has_ended(), "a micro-batch is under way")
        sink.kill_jvm()
        assert sink.code() == TRANSIENT
        said = sink.said()  # a thread of PySpark may print after it
        assert any(line.startswith("spark_sink: Spark's JVM has died") for line in said.splitlines()), said
    with program(tmp_path / "log1", "-m", "spark_sink", configured) as sink:
        eventually(lambda: "events" in sink.said() or sink.has_ended(), "the epochs are written again")
        sink.terminate()
        assert sink.code() == 0, sink.said()
    spool.fill(1)
    with program(tmp_path / "log2", "-m", "spark_sink", configured) as sink:
        eventually(lambda: passed(spool, 3) or sink.has_ended(), "the third epoch is written and recorded")
        spool.spool.storage.replace("consumers/files.json", b"{")  # it is not written again for half a minute
        sink.end_input()
        assert sink.code() == 1, sink.said()
    assert "1 files, 5 events" in sink.said()
    assert sink.said().splitlines()[-1].startswith("spark_sink: corrupt file ")
    assert "done" not in sink.said()
    shape = FileOptions(gzip=True, rotate_bytes=250_000_000, by_minute=False, format="avro")
    assert contents(tmp_path / "out") == expected(spool, tmp_path / "expected", shape)
    assert len(contents(tmp_path / "out")) == 3


@pytest.mark.long
def test_a_killed_sink_continues_as_it_began_with_another_checkpoint_and_options_and_the_next_one_waits_for_its_end(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    out, holding = tmp_path / "out", "tests.spark_sink.sinks.files.held_sink"
    spool.fill(2)
    full, never = Path(config(tmp_path, gzip="false")), str(tmp_path / "never")
    full.write_text(full.read_text().replace("/spool}", "/spool, max_bytes: 1}"))
    with program(tmp_path / "log0", "-m", holding, str(full), never) as sink:
        eventually(lambda: "1 files, 10 events" in sink.said() or sink.has_ended(), "the open minute is written")
        sink.kill()
    before = contents(out)
    spool.fill(1)
    spool.seal(high=START + MINUTE)
    other, release = Path(config(tmp_path, gzip="true")), tmp_path / "release"
    other.write_text(other.read_text().replace("/checkpoint", "/another"))
    with program(tmp_path / "log1", "-m", holding, str(other), str(release)) as orphan:
        eventually(lambda: "batch 0: " in orphan.said() or orphan.has_ended(), "a micro-batch is not committed yet")
        orphan.end_input()
        with program(tmp_path / "log2", "-m", "spark_sink", str(other)) as sink:
            sink.end_input()
            eventually(lambda: "ready" in sink.said() or "waiting" in sink.said(), "the next one is there")
            release.touch()
            assert orphan.code() == 0, orphan.said()
            assert sink.code() == 0, sink.said()
            assert f"(process {orphan.id}); waiting for its end" in sink.said()
            assert "batch" not in sink.said()
    assert {name: data for name, data in contents(out).items() if not name.endswith("_3_0.jsonl.gz")} == before
    assert len(contents(out)) == len(before) + 1 == 2


@pytest.mark.long
def test_a_minute_waits_for_the_watermark_or_a_gap_which_is_logged_and_the_end_of_input_delivers_the_rest(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with program(tmp_path / "log", "-m", "spark_sink", config(tmp_path)) as sink:
        spool.seal(record(START + 5, [1]))
        spool.seal(record(START + 9, [2]))
        eventually(lambda: consumers.find(spool.spool, "files") or sink.has_ended(), "the sink runs")
        spool.seal(high=START + MINUTE - 2)
        assert contents(out) == {}
        spool.seal(record(START + MINUTE - 1, [3]))
        eventually(lambda: list(out.rglob("*.jsonl")) or sink.has_ended(), "the minute is written")
        assert [data.count(b"\n") for data in contents(out).values()] == [3]
        spool.seal(record(START + MINUTE + 5, [4]))
        gap = spool.restart_at(START + 9 * MINUTE)
        eventually(
            lambda: len(list(out.rglob("*.jsonl"))) == 2 or sink.has_ended(), "the minute before the gap is written"
        )
        spool.seal(record(START + 9 * MINUTE, [5, 6]))
        spool.seal(high=START + 10 * MINUTE - 1)
        spool.seal(record(START + 10 * MINUTE, [7]), final=True)
        sink.end_input()
        assert sink.code() == 0, sink.said()
    lines = {Path(name).parent.name: data.count(b"\n") for name, data in contents(out).items()}
    assert lines == {"00": 3, "01": 1, "09": 2, "10": 1}
    assert (
        f"WARNING spark_sink: epoch {gap} is a gap: what was committed after 2026-03-01T10:01:00.000000005Z"
        in sink.said()
    )
    known = consumers.find(spool.spool, "files")
    assert known is not None
    assert known.epoch == spool.spool.latest()


@pytest.mark.long
def test_a_failure_is_one_line_and_code_1(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(2)
    (tmp_path / "out").write_text("a file where a folder should be")
    for attempt in range(3):  # on a machine under load Spark may have an error of its own before: as `run`, try again
        with program(tmp_path / f"log{attempt}", "-m", "spark_sink", config(tmp_path, rotate_interval=0)) as sink:
            if sink.code() != TRANSIENT:
                break
        assert "cannot write" not in sink.said(), "an error of ours that is not recognised"
    assert sink.code() == 1, sink.said()
    *_, line = sink.said().splitlines()
    assert line.startswith(f"spark_sink: cannot write {tmp_path}/out/d_Singers/")
    assert line.endswith("or choose another with sink.path.")
    assert "Traceback" not in sink.said()
    assert "ERROR" not in sink.said()


def test_without_java_it_says_how_to_get_it(spool: SpoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with program(tmp_path / "log", "-m", "spark_sink", config(tmp_path)) as sink:
        assert sink.code() == 1, sink.said()
    assert sink.said().startswith("spark_sink: Java was not found, and Spark needs Java 17. Install it")


@pytest.mark.long
def test_a_spool_without_epochs_ends_with_the_input(spool: SpoolMaker, tmp_path: Path) -> None:
    with program(tmp_path / "log", "-m", "spark_sink", config(tmp_path)) as sink:
        sink.end_input()
        assert sink.code() == 0, sink.said()
    assert spool.spool.latest() == 0


@pytest.mark.long
def test_a_spool_of_another_stream_is_refused_and_not_touched(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    configured = Path(config(tmp_path))
    configured.write_text(configured.read_text().replace("database: d", "database: other"))
    with program(tmp_path / "log", "-m", "spark_sink", str(configured)) as sink:
        assert sink.code() == 2
    assert "holds change stream project/instance/d/Everything" in sink.said().splitlines()[-1]
    assert not consumers.consumers(spool.spool)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_errors_of_sparks_are_got_over_by_another_process_and_nothing_is_written_twice(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.fill(2)
    metrics, stop = ReaderMetrics(), StopRequest(drain_timeout=60 * SECOND)
    configured = config(tmp_path, rotate_interval=0)

    async def run() -> None:
        sink = SinkProcess(
            [sys.executable, "-m", "tests.spark_sink.sinks.files.failing_sink", configured, str(tmp_path / "runs")],
            progress=lambda: 0,
            stop=stop,
            drain=60.0,
            metrics=metrics,
            patience=Patience(attempts=4, first=0.1),
        )
        running = asyncio.create_task(sink.run())
        await asyncio.to_thread(eventually, lambda: passed(spool, 2) or running.done(), "all is delivered", starts=3)
        sink.finish(again=True)
        await running

    asyncio.run(run())
    assert metrics.sink_restarts == 2
    shape = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=False)
    assert contents(tmp_path / "out") == expected(spool, tmp_path / "expected", shape)
