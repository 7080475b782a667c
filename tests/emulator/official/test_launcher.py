import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import EmulatorFailedError, EmulatorNotFoundError, SampleDatabase, connect, find_or_start, start_binary
from emulator.official import binary, launcher
from emulator.official.connection import answers

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_emulator_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)


def processes_with(text: str) -> list[str]:
    """Returns the command lines of running processes that contain the text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[str]]:
    """Starts a process that owns an emulator, as the command line does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator", "start", "--churn-seconds", "7"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def host_of(owner: subprocess.Popen[str]) -> str:
    assert owner.stdout is not None
    name, _, host = owner.stdout.readline().strip().partition("=")
    assert name == "SPANNER_EMULATOR_HOST"
    return host


@pytest.mark.emulator
def test_an_emulator_started_here_answers_and_leaves_no_process_behind() -> None:
    with start_binary() as emulator:
        assert emulator.origin == "binary"
        assert answers(emulator.host, seconds=60)
        port = emulator.host.rpartition(":")[2]
        assert len(processes_with(port)) == 3
    assert processes_with(port) == []
    assert not answers(emulator.host, seconds=0.3)


@pytest.mark.emulator
def test_an_emulator_ends_when_the_block_that_used_it_raises() -> None:
    with pytest.raises(KeyError), start_binary() as emulator:
        raise KeyError
    assert processes_with(emulator.host.rpartition(":")[2]) == []


@pytest.mark.long
@pytest.mark.emulator
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_emulator_ends_with_the_process_that_owns_it(owner: subprocess.Popen[str], number: signal.Signals) -> None:
    host = host_of(owner)
    port = host.rpartition(":")[2]
    assert answers(host, seconds=60)
    owner.send_signal(number)
    assert owner.wait(timeout=300) == (-9 if number == signal.SIGKILL else 0)
    assert eventually(lambda: processes_with(port) == [])


@pytest.mark.emulator
def test_the_emulator_ends_with_its_context_even_if_its_supervisor_was_killed() -> None:
    with start_binary() as emulator:
        port = emulator.host.rpartition(":")[2]
        (supervisor,) = (
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if b"supervise.py" in (line := _command_line(folder)) and port.encode() in line
        )
        os.kill(supervisor, signal.SIGKILL)
    assert eventually(lambda: processes_with(port) == [])


def _command_line(folder: Path) -> bytes:
    try:
        return (folder / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.emulator
def test_the_churn_setting_and_the_database_limit_reach_the_emulator() -> None:
    with start_binary(churn_seconds=7, database_limit=321) as emulator:
        (command,) = (line for line in processes_with(emulator.host) if "emulator_main --host_port" in line)
    assert "--override_change_stream_partition_token_alive_seconds=7" in command
    assert "--override_max_databases_per_instance=321" in command


@pytest.mark.emulator
def test_two_emulators_can_be_used_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_binary() as first, start_binary() as second:
        monkeypatch.setenv("SPANNER_EMULATOR_HOST", first.host)
        sample = SampleDatabase.create(second.host)
        assert [database.name for database in _databases(second.host)] == [sample.path]
        assert list(connect(first.host, sample.project).list_instances()) == []


def _databases(host: str) -> list[Any]:
    return list(connect(host, "sample-project").instance("sample-instance").list_databases())


@pytest.mark.emulator
def test_the_environments_emulator_is_used_and_left_running(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_binary() as running:
        monkeypatch.setenv("SPANNER_EMULATOR_HOST", running.host)
        with find_or_start(churn_seconds=3, environment_seconds=60) as emulator:
            assert (emulator.host, emulator.origin) == (running.host, "environment")
        assert answers(running.host, seconds=60)


def test_an_emulator_of_the_environment_that_does_not_answer_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", host)
    with pytest.raises(EmulatorNotFoundError) as raised, find_or_start(environment_seconds=0.5):
        pass
    assert host in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_program_and_engine_one_line_says_how_to_get_an_emulator(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setattr(binary, "_SDK_FOLDERS", ())
    with pytest.raises(EmulatorNotFoundError) as raised, find_or_start():
        pass
    message = str(raised.value)
    assert "\n" not in message
    for way_out in (
        "gcloud components install",
        "google-cloud-cli-spanner-emulator",
        "Docker",
        "SPANNER_EMULATOR_HOST",
    ):
        assert way_out in message


def test_a_gateway_without_emulator_main_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone, whole = tmp_path / "alone", tmp_path / "bin" / "cloud_spanner_emulator"
    for folder, names in ((alone, ["gateway_main"]), (whole, ["gateway_main", "emulator_main"])):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(alone))
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(tmp_path))
    assert binary.find_binary() == whole / "gateway_main"


def test_a_program_that_ends_at_once_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    program = tmp_path / "gateway_main"
    program.write_text("#!/bin/sh\necho the disk is full >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(EmulatorFailedError, match="the disk is full"), start_binary(binary=program):
        pass


def test_a_program_that_never_answers_is_ended_at_the_deadline(tmp_path: Path) -> None:
    program = tmp_path / "gateway_main"
    program.write_text("#!/bin/sh\nexec sleep 1000\n")
    program.chmod(0o755)
    with (
        pytest.raises(EmulatorFailedError, match=r"did not answer in 0\.5 s"),
        start_binary(binary=program, deadline_seconds=0.5),
    ):
        pass
    assert processes_with(str(program)) == []


@pytest.mark.emulator
def test_a_port_in_use_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ports = iter([[port, *binary.free_ports(1)], binary.free_ports(2)])
        monkeypatch.setattr(binary, "free_ports", lambda _count: next(ports))
        with start_binary() as emulator:
            assert emulator.host != f"127.0.0.1:{port}"


@pytest.mark.parametrize("settings", [{"churn_seconds": 0}, {"database_limit": -1}])
def test_settings_below_one_are_rejected(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        binary.flags(settings.get("churn_seconds"), settings.get("database_limit"))


def test_the_launcher_exports_the_packages_names() -> None:
    assert launcher.find_or_start is find_or_start
