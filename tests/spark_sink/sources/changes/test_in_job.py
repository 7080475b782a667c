"""The daemon as a child of the source's process."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.config import load
from connector.errors import TRANSIENT, ConfigurationError, SpoolInUseError, StreamError
from connector.spool.reading import Spool
from connector.spool.writing import sole_writer
from spark_sink.errors import clear_line
from spark_sink.sources.changes import in_job
from spark_sink.sources.changes.in_job import InJobReader, config_document
from spark_sink.sources.changes.options import InJobOptions, SourceOptions
from tests.spark_sink.processes import eventually
from tests.spark_sink.queries import Query

STUB = (sys.executable, "-m", "tests.spark_sink.sources.changes.programs.stub_daemon")
OPTIONS = InJobOptions("project", "instance", "db", "Stream", "now", "", "2s", {"emulator_host": "localhost:1"})


def ensured(reader: InJobReader) -> InJobReader:
    reader.ensure()
    return reader


@contextmanager
def sole_writer_when_free(path: Path) -> Iterator[None]:
    spool = Spool.at(path)

    def free() -> bool:
        try:
            with sole_writer(spool):
                return True
        except SpoolInUseError:
            return False

    eventually(free, "the daemon is gone")
    with sole_writer(spool):
        yield


def test_executors_are_refused_as_readers_inside_a_job_and_the_line_names_what_to_do() -> None:
    given = {"spool": "/spool"} | dict.fromkeys(("projectId", "instanceId", "databaseId", "changeStream"), "x")
    assert SourceOptions.parse({**given, "reader": "process"}) == SourceOptions.parse(given)
    with pytest.raises(ConfigurationError, match="no Spark session to read with: start `spanner-cdc read CONFIG` with"):
        SourceOptions.parse({**given, "reader": "executors"})
    with pytest.raises(ConfigurationError, match="option reader is 'threads', not process"):
        SourceOptions.parse({"spool": "/spool", "reader": "threads"})


def test_the_daemon_is_given_its_configuration_without_a_file(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    reader = InJobReader(OPTIONS, str(spool), STUB)
    reader.ensure()
    eventually(lambda: ensured(reader) and Spool.at(spool).latest() == 2, "two epochs are sealed")
    given = orjson.loads((spool / "writers.txt").read_text().partition(" ")[2])
    assert given == orjson.loads(config_document(OPTIONS, str(spool)))["source"]
    assert not list(spool.glob("*.yaml"))
    reader.close()


@pytest.mark.parametrize("spool", ["/spool", "gs://bucket/spool"])
def test_a_daemon_accepts_that_configuration(tmp_path: Path, spool: str) -> None:
    written = tmp_path / "config.yaml"
    written.write_bytes(config_document(OPTIONS, spool))
    config = load(written)
    assert config.source.database == "db"
    assert config.source.emulator_host == "localhost:1"
    assert config.source.heartbeat == 2 * 10**9
    assert config.source.workers == 1
    assert config.spool.path == spool
    assert config.status.port == 0


def test_a_job_may_name_the_port_of_its_readers_status_server(tmp_path: Path) -> None:
    given = {
        "projectId": "project",
        "instanceId": "instance",
        "databaseId": "db",
        "changeStream": "S",
        "statusPort": "8123",
    }
    options = SourceOptions.parse({"spool": str(tmp_path), **given}).in_job
    assert options is not None
    written = tmp_path / "config.yaml"
    written.write_bytes(config_document(options, "/spool"))
    assert load(written).status.port == 8123
    for port in ("x", "-1", "65536"):
        with pytest.raises(ConfigurationError, match=r"option statusPort is .*, not a port from 0 to 65535"):
            SourceOptions.parse({"spool": str(tmp_path), **given, "statusPort": port})


def test_a_daemon_that_fails_is_one_line(tmp_path: Path) -> None:
    reader = InJobReader(InJobOptions("p", "i", "broken", "S"), str(tmp_path / "spool"), STUB)
    with pytest.raises(StreamError) as caught:
        eventually(reader.ensure, "the daemon fails")
    assert str(caught.value) == (
        "the reader inside the job ended with code 1: database broken is not there. Create it."
    )


def test_a_daemon_that_reaches_its_end_is_done(tmp_path: Path) -> None:
    reader = InJobReader(InJobOptions("p", "i", "db", "S", end="now"), str(tmp_path / "spool"), STUB)
    eventually(lambda: ensured(reader).finished, "the daemon ends")
    reader.ensure()
    assert len((tmp_path / "spool/writers.txt").read_text().splitlines()) == 1


@pytest.mark.long
def test_it_takes_over_once_the_orphan_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = tmp_path / "spool"
    with sole_writer(Spool.at(spool)):
        reader = InJobReader(OPTIONS, str(spool), STUB)
        seen: list[str] = []

        def is_refused() -> bool:
            reader.ensure()
            seen.append(capsys.readouterr().err)
            return "is written by another daemon" in "".join(seen)

        eventually(is_refused, "the spool is in use")
    eventually(lambda: ensured(reader) and Spool.at(spool).latest() == 2, "two epochs are sealed")
    reader.close()
    monkeypatch.setattr(in_job, "_TAKEOVER", 0.0)
    with sole_writer_when_free(spool):
        reader = InJobReader(OPTIONS, str(spool), STUB)
        with pytest.raises(StreamError, match="is written by another daemon"):
            eventually(reader.ensure, "it gives up")


@pytest.mark.long
@pytest.mark.parametrize(("options", "code"), [(in_job.DAEMON[5:], TRANSIENT), ((), 1)], ids=["in a job", "alone"])
def test_a_daemon_whose_spool_is_in_use_ends_with_a_code_of_its_own_only_inside_a_job(
    tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    config, spool = tmp_path / "config.yaml", tmp_path / "spool"
    config.write_bytes(config_document(OPTIONS, str(spool)))
    with sole_writer(Spool.at(spool)):
        done = subprocess.run([*in_job.DAEMON[:5], *options, str(config)], stdin=subprocess.PIPE, capture_output=True)
    assert done.returncode == code
    assert b"is written by another daemon" in done.stderr


@pytest.mark.spark
def test_the_source_starts_the_real_daemon_and_its_failure_ends_the_query_in_one_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {
        "projectId": "project",
        "instanceId": "instance",
        "databaseId": "db",
        "changeStream": "not a name",
    }
    query = Query(spark, tmp_path, spool=str(tmp_path / "spool"), **options)
    running = query.start()
    with pytest.raises(PySparkException) as caught:
        running.awaitTermination(600)
    line = clear_line(caught.value)
    assert line.startswith("the reader inside the job ended with code 2: source.change_stream")
