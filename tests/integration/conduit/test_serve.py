"""`serve` gives Conduit the records that `tail` prints, and continues after each position without a loss."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGKILL

import grpc
import pytest

from connector.core.position import Position
from connector.core.timestamps import SECOND, parse
from tests.connector.envelope.conduit import ConduitRecord
from tests.integration.commands import environment, run
from tests.integration.conduit.grpc_host import GrpcHost
from tests.integration.conduit.plugins import CONDUIT, plugin_at, settings_of
from tests.integration.conduit.scripted import drawn, records_after


@contextmanager
def running(folder: Path, settings: dict[str, str], position: bytes = b"") -> Iterator[GrpcHost]:
    """A plugin that runs."""
    with GrpcHost(plugin_at(folder), folder / "log") as host:
        host.configure(settings)
        host.open(position)
        host.run()
        yield host


def timeless(records: list[ConduitRecord]) -> list[ConduitRecord]:
    """The records without the time of reading."""
    return [
        replace(record, metadata={name: text for name, text in record.metadata.items() if name != "opencdc.readAt"})
        for record in records
    ]


@pytest.mark.long
def test_conduit_gets_the_records_that_tail_prints_and_from_each_position_the_rest(tmp_path: Path) -> None:
    with drawn(11, value_capture_type="NEW_ROW_AND_OLD_VALUES") as server:
        expected = records_after(server)
        settings = settings_of(server)
        with running(tmp_path, settings) as host:
            found = host.records(len(expected))
            assert timeless(found) == expected
            assert host.stop() == found[-1].position
            host.teardown()
            assert host.shut_down() == 0
        for index in (len(expected) // 2, len(expected) - 2):
            with running(tmp_path, {**settings, "workers": "2"}, found[index].position) as host:
                assert timeless(host.records(len(expected) - index - 1)) == expected[index + 1 :]


@pytest.mark.long
def test_a_source_that_is_stopped_before_its_first_record_has_no_last_position(tmp_path: Path) -> None:
    with drawn(11) as server:
        last = records_after(server)[-1]
        with running(tmp_path, settings_of(server), last.position) as host:
            assert host.stop() == b""
            assert host.waiting() == []


@pytest.mark.long
def test_what_was_not_acknowledged_is_repeated(tmp_path: Path) -> None:
    with drawn(11) as server:
        expected = records_after(server)
        settings = settings_of(server)
        with running(tmp_path, settings) as host:
            kept = host.records(7)[-1].position
            host.process.send_signal(SIGKILL)
        with running(tmp_path, settings, kept) as host:
            assert timeless(host.records(len(expected) - 7)) == expected[7:]


@pytest.mark.long
def test_settings_that_are_wrong_are_named_to_conduit_all_at_once(tmp_path: Path) -> None:
    with GrpcHost(plugin_at(tmp_path), tmp_path / "log") as host:
        with pytest.raises(grpc.RpcError) as caught:
            host.configure({"project": "p", "instance": "in", "change_stream": "s", "start": "now", "x": "y"})
        for name in ("x", "database", "start"):
            assert f"{name}: " in caught.value.details()
        assert host.shut_down() == 0


def errors_in(log: Path) -> list[dict[str, str]]:
    """The errors in a plugin's log, every line of which is one of hclog's."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if line["@level"] == "error"]


@pytest.mark.long
def test_conduits_log_has_why_settings_and_positions_are_refused(tmp_path: Path) -> None:
    with drawn(11) as server, GrpcHost(plugin_at(tmp_path), tmp_path / "log") as host:
        with pytest.raises(grpc.RpcError):
            host.configure({**settings_of(server), "x": "y"})
        (refused,) = errors_in(tmp_path / "log")
        assert refused["@message"] == "the settings are refused"
        assert refused["why"] == "x: there is no such setting"
        host.configure(settings_of(server))
        with pytest.raises(grpc.RpcError):
            host.open(b"{}")
        *_, refused = errors_in(tmp_path / "log")
        assert refused["@message"] == "the position is refused"
        assert "delete the pipeline and create it again with a start" in refused["why"]


@pytest.mark.long
def test_a_position_older_than_the_stream_is_refused_with_what_helps(tmp_path: Path) -> None:
    with drawn(11) as server:
        scenario = server.engine.scenario
        name = f"{scenario.project}/{scenario.instance}/{scenario.database}/{scenario.change_stream}"
        position = Position(name, scenario.history.origin - 10 * SECOND, "t", "1", 0)
        with running(tmp_path, settings_of(server), position.to_bytes()) as host:
            with pytest.raises(grpc.RpcError) as caught:
                host.records(1)
            start = re.search(r"delete the pipeline and create it again with start (\S+)$", caught.value.details())
        assert start is not None
        every = records_after(server)
        expected = [one for one in every if Position.from_bytes(one.position).commit_timestamp >= parse(start[1])]
        assert len(expected) > 100
        with running(tmp_path, {**settings_of(server), "start": start[1]}) as host:
            assert timeless(host.records(len(expected))) == expected


@pytest.mark.long
def test_a_stream_that_there_is_not_is_named_to_conduit(tmp_path: Path) -> None:
    with drawn(11) as server, running(tmp_path, {**settings_of(server), "change_stream": "Other"}) as host:
        with pytest.raises(grpc.RpcError) as caught:
            host.records(1)
        assert "Other" in caught.value.details()


@pytest.mark.long
def test_ctrl_c_is_left_to_conduit(tmp_path: Path) -> None:
    with drawn(11) as server:
        expected = records_after(server)
        with running(tmp_path, settings_of(server)) as host:
            host.process.send_signal(SIGINT)
            assert len(host.records(len(expected))) == len(expected)
            assert host.process.poll() is None


@pytest.mark.long
def test_a_plugin_ends_after_conduit_was_killed(tmp_path: Path) -> None:
    plugin = plugin_at(tmp_path)
    program = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(plugin)!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | CONDUIT) as conduit:
        assert conduit.stdout is not None
        child = int(conduit.stdout.readline())
        conduit.kill()
    deadline = time.monotonic() + 300
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < deadline, "the plugin lives on"
        time.sleep(0.1)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"PLUGIN_PROTOCOL_VERSIONS": "1"}, "speaks version 1 of the connector protocol"),
        ({"PLUGIN_CLIENT_CERT": "x"}, "wants an encrypted connection"),
        ({"PLUGIN_UNIX_SOCKET_DIR": "/tmp/" + 100 * "x"}, f"/tmp/{100 * 'x'}: its path is too long for a socket"),
        ({"PLUGIN_UNIX_SOCKET_DIR": "/proc/none"}, "/proc/none: no socket can be created in it: No such file"),
    ],
)
def test_a_refusal_of_a_conduit_is_an_error_in_its_log(given: dict[str, str], why: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "connector", "serve"],
        env=environment(None) | CONDUIT | given,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    line = json.loads(done.stderr)
    assert line["@level"] == "error"
    assert why in line["@message"]


@pytest.mark.long
def test_a_long_folder_of_temporary_files_does_not_keep_the_plugin_from_starting(tmp_path: Path) -> None:
    folder = tmp_path / (100 * "x")
    folder.mkdir()
    with GrpcHost(plugin_at(tmp_path), tmp_path / "log", env={"TMPDIR": str(folder)}) as host:
        assert host.shut_down() == 0


def test_without_conduit_the_command_says_how_it_is_started() -> None:
    done = run("serve")
    assert done.code == 2
    assert "serve is started by Conduit: put an executable file" in done.complaint
