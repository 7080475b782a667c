"""A BigQuery server for tests: local-bigquery, which runs BigQuery's SQL on DuckDB.

It needs Python 3.13 and has a virtual environment of its own, which is created once inside the outermost one of the
tests. It has tables, load jobs, MERGE and the Storage Write API with pending streams. It lacks change data capture and
`max_staleness`, which `emulator.bigquery.double` has.
"""

import fcntl
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator.official import supervise
from tests.house.project import ROOT

_EXTENSIONS = ("icu", "ducklake", "spatial", "avro")
_REQUIREMENTS = (
    "local-bigquery==0.3.2",
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    *(f"duckdb-extension-{name}==1.5.5" for name in _EXTENSIONS),
)
_IMPORT = "import sys, duckdb_extensions\nfor name in sys.argv[1:]: duckdb_extensions.import_extension(name)"
_IS_WANTED = "import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 13))"
_MADE = "made-of.txt"


@dataclass(frozen=True, slots=True)
class LocalBigQuery:
    """A running server: its only project, and the addresses of its REST and gRPC interfaces."""

    project: str
    endpoint: str
    grpc_endpoint: str


@pytest.fixture(scope="session")
def local_bigquery_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBigQuery]:
    """The server, for the whole session; skips where it cannot be installed."""
    with serving(tmp_path_factory.mktemp("local-bigquery")) as server:
        yield server


@pytest.fixture
def local_bigquery(local_bigquery_server: LocalBigQuery) -> Iterator[LocalBigQuery]:
    """The server, whose datasets are deleted afterwards: a statement takes longer with each table that is there."""
    yield local_bigquery_server
    empty(local_bigquery_server)


def empty(server: LocalBigQuery) -> None:
    """Deletes all datasets but the server's own."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery

    options = {"api_endpoint": server.endpoint}
    with closing(bigquery.Client(server.project, AnonymousCredentials(), client_options=options)) as client:
        for dataset in list(client.list_datasets()):
            if dataset.dataset_id != server.project:
                client.delete_dataset(dataset.reference, delete_contents=True)


@contextmanager
def serving(data: Path) -> Iterator[LocalBigQuery]:
    """A server that keeps its tables in a folder, while the context is open; skips where it cannot be installed."""
    folder = _outermost(Path(sys.prefix)) / "local-bigquery"
    _make(folder)
    with _started(folder, data) as server:
        yield server


def _outermost(environment: Path) -> Path:
    """The environment that holds this one, or itself: those of older libraries are inside that of the tests."""
    while (environment.parent / "pyvenv.cfg").exists():
        environment = environment.parent
    return environment


def _make(folder: Path) -> None:
    """Creates the virtual environment, unless it exists and is complete."""
    made = "\n".join(_REQUIREMENTS)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        note = folder / _MADE
        if note.exists() and note.read_text() == made:
            return
        python = _find_python()
        shutil.rmtree(folder, ignore_errors=True)
        own, home = str(folder / "bin" / "python"), str(Path.home())
        for command, at_home in (
            ([python, "-m", "venv", str(folder)], home),
            ([str(ROOT / ".ci" / "install"), own, *_REQUIREMENTS], home),
            ([own, "-c", _IMPORT, *_EXTENSIONS], str(folder)),
        ):
            done = subprocess.run(command, capture_output=True, text=True, env=_environment(at_home), check=False)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                pytest.skip(f"local-bigquery cannot be installed here: {last}")
        note.write_text(made)


def _find_python() -> str:
    """A Python 3.13 that runs; pyenv's shims of other versions are on PATH and do not."""
    on_path = shutil.which("python3.13")
    found = [on_path] if on_path else []
    found += sorted(map(str, (Path.home() / ".pyenv" / "versions").glob("3.13*/bin/python3.13")))
    for python in found:
        if subprocess.run([python, "-c", _IS_WANTED], capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip("local-bigquery needs Python 3.13: there is no python3.13 on PATH nor in ~/.pyenv/versions")


def _environment(home: str) -> dict[str, str]:
    """The environment without this Python's variables; DuckDB keeps its extensions in the home folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"HOME": home}


@contextmanager
def _started(folder: Path, data: Path) -> Iterator[LocalBigQuery]:
    port, grpc_port = _free_ports()
    server = LocalBigQuery("local", f"http://127.0.0.1:{port}", f"127.0.0.1:{grpc_port}")
    options = {
        "host": "127.0.0.1",
        "port": port,
        "grpc-port": grpc_port,
        "project": server.project,
        "data-dir": data,
    }
    command = [
        str(folder / "bin" / "local-bigquery"),
        "serve",
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    log = data / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", supervise.__file__, str(os.getpid()), *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(str(folder)),
            start_new_session=True,
        )
    try:
        _wait_for(port, process, log)
        yield server
    finally:
        process.communicate()  # closes its standard input, so that the supervisor ends the group


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 180
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", "/bigquery/v2/projects")
            connection.getresponse().read()
        except OSError:
            assert process.poll() is None, f"local-bigquery ended: {log.read_text()}"
            assert time.monotonic() < deadline, f"local-bigquery does not answer: {log.read_text()}"
            time.sleep(0.02)
        else:
            return
        finally:
            connection.close()
