"""The whole `spanner-cdc self-test` against a server with the mode MUTABLE_KEY_RANGE and with placements.

The server is the official emulator behind a front: tables, commits and records are the emulator's, and the front
divides the records by partitions and placements.
"""

import json
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from emulator import Emulator, connect
from emulator.workload.tables import Dialect
from spark_sink.self_test import __main__ as command
from spark_sink.self_test.probes import change_stream
from spark_sink.self_test.run import SelfTest
from tests.spark_sink.self_test.forked_commands import fork_commands
from tests.spark_sink.self_test.front.server import Nature, fronted

pytestmark = pytest.mark.emulator

PLACEMENTS = ("default", "europe", "Asia_East")
CHECKS = [
    "daemon and spool of the stream whole",
    "audit of the spool of the stream whole",
    "daemon and spool of the stream mutable",
    "audit of the spool of the stream mutable",
    "tail of the stream whole",
    "tail of the stream changed",
    "tail of the stream mutable",
]
PLACED = "tail of the stream placed"


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The command takes signals and an emulator's address in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:9")
    monkeypatch.setattr(change_stream, "WATCHED", 0.5)
    fork_commands(monkeypatch)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def reported(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """The exit code and the report of a self-test."""
    code = command.main([*arguments, "--json", "--seed", "0", "--without-spark"])
    return code, json.loads(capsys.readouterr().out)


def of_emulator(address: str, dialect: Dialect) -> list[str]:
    """The options of edition cloud."""
    named = ["--project", "front-project", "--instance", "front-instance"]
    return [*named, "--emulator-host", address, "--dialect", dialect]


def assert_good(code: int, report: dict[str, Any], *checks: str) -> dict[str, str]:
    """Asserts that nothing differs in these checks beside CHECKS, and that the mutable mode was read and probed.

    Returns what was seen.
    """
    assert code == 0, report
    found = [(one["name"], one["status"]) for one in report["checks"]]
    assert found == [*((name, "good") for name in (*CHECKS, *checks)), ("sinks", "skipped")]
    assert report["left_over"] == []
    verdicts = {one["about"]: one["verdict"] for one in report["observations"]}
    assert verdicts["both bounds of a query are inclusive (MUTABLE_KEY_RANGE)"] == "confirmed"
    seen = {one["about"]: one["detail"] for one in report["observations"]}
    assert seen["splits that are asked for by AddSplitPoints"] == "accepted: 3 keys"
    moves = ": 4 of 8 partitions start, 4 events of keys that move in and 3 of keys that move out"
    assert moves in seen["after AddSplitPoints (MUTABLE_KEY_RANGE)"].replace(" on:", ":")
    assert "4 PartitionStart" in seen["the initial query (MUTABLE_KEY_RANGE)"]
    assert "1 x PartitionEndRecord" in seen["the last record of such a query (MUTABLE_KEY_RANGE)"]
    for late in ("a query without an end", "a query that ends in two hours"):
        assert seen[f"{late} (MUTABLE_KEY_RANGE)"].startswith("INVALID_ARGUMENT: ")
    return seen


@pytest.mark.long
@pytest.mark.parametrize(
    ("dialect", "has_plain"),
    [("googlesql", True), pytest.param("postgresql", False, marks=pytest.mark.slow)],
)
def test_the_whole_self_test_is_good_with_the_mutable_mode_and_placements(
    emulator: Emulator, dialect: Dialect, has_plain: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with fronted(emulator.host, Nature(PLACEMENTS, has_plain=has_plain)) as address:
        seen = assert_good(*reported(of_emulator(address, dialect), capsys), PLACED)
    assert not connect(emulator.host, "front-project").instance("front-instance").exists()
    assert len(seen["the placements of INFORMATION_SCHEMA"].split("; ")) == 3
    functions = {
        match[1]: about.rpartition(" by ")[2]
        for about in seen
        if (match := re.match("the initial query of placement (\\w+), by ", about))
    }
    assert set(functions) == set(PLACEMENTS)
    for placement, function in functions.items():
        assert function in seen["the read functions of INFORMATION_SCHEMA"]
        first = seen[f"the initial query of placement {placement}, by {function}"]
        assert re.fullmatch("[1-9] PartitionStart; OK", first)
        assert seen[f"a partition of placement {placement}, by {function}"].endswith("; OK")
    owner, other = sorted(PLACEMENTS)[:2]
    stranger = seen[f"a partition of placement {owner}, by {functions[other]}"]
    assert stranger.startswith("no records; INVALID_ARGUMENT: Partition token ")
    assert stranger.endswith(" does not belong to the placement TVF")
    plain = seen["READ_ without a placement, of a stream with per_placement_tvf"]
    assert plain.endswith("PartitionStart; OK") == has_plain


@pytest.mark.slow
def test_a_database_that_is_named_keeps_no_stream_of_the_self_test(
    emulator: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    with fronted(emulator.host, Nature(PLACEMENTS)) as address:
        client = connect(address, "front-project")
        configuration = f"{client.project_name}/instanceConfigs/emulator-config"
        instance = client.instance("front-instance", configuration, node_count=1)
        instance.create().result(60)
        database = instance.database("mine")
        database.create().result(60)
        try:
            arguments = [*of_emulator(address, "googlesql"), "--database", "mine"]
            assert_good(*reported(arguments, capsys), PLACED)
            database.reload()
            assert list(database.ddl_statements) == []
            with database.snapshot() as snapshot:
                sql = "SELECT routine_name FROM information_schema.routines"
                assert list(snapshot.execute_sql(sql)) == []
        finally:
            instance.delete()


@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_the_whole_self_test_is_good_on_omni_with_the_mutable_mode(
    default_instance: str, dialect: Dialect, capsys: pytest.CaptureFixture[str]
) -> None:
    with fronted(default_instance, Nature()) as address:
        arguments = ["--edition", "omni", "--endpoint", address, "--dialect", dialect]
        seen = assert_good(*reported(arguments, capsys))
    assert seen["creating placed"].startswith("refused: INVALID_ARGUMENT: ")
    assert "per_placement_tvf" in seen["creating placed"]
    assert seen["the read function of a placement"].startswith("this server refuses the stream: ")


@pytest.mark.slow
def test_a_mod_that_a_stream_of_the_front_omits_and_one_that_it_repeats_are_named(
    emulator: Emulator, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SelfTest, "_probe", lambda *_: None)  # is tested above
    with fronted(emulator.host, Nature(PLACEMENTS, copies={1: 0, 9: 2})) as address:
        code, report = reported(of_emulator(address, "postgresql"), capsys)
    assert code == 1
    assert (report["result"], report["error"]) == ("bad", None)
    bad = {one["name"]: one["differences"] for one in report["checks"] if one["status"] not in ("good", "skipped")}
    (placed,) = bad.pop(PLACED)
    assert re.match("missing: UPDATE self_test_\\w+_unwatched ", placed)
    assert set(bad) == {"daemon and spool of the stream mutable", "tail of the stream mutable"}
    for differences in bad.values():
        omitted, repeated = differences
        assert omitted.startswith("missing: INSERT self_test_")
        assert repeated.startswith("repeated: INSERT self_test_")
        assert repeated.endswith(": 2 times")
