"""The plugin under Conduit's own code: its client of the connector protocol, and Conduit as a whole.

Both are in Go, and are built from published modules, which takes minutes: where there is no Go, or no way to those,
they are skipped. `test_serve.py` speaks the same protocol from Python.
"""

import os
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import get_args

import pytest

from emulator import Scenario, ScriptedServer
from emulator.scenario.history import PartitionMode
from tests.connector.envelope.conduit import ConduitRecord
from tests.integration.conduit.comparison import differences
from tests.integration.conduit.conduit_pipeline import Conduit, build_conduit, conduit
from tests.integration.conduit.go_host import Host, Message, build_host, go
from tests.integration.conduit.plugins import plugin_at, settings_of
from tests.integration.conduit.scripted import drawn, records_after

pytestmark = pytest.mark.slow

SCHEMAS = {f"sdk.schema.extract.{part}.enabled": "true" for part in ("key", "payload")}


def built(build: Callable[[Path], Path], folder: Path) -> Path:
    """The programs that Go has built; skips the test where Go cannot get at the sources."""
    if go() is None:
        pytest.skip("there is no Go to build Conduit's code with")
    try:
        return build(folder)
    except subprocess.CalledProcessError as error:
        why = (getattr(error, "__notes__", [""])[0].strip().splitlines() or [""])[-1]
        if any(sign in why for sign in ("dial tcp", "no such host", "403 Forbidden", "404 Not Found", "timeout")):
            pytest.skip(f"Go cannot get Conduit's code: {why}")
        raise


@pytest.fixture(scope="module")
def host_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(build_host, tmp_path_factory.mktemp("host"))


@pytest.fixture(scope="module")
def conduit_binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(build_conduit, tmp_path_factory.mktemp("conduit"))


def started(host: Host, settings: dict[str, str], position: str = "") -> None:
    commands: tuple[Message, ...] = (
        {"do": "configure", "config": settings},
        {"do": "created", "config": settings},
        {"do": "open", "position": position},
    )
    for command in commands:
        assert host.ask(command) == {"done": command["do"]}
    host.send({"do": "run"})


def test_conduits_client_gets_what_tail_prints_and_ends_the_plugin_in_good_order(
    host_binary: Path, tmp_path: Path
) -> None:
    plugin = plugin_at(tmp_path)
    with drawn(11, value_capture_type="NEW_ROW_AND_OLD_VALUES") as server:
        expected = records_after(server)
        settings = settings_of(server)
        with Host(host_binary, plugin) as host:
            specified = host.ask({"do": "specify"})["specification"]
            assert isinstance(specified, dict)
            assert specified["name"] == "spanner-cdc"
            assert settings.keys() - {"emulator_host", "project", "instance"} == {  # Spanner Omni's are default
                name for name, about in specified["source_params"].items() if about["validations"]
            }
            started(host, settings | SCHEMAS)
            found = host.records(len(expected))
            last = found[-1]["position"]
            assert host.ask({"do": "stop"}) == {"stopped": last}
            assert host.ask({"do": "teardown"}) == {"done": "teardown"}
            assert host.ask({"do": "kill"}) == {"exited": True, "status": "exit status 0"}
            assert "reading has failed" not in host.log
        for each, one in zip(found, expected, strict=True):
            assert (b64decode(str(each["position"])), each["operation"]) == (one.position, one.operation)
            assert_decoded(each, one)
        middle = len(expected) // 2
        with Host(host_binary, plugin) as host:
            started(host, settings, str(found[middle]["position"]))
            rest = host.records(len(expected) - middle - 1)
            assert [each["position"] for each in rest] == [each["position"] for each in found[middle + 1 :]]


def assert_decoded(record: Message, structured: ConduitRecord) -> None:
    """Checks that a record, as Conduit writes it to JSON, was decoded by its schemas and is what `tail` prints."""
    payload, metadata = record["payload"], record["metadata"]
    assert isinstance(payload, dict)
    assert isinstance(metadata, dict)
    assert "opencdc.key.schema.version" in metadata
    for one, other in (
        (record["key"], structured.key),
        (payload["before"], structured.before),
        (payload["after"], structured.after),
    ):
        assert isinstance(one, dict) == (other is not None)
        if isinstance(one, dict) and other is not None:
            assert differences(one, other) == []


def test_conduits_client_gets_our_error_of_a_stream_that_there_is_not(host_binary: Path, tmp_path: Path) -> None:
    with drawn(11) as server, Host(host_binary, plugin_at(tmp_path)) as host:
        started(host, {**settings_of(server), "change_stream": "Other"})
        failed = host.answer()
        assert failed["of"] == "run"
        assert "Other" in str(failed["error"])
        host.log_has("[ERROR]")


@pytest.mark.timeout(1800)
def test_a_pipelines_destination_decodes_keys_and_payloads_by_the_schemas_in_conduits_registry(
    conduit_binary: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    with drawn(11, value_capture_type="OLD_AND_NEW_VALUES") as server:
        expected = records_after(server)
        settings = settings_of(server) | SCHEMAS
        state, plugin = tmp_path / "state", plugin_at(tmp_path)
        with conduit(state, conduit_binary, plugin, settings, out, name="spanner-cdc") as pipeline:
            found = pipeline.await_records(len(expected))
            assert pipeline.stop() == 0
    for each, one in zip(found, expected, strict=True):
        assert (b64decode(str(each["position"])), each["operation"]) == (one.position, one.operation)
        assert_decoded(each, one)


_SECONDS = 180
_KILLS = 8


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", get_args(PartitionMode))
def test_a_pipeline_loses_nothing_while_conduit_and_the_plugin_are_killed(
    mode: PartitionMode, conduit_binary: Path, tmp_path: Path
) -> None:
    begins = time.time_ns()
    scenario = Scenario.generate(7, origin=begins, seconds=_SECONDS, mode=mode, transactions=4_000)
    random, killed = Random(1), list[str]()
    with ScriptedServer.started(scenario, begins=begins) as server:
        settings = {**settings_of(server), "heartbeat": "1s"}
        out = tmp_path / "out.jsonl"
        with conduit(
            tmp_path / "state", conduit_binary, plugin_at(tmp_path), settings, out, name="spanner-cdc"
        ) as pipeline:
            while len(killed) < _KILLS:
                pipeline.await_records(len(pipeline.records) + 1)
                time.sleep(random.uniform(0, 2))
                killed.append(("conduit", "stop", "plugin")[len(killed) % 3])
                end(pipeline, killed[-1])
                pipeline.start()
            expected = [record.position for record in records_after(server, timeout=2 * _SECONDS)]
            pipeline.await_log("source connector plugin successfully started", times=len(killed) + 1)
            await_position(pipeline, expected[-1])
            assert pipeline.stop() == 0
            pipeline.await_no_plugins()
            found = [b64decode(str(record["position"])) for record in pipeline.records]
    repeated = len(found) - len(expected)
    sys.stdout.write(f"{len(expected)} mods; ended: {', '.join(killed)}; {repeated} records were repeated\n")
    assert once_in_order(found, expected, rewinds=len(killed) - killed.count("stop")) == [], killed


def end(pipeline: Conduit, what: str) -> None:
    """Kills Conduit, or its plugin and then Conduit; or lets Conduit stop."""
    if what == "stop":
        assert pipeline.stop() == 0
    elif what == "plugin":
        for process in pipeline.plugins:
            os.kill(process, SIGKILL)
        pipeline.kill()
    else:
        pipeline.kill()
    pipeline.await_no_plugins()


def await_position(pipeline: Conduit, position: bytes) -> None:
    text = b64encode(position).decode()
    deadline = time.monotonic() + 300
    while not any(record["position"] == text for record in pipeline.records[-1000:]):
        assert time.monotonic() < deadline, pipeline.log[-5:]
        time.sleep(0.5)


def once_in_order(found: list[bytes], expected: list[bytes], *, rewinds: int) -> list[str]:
    """The faults of records that may be repeated: a gap, or too many repeats."""
    order = {position: number for number, position in enumerate(expected)}
    faults, last, back = list[str](), -1, 0
    for position in found:
        number = order.get(position)
        if number is None or number > last + 1:
            faults.append(f"{position!r} came after number {last} of {len(expected)}")
        back += number is not None and number <= last
        last = last if number is None else number
    if back > rewinds:
        faults.append(f"records were repeated {back} times after {rewinds} kills")
    return faults if last == len(expected) - 1 else [*faults, f"the last one is number {last} of {len(expected)}"]
