"""Case 15: logs and errors, even verbose ones, hold no values and no credentials; memory is bounded."""

import json
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest

from connector.core.timestamps import SECOND
from connector.log import whereabouts
from emulator import Fault, FaultKind, FaultPlan, Scenario
from emulator.scenario.history import Change, PartitionMode, Record, ReportedMod
from emulator.scripted.change_records import RowEncoder, row_encoder
from emulator.scripted.wire import listed, text
from emulator.workload.tables import Dialect
from tests.emulator.scripted.scripted_stream import at
from tests.faults.proxy import CallFault, proxied
from tests.integration.commands import Done, run
from tests.peers.credentials import ACCESS_TOKEN, KEY_ID, authorised
from tests.peers.histories import KEY, change, column, partition, split, stream
from tests.peers.served import calls_to, served, settings, source, tailed, written
from tests.peers.virtual import read

VALUE = "4711-private-value"
NAMED = (KEY, column("FirstName", "STRING", 2), column("Age", "INT64", 3))


def holding(name: str, value: str, singer: int = 1, **more: Any) -> Change:
    mod = ReportedMod({"SingerId": str(singer)}, {name: value}, {"FirstName": VALUE})
    return change(at(singer), singer, columns=NAMED, mods=(mod,), **more)


def assert_silent(done: Done) -> None:
    """Fails if a row's value is on stderr."""
    assert VALUE not in done.err
    assert VALUE[:8] not in done.err


# Debezium 1869: everything that may be logged about a row
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_case_15_no_value_of_a_row_is_in_the_daemons_log_whatever_goes_wrong(log_format: str, tmp_path: Path) -> None:
    rows = [holding("FirstName", VALUE, singer, transaction_tag="tag") for singer in range(1, 6)]
    incomplete = holding("FirstName", VALUE, 6, number_of_records_in_transaction=2)
    scenario = stream(partition("one", 0, [*rows, incomplete]))
    plan = FaultPlan(3, share=1.0)
    with served(scenario, faults=plan) as server:
        config = written(tmp_path / "config.yaml", settings(server, tmp_path / "spool"))
        done = run("read", config, "--verbose", "--log-format", log_format)
    assert done.code == 0, done.err
    assert "a transaction is incomplete" in done.err
    assert "epoch sealed" in done.err
    assert_silent(done)


# Debezium 1869: nor of the sink, of its tasks and of Spark
@pytest.mark.slow
def test_case_15_every_line_of_the_service_is_json_and_none_holds_a_value_of_a_row(tmp_path: Path) -> None:
    rows = [holding("FirstName", VALUE, singer) for singer in range(1, 6)]
    with served(stream(partition("one", 0, rows)), faults=FaultPlan(3, share=1.0)) as server:
        node = settings(server, tmp_path / "spool")
        node["sink"] = {"path": str(tmp_path / "events"), "rotate_interval": 0}
        node["spark"] = {"master": "local[1]", "checkpoint": str(tmp_path / "checkpoint")}
        done = run("run", written(tmp_path / "config.yaml", node), "--verbose", "--log-format", "json")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert all({"severity", "time", "message", "action"} <= line.keys() for line in lines)
    assert {"epoch_sealed", "progress", "spark", "sink_ready", "batch_delivered"} <= {line["action"] for line in lines}
    assert any(VALUE.encode() in path.read_bytes() for path in (tmp_path / "events").rglob("*.jsonl"))
    assert_silent(done)


class Broken:
    """A form of rows, one of which is not valid and holds values."""

    def __init__(self, right: RowEncoder, wrong: bytes) -> None:
        self._right = right
        self._wrong = wrong

    def __call__(self, record: Record) -> bytes:
        return self._wrong if record.timestamp == at(3) else self._right(record)


CELL = text(VALUE)
WRONG: tuple[tuple[Dialect, bytes], ...] = (
    ("googlesql", listed((listed((listed((listed([CELL] * 13),)), listed(()), listed(()))),))),
    ("googlesql", listed((listed((listed(()), listed((listed((CELL,)),)), listed(()))),))),
    ("postgresql", text('{"data_change_record":{"commit_timestamp":"' + VALUE + '"}}')),
    ("postgresql", text('{"heartbeat_record":{"timestamp":"' + VALUE + '"}}')),
    ("postgresql", text('{"other_record":"' + VALUE + '"}')),
    ("postgresql", CELL),
)


def with_a_wrong_row(dialect: Dialect, row: bytes, patch: pytest.MonkeyPatch) -> Scenario:
    patch.setattr("emulator.scripted.spanner.row_encoder", lambda spoken, mode: Broken(row_encoder(spoken, mode), row))
    return stream(partition("one", 0, [change(at(3), 3)]), dialect=dialect)


# Debezium 1869: a record that cannot be read is reported, not shown
@pytest.mark.parametrize(("dialect", "row"), WRONG, ids=[dialect for dialect, _ in WRONG])
def test_case_15_a_record_that_cannot_be_read_is_not_shown_in_its_error(
    dialect: Dialect, row: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with served(with_a_wrong_row(dialect, row, monkeypatch)) as server:
        error = tailed(server).error
    assert error is not None
    assert "a change record" in str(error)
    assert VALUE not in f"{error}{whereabouts(error)}{caplog.text}"


# Debezium 1869: nor by the daemon
def test_case_15_a_record_that_cannot_be_read_is_not_shown_in_the_daemons_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with served(with_a_wrong_row(*WRONG[0], monkeypatch)) as server:
        done = run("read", written(tmp_path / "c.yaml", settings(server, tmp_path / "spool")), "--verbose")
    assert done.code == 4
    assert "is_last_record_in_transaction_in_partition is a string, not a BOOL" in done.err
    assert "decoder.py" in done.err, "--verbose shows where"
    assert_silent(done)


# Debezium 1869: an error of the connector while it converts a value
def test_case_15_a_value_that_is_not_of_its_type_is_not_shown_in_a_traceback(tmp_path: Path) -> None:
    scenario = stream(partition("one", 0, [holding("Age", VALUE)]))
    with served(scenario) as server:
        config = source(server)
        names = ("project", "instance", "database", "change_stream", "emulator_host", "start", "end")
        options = [part for name in names for part in (f"--{name.replace('_', '-')}", str(config[name]))]
        done = run("tail", *options, "--verbose")
    assert done.code == 4
    assert "a value of an integer type is not an integer" in done.err
    assert "events.py" in done.err, "--verbose shows where"
    assert_silent(done)


# Debezium 1869
@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("status", "times", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, 0, 0),
        (grpc.StatusCode.UNAUTHENTICATED, 2, 0),
        (grpc.StatusCode.PERMISSION_DENIED, 99, 1),
    ],
    ids=["accepted", "refused-twice", "denied"],
)
def test_case_15_no_credential_is_in_the_daemons_log(
    status: grpc.StatusCode, times: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = calls_to(monkeypatch)
    fault = CallFault(status, "Request had no access.", matches=lambda call: call.reads_partition, times=times)
    with (
        served(split(), faults=FaultPlan(3, kinds=[FaultKind.UNAVAILABLE])) as server,
        proxied(server.host, fault) as proxy,
        authorised(proxy.host, tmp_path) as (endpoint, environment),
    ):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        node = settings(server, tmp_path / "spool", endpoint=endpoint, emulator_host=None)
        done = run("read", written(tmp_path / "config.yaml", node), "--verbose")
    assert done.code == code, done.err
    assert ("permission denied" in done.err) is (code == 1)
    assert (f"{status.name}: Request had no access." in done.err) is (times > 0)
    assert {call.headers["authorization"] for call in calls} == {f"Bearer {ACCESS_TOKEN}"}
    assert {call.headers["x-goog-user-project"] for call in calls} == {"quota"}
    key = (tmp_path / "key.pem").read_text().splitlines()[1:-1]
    for secret in (ACCESS_TOKEN, KEY_ID, *key, "Bearer"):
        assert secret not in done.err


# Debezium 1992; the migration tool 615
@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"])
def test_case_15_a_reader_that_catches_up_holds_no_more_than_its_budget(
    mode: PartitionMode,
) -> None:
    wide = (ReportedMod({"SingerId": "1"}, {"FirstName": "x" * 2000}, {}),)
    fast = [
        partition(
            f"fast {place}",
            0,
            [change(at(1) + 1000 * number + place, 1000 + 4 * number + place, mods=wide) for number in range(1000)],
        )
        for place in range(4)
    ]
    slow = partition("slow", 0, [change(at(1 + number / 5), number) for number in range(100)])
    plan = FaultPlan().rule(Fault(FaultKind.SLOWNESS, pause=2 * SECOND), token="slow", times=99)
    reading = read(stream(*fast, slow, mode=mode), faults=plan, now=31, budget=200_000)
    assert sum(len(epoch.records) for epoch in reading.epochs) == 4100
    assert 100_000 < reading.metrics.most_held < 450_000
