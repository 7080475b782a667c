"""Errors that end `run` and `read` before they open anything, and the needs of each command in `check`."""

import re
import shutil
import socket
from collections.abc import Callable
from importlib import util
from pathlib import Path

import pytest
import yaml

from connector.check import offline
from connector.check.needs import NEEDS, needs_of, sections_of
from connector.config import Config, validated
from connector.config.loading import load
from connector.errors import ConfigurationError, SpoolInUseError
from connector.spool.reading import Spool
from connector.spool.writing import sole_writer
from spark_sink.sinks.tables import libraries
from tests.integration.commands import run

SOURCE = {"project": "my-project", "instance": "my-instance", "database": "d", "change_stream": "S"}


def config(**sections: object) -> Config:
    return validated({"source": SOURCE, "status": {"port": 0}, **sections})


def written(folder: Path, **sections: object) -> Path:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"source": SOURCE, "status": {"port": 0}, **sections}))
    return path


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hides modules."""
    found = util.find_spec

    def hide(*names: str) -> None:
        monkeypatch.setattr(util, "find_spec", lambda name: None if name in names else found(name))

    return hide


@pytest.mark.long(but=3)
@pytest.mark.parametrize(
    ("hidden", "sections", "error"),
    [
        ("pyspark", {}, "Spark needs the extra spark"),
        ("fastavro", {"sink": {"format": "avro"}}, "sink.type: files needs the extra avro"),
        (
            "google.cloud.bigquery",
            {"sink": {"type": "bigquery", "dataset": "d"}},
            "sink.type: bigquery needs the extra bigquery",
        ),
        ("google.cloud.storage", {"spool": {"path": "gs://bucket/spool"}}, "spool.path: gs:// needs the extra gcs"),
        ("google.cloud.storage", {"sink": {"path": "gs://bucket/x"}}, "sink.path: gs:// needs the extra gcs"),
    ],
)
def test_a_missing_extra_is_reported_with_what_needs_it_and_how_to_install_it(
    without: Callable[..., None], hidden: str, sections: dict[str, object], error: str
) -> None:
    found = config(**sections)
    assert offline.offline_errors(found, NEEDS["run"]) == []
    without(hidden)
    (line,) = offline.offline_errors(found, NEEDS["run"])
    assert line.startswith(f"{error}, which is not installed: pip install 'spanner-cdc-spark[")


def test_a_sink_alone_that_completes_rows_needs_the_reader(without: Callable[..., None]) -> None:
    completes, not_ = config(source={**SOURCE, "complete_rows": True}), config()
    assert offline.offline_errors(completes, NEEDS["sink"]) == []
    without("google.cloud.spanner_v1")
    assert offline.offline_errors(not_, NEEDS["sink"]) == []
    (line,) = offline.offline_errors(completes, NEEDS["sink"])
    assert line.startswith("source.complete_rows needs the extra reader, which is not installed")


def test_all_errors_of_a_machine_are_reported_at_once(
    without: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without("pyspark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        sections = {name: {"path": str(tmp_path / "file" / name)} for name in ("spool", "sink")}
        found = config(**sections, status={"port": port})
        with pytest.raises(ConfigurationError) as raised:
            offline.refuse(found, NEEDS["run"])
    assert [error.partition(":")[0] for error in raised.value.errors] == [
        "Spark needs the extra spark, which is not installed",
        *("spool.path", "sink.path", "spark", "status.port"),
    ]
    assert f"127.0.0.1:{port} cannot be used (Address already in use): choose another" in raised.value.errors[-1]


def test_a_second_daemon_is_refused_for_the_spool_and_not_for_the_port_of_the_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = config(spool={"path": str(tmp_path / "spool")}, status={"port": taken.getsockname()[1]})
        needs = NEEDS["read"]
        with pytest.raises(ConfigurationError, match="choose another, or 0"):
            offline.refuse(found, needs)
        assert not (tmp_path / "spool").exists()
        with sole_writer(Spool.at(tmp_path / "spool")):
            with pytest.raises(SpoolInUseError, match="is written by another daemon"):
                offline.refuse(found, needs)
            assert offline.offline_errors(found, needs) == [], "check works beside a daemon"
        with pytest.raises(ConfigurationError, match="choose another, or 0"):
            offline.refuse(found, needs)


def test_a_spool_that_fills_its_disk_keeps_nobody_from_emptying_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    found = config(spool={"path": str(tmp_path / "spool")})
    needs = NEEDS["read"]
    with pytest.raises(ConfigurationError, match=r"spool\.path: only 0 MB are free"):
        offline.refuse(found, needs)
    (tmp_path / "spool").mkdir()
    offline.refuse(found, needs)
    assert offline.offline_errors(found, needs) == [f"spool.path: only 0 MB are free at {tmp_path / 'spool'}"]


@pytest.mark.parametrize(("number", "known"), [("1.8.0_392", "8"), ("11.0.2", "11")])
def test_a_java_that_is_too_old_is_reported(
    number: str, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{number}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert offline.offline_errors(config(), NEEDS["run"]) == [
        f"spark: {java} is Java {known}; Spark needs Java 17 or newer"
    ]
    java.unlink()
    (line,) = offline.offline_errors(config(), NEEDS["run"])
    assert line.endswith("correct JAVA_HOME; Spark needs Java 17 or newer")


def test_a_pyspark_that_is_too_old_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "version", lambda _: "4.0.5")
    assert offline.offline_errors(config(), NEEDS["run"]) == []
    on_executors = config(source={**SOURCE, "reader": "executors"})
    assert offline.offline_errors(on_executors, needs_of("read", "executors")) == [
        "source.reader: executors needs PySpark 4.1 or newer, not 4.0.5: pip install -U pyspark"
    ]


def test_read_needs_neither_a_sink_nor_spark(
    without: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without("pyspark", "google.cloud.bigquery", "fastavro")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    path = written(tmp_path, sink={"type": "no-such"}, spark={"trigger": "sometimes"})
    loaded = load(path, sections_of("read"))
    assert offline.offline_errors(loaded, needs_of("read", loaded.source.reader)) == []
    with pytest.raises(ConfigurationError, match=r"sink\.type.*spark\.trigger"):
        load(path, sections_of("run"))


def test_verify_needs_spark_where_it_reads_the_destination(
    without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without("pyspark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    tables = {"type": "tables", "format": "delta", "path": "/nowhere/lake"}
    found = offline.offline_errors(config(sink=tables), NEEDS["verify"])
    assert [one.partition(" ")[0] for one in found] == ["Spark", "spark:"]
    assert offline.offline_errors(config(), NEEDS["verify"]) == []


def test_audit_and_verify_look_at_the_sections_that_check_looks_at_for_them(tmp_path: Path) -> None:
    spool = {"path": str(tmp_path / "spool")}
    path = written(tmp_path, spool=spool, sink={"type": "no-such"}, status={"token": "${NO_SUCH_TOKEN}"})
    done = run("audit", path)
    assert (done.code, "there is no spool at" in done.complaint) == (1, True)
    path = written(tmp_path, spool=spool, spark={"no_such": 1}, status={"token": "${NO_SUCH_TOKEN}"})
    for command in (("verify",), ("check", "--for", "verify")):
        done = run(command[0], path, *command[1:])
        assert (done.code, "spark.no_such: there is no such option" in done.complaint) == (2, True)


def test_a_section_that_there_is_not_is_reported_whatever_the_command_needs(tmp_path: Path) -> None:
    for command in NEEDS:
        with pytest.raises(ConfigurationError, match="sinc: there is no such option; did you mean sink"):
            load(written(tmp_path, sinc={}), sections_of(command))


def test_run_refuses_a_configuration_before_it_opens_anything(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = written(tmp_path, spool={"path": str(tmp_path / "spool")}, sink={"path": str(tmp_path / "file")})
    done = run("run", path, host="127.0.0.1:1")
    assert (done.code, done.out) == (2, b"")
    assert done.complaint == f"spanner-cdc: sink.path: {tmp_path / 'file'} is not a folder"
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ({"sink": {"path": "./spool"}}, "sink.path: ./spool is spool.path, too"),
        ({"spark": {"checkpoint": "./spool"}}, "spark.checkpoint: ./spool is spool.path, too"),
        ({"spark": {"checkpoint": "./events/checkpoint"}}, "spark.checkpoint: ./events/checkpoint is inside sink.path"),
        ({"sink": {"dead_letters": "spool/letters"}}, "sink.dead_letters: spool/letters/files is inside spool.path"),
        (
            {"spool": {"path": "gs://bucket/a/b"}, "sink": {"path": "gs://bucket/a"}},
            "gs://bucket/a/b is inside sink",
        ),
    ],
)
def test_run_refuses_folders_that_are_one_or_inside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, object], error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        offline.refuse(config(**sections), NEEDS["run"])
    assert error in str(caught.value)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("place", ["gs://bucket", "hdfs:///data", "/data"])
def test_tables_in_a_folder_of_another_purpose_are_refused_wherever_it_is(place: str, tmp_path: Path) -> None:
    shared = {"spool": {"path": str(tmp_path / "spool")}, "spark": {"checkpoint": f"{place}/c"}}
    for path in (f"{place}/c", f"{place}/c/lake"):
        found = offline.offline_errors(config(sink={"type": "tables", "path": path}, **shared), NEEDS["run"])
        (line,) = [one for one in found if "folder of its own" in one]
        assert {"sink.path", "spark.checkpoint"} <= set(re.findall(r"[a-z]+\.[a-z]+", line))
    apart = offline.offline_errors(config(sink={"type": "tables", "path": f"{place}/lake"}, **shared), NEEDS["run"])
    assert not [one for one in apart if one.startswith("sink.path")], "whether Spark can write it is not known here"


def test_folders_side_by_side_are_not_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    side_by_side = config(sink={"path": "./spool-events"}, spark={"checkpoint": "./spool-checkpoint"})
    assert not [one for one in offline.offline_errors(side_by_side, NEEDS["run"]) if "folder of its own" in one]


def test_a_spark_without_the_library_of_a_format_is_refused_unless_the_configuration_brings_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(libraries, "spark_version", lambda: "9.9")
    sink = {"type": "tables", "format": "delta", "path": str(tmp_path / "lake")}
    (error,) = offline.offline_errors(config(sink=sink), NEEDS["run"])
    assert error.startswith("sink.format: there is no library of delta for Spark 9.9 yet")
    with pytest.raises(ConfigurationError, match=r"sink\.format: there is no library"):
        offline.refuse(config(sink=sink), NEEDS["run"])
    brought = {"config": {"spark.jars.packages": "io.delta:delta-spark_9.9_2.13:5.0.0"}}
    assert offline.offline_errors(config(sink=sink, spark=brought), NEEDS["run"]) == []


def test_an_address_that_is_no_emulators_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match="'localhost' is not the address of an emulator: write HOST:PORT"):
        offline.refuse(config(source={**SOURCE, "emulator_host": "localhost"}), NEEDS["read"])
    assert list(tmp_path.iterdir()) == []
