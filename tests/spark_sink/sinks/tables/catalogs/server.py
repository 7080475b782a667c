"""Servers of catalogs, each behind a gate that refuses requests when a test wants it to.

They are Iceberg's REST catalog server of its own tests, and Project Nessie's. Ivy, which Spark brings, takes a server
from Maven Central once for each environment.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
_NESSIE_JAVA = 21
_PATIENCE = 300.0


class Gate(ThreadingHTTPServer):
    """Passes requests on to a server on this machine.

    Attributes:
        refusal: the status and the type of the error that every request gets; None to pass them on.
        lost: the number of commits to tables whose answers are to be lost: they are done, and an error is returned.
    """

    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.behind = behind
        self.refusal: tuple[int, str] | None = None
        self.lost = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Request(BaseHTTPRequestHandler):
    server: Gate
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self._body()
        if self.server.refusal is not None:
            self._fail(*self.server.refusal)
            return
        connection = HTTPConnection("127.0.0.1", self.server.behind)
        headers = {"Content-Type": "application/json"}
        headers |= {name: self.headers[name] for name in ("Content-Type", "Content-Encoding") if name in self.headers}
        connection.request(self.command, self.path, body, headers)
        found = connection.getresponse()
        answer = found.read()
        connection.close()
        if self.server.lost and self.command == "POST" and self.path.rpartition("/")[0].endswith("/tables"):
            self.server.lost -= 1
            self._fail(500, "InternalServerError")
            return
        self._answer(found.status, answer)

    do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815 - the library's names

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _fail(self, status: int, kind: str) -> None:
        error = {"message": f"refused: {kind}", "type": kind, "code": status}
        self._answer(status, json.dumps({"error": error}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def rest_catalog(folder: Path) -> Iterator[Gate]:
    """The gate of a server whose tables are in a folder."""
    port = _free_port()
    environment = {
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_REST_PORT": str(port),
    }
    libraries = [class_path("server"), *map(str, _jars().glob("hadoop-client-*.jar"))]
    command = ["java", *_QUICK, "-cp", os.pathsep.join(libraries), "org.apache.iceberg.rest.RESTCatalogServer"]
    with _gate(folder, command, environment, port, "/v1/config") as gate:
        yield gate


@contextmanager
def nessie_catalog(folder: Path, java: str) -> Iterator[Gate]:
    """The gate of Project Nessie's server, which keeps its catalog in memory.

    Args:
        folder: for its log.
        java: the path of a Java of version 21 or newer.
    """
    port = _free_port()
    options = {
        "nessie.version.store.type": "IN_MEMORY",
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.enabled": "false",
        "quarkus.otel.sdk.disabled": "true",
    }
    command = [java, *_QUICK, *(f"-D{name}={value}" for name, value in options.items()), "-jar", class_path("nessie")]
    with _gate(folder, command, {}, port, "/api/v2/config") as gate:
        yield gate


def new_java() -> str | None:
    """The path of a Java of version 21 or newer, which Nessie needs; None if none is found."""
    found = [shutil.which("java"), *map(str, sorted(Path("/usr/lib/jvm").glob("*/bin/java")))]
    return next((path for path in found if path is not None and _version(path) >= _NESSIE_JAVA), None)


def class_path(name: str) -> str:
    """The jars of a server, as the file of that name lists them; Ivy fetches them once."""
    made = Path(sys.prefix, f"catalog-{name}.classpath")
    if not made.exists() or not all(map(os.path.exists, made.read_text().strip().split(os.pathsep))):
        (ivy,) = _jars().glob("ivy-*.jar")
        new, libraries = made.with_suffix(".new"), Path(__file__).with_name(f"{name}.xml")
        options = ["-ivy", str(libraries), "-confs", "default", "-cachepath", str(new)]
        subprocess.run(["java", *_QUICK, "-jar", str(ivy), *options], check=True, capture_output=True, timeout=600)
        new.replace(made)
    return made.read_text().strip()


@contextmanager
def _gate(
    folder: Path, command: Sequence[str], environment: Mapping[str, str], port: int, answered: str
) -> Iterator[Gate]:
    own = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env={**own, **environment}, stdout=log, stderr=log)
    gate = Gate(port)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _answers(port, answered):
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        threading.Thread(target=gate.serve_forever, name="gate", daemon=True).start()
        yield gate
        gate.shutdown()
    finally:
        gate.server_close()
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _answers(port: int, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _version(java: str) -> int:
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found else 0


def _jars() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"
