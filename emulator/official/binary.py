"""Finds the emulator's program on this machine, runs it, and leaves no process behind.

`gateway_main` serves REST and starts `emulator_main`, which serves gRPC. Both run in a separate session and process
group under `supervise.py`, which ends them when their owner ends. Their output goes to a temporary file; an error
message quotes it if they do not start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from emulator.errors import EmulatorFailedError, EmulatorNotFoundError
from emulator.official.connection import answers

_ATTEMPTS = 3
_SDK_FOLDERS = (
    "/usr/lib/google-cloud-sdk",
    "/usr/share/google-cloud-sdk",
    "/usr/local/share/google-cloud-sdk",
    "/usr/local/google-cloud-sdk",
    "/usr/local/lib/google-cloud-sdk",
    "/opt/google-cloud-sdk",
    "/opt/homebrew/share/google-cloud-sdk",
    "/google-cloud-sdk",
    "/snap/google-cloud-sdk/current",
    "~/google-cloud-sdk",
)


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator.

    `host` is its gRPC address ("127.0.0.1:9010"); `origin` says where it comes from: an emulator of the
    "environment" ran before and keeps running, a "binary" or a "container" ends with its context.
    """

    host: str
    origin: Literal["environment", "binary", "container"]


def find_binary() -> Path:
    """Finds `gateway_main`, with `emulator_main` beside it, on PATH or in a Google Cloud SDK.

    Raises EmulatorNotFoundError if there is none.
    """
    for folder in _folders():
        gateway = folder / "gateway_main"
        if gateway.is_file() and os.access(gateway, os.X_OK) and (folder / "emulator_main").is_file():
            return gateway
    raise EmulatorNotFoundError(
        "no Spanner emulator program on PATH or in a Google Cloud SDK: install it with"
        " `gcloud components install cloud-spanner-emulator` or the Debian package google-cloud-cli-spanner-emulator"
    )


def _folders() -> Iterator[Path]:
    on_path = shutil.which("gateway_main")
    if on_path:
        yield Path(on_path).parent
        yield Path(on_path).resolve().parent
    gcloud = shutil.which("gcloud")
    roots = [os.environ.get("CLOUDSDK_ROOT_DIR"), *_SDK_FOLDERS]
    if gcloud:
        roots.insert(1, str(Path(gcloud).resolve().parent.parent))
    for root in roots:
        if root:
            yield Path(root).expanduser() / "bin" / "cloud_spanner_emulator"


@contextmanager
def start_binary(
    *,
    churn_seconds: int | None = None,
    database_limit: int | None = None,
    binary: Path | None = None,
    deadline_seconds: float = 30.0,
) -> Iterator[Emulator]:
    """Runs the emulator's program on free ports of 127.0.0.1 while the context is open.

    `churn_seconds`: how long a change stream partition lasts, up to twice that (the emulator's default: 20 s).
    `database_limit`: databases per instance (the emulator's default: 100; it ignores a lower value).
    Raises EmulatorNotFoundError without the program (`binary`, else `find_binary()`), EmulatorFailedError if it does
    not answer within the deadline. If it ends by itself, other ports are tried first.
    """
    gateway = binary or find_binary()
    with tempfile.TemporaryDirectory(prefix="spanner-emulator-") as folder:
        log = Path(folder) / "output.log"
        process, host = _start(gateway, flags(churn_seconds, database_limit), log, deadline_seconds)
        try:
            yield Emulator(host, "binary")
        finally:
            _end(process)


def flags(churn_seconds: int | None, database_limit: int | None) -> list[str]:
    """Returns gateway_main's arguments for these settings; None keeps the emulator's default.

    Raises ValueError for numbers below 1.
    """
    settings = {
        "--override_change_stream_partition_token_alive_seconds": churn_seconds,
        "--override_max_databases_per_instance": database_limit,
    }
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ValueError(f"{name.removeprefix('--override_')} is {value}, and must be 1 or more")
    return [f"{name}={value}" for name, value in settings.items() if value is not None]


def _start(
    gateway: Path, settings: list[str], log: Path, deadline_seconds: float
) -> tuple[subprocess.Popen[bytes], str]:
    """Starts it on ports that were just free; tries others if another process took one in between."""
    for _ in range(_ATTEMPTS):
        grpc_port, http_port = free_ports(2)
        host = f"127.0.0.1:{grpc_port}"
        command = [
            *(str(gateway), "--hostname", "127.0.0.1", "--grpc_binary", str(gateway.parent / "emulator_main")),
            *("--grpc_port", str(grpc_port), "--http_port", str(http_port)),
            *settings,
        ]
        with log.open("wb") as output:
            process = _supervised(command, output)
        try:
            running = answers(host, seconds=deadline_seconds, while_true=_runs(process))
        except BaseException:
            _end(process)
            raise
        if running and process.poll() is None:
            return process, host
        ended = process.poll() is not None
        _end(process)
        if not ended:
            raise EmulatorFailedError(f"{gateway} did not answer in {deadline_seconds:g} s: {_last_lines(log)}")
    raise EmulatorFailedError(f"{gateway} ended at once, {_ATTEMPTS} times: {_last_lines(log)}")


def _runs(process: subprocess.Popen[bytes]) -> Callable[[], bool]:
    return lambda: process.poll() is None


def _supervised(command: list[str], output: BinaryIO) -> subprocess.Popen[bytes]:
    supervisor = str(Path(__file__).with_name("supervise.py"))
    return subprocess.Popen(  # noqa: S603 - the command is built here
        [sys.executable, "-I", "-S", supervisor, str(os.getpid()), *command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the supervisor, which ends its group, and waits; then ends what a killed supervisor left behind."""
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Returns ports of 127.0.0.1 on which nothing listens."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(listener.getsockname()[1]) for listener in listeners]


def _last_lines(log: Path, count: int = 5) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-count:]) or "it printed nothing"
