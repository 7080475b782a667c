"""Extras: an absent one is named in one line, wherever its library is wanted first."""

import subprocess
import sys
from importlib import import_module

import pytest

from connector import extras

WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
"""Hides packages from the program that follows."""

READER = ("grpc", "google", "aiohttp", "cryptography", "prometheus_client", "requests", "yarl")


def run(program: str, *arguments: str, hidden: tuple[str, ...] = READER) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT.format(hidden=hidden) + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ("grpc", "reader"),
        ("google", "reader"),
        ("google.protobuf.message", "reader"),
        ("aiohttp.web", "reader"),
        ("pyspark.sql", "spark"),
        ("google.cloud.storage.retry", "gcs"),
        ("google.cloud.bigquery_storage_v1", "bigquery"),
        ("fastavro", "avro"),
        ("connector.nothing", None),
        ("", None),
    ],
)
def test_a_module_that_cannot_be_imported_is_of_the_extra_that_brings_it(missing: str, extra: str | None) -> None:
    assert extras.extra_of(ModuleNotFoundError("", name=missing)) == extra


def test_a_missing_module_of_no_extra_keeps_its_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"), extras.extras_named("a test"):
        import_module("nothing_of_that_name")


@pytest.mark.long(but=2)
@pytest.mark.parametrize("command", ["read", "tail", "discover", "audit", "verify"])
def test_a_command_without_its_extra_ends_with_one_line_that_installs_it(command: str) -> None:
    ended = run("from connector.cli import main; main()", command, "config.yaml")
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line == (
        f"spanner-cdc: spanner-cdc {command} needs the extra reader, which is not installed:"
        " pip install 'spanner-cdc-spark[reader]'"
    )


def test_what_reads_a_spool_alone_needs_no_library_that_calls_spanner() -> None:
    program = """
import connector, spark_sink
connector.load_config, connector.Spool, spark_sink.register, spark_sink.merge_into, spark_sink.typed, spark_sink.as_of
try:
    connector.read
except connector.ConfigurationError as error:
    print(error)
"""
    ended = run(program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == (
        "connector.read needs the extra reader, which is not installed: pip install 'spanner-cdc-spark[reader]'"
    )


@pytest.mark.long(but=1)
@pytest.mark.parametrize("command", [["spool", "nothing"], ["status", "nothing"], ["cuts", "nothing.yaml"]])
def test_commands_that_look_at_a_spool_run_without_the_extra(command: list[str]) -> None:
    ended = run("from connector.cli import main; main()", *command)
    assert "extra" not in ended.stderr
    assert ended.stderr.startswith("spanner-cdc: ")
