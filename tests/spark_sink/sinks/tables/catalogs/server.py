"""Iceberg's REST catalog server of its own tests, behind a gate that refuses requests when a test wants it to.

Ivy, which Spark brings, takes the server from Maven Central once for each environment.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

_LIBRARIES = Path(__file__).with_name("server.xml")
_CLASS_PATH = Path(sys.prefix, "catalog-server.classpath")
_JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
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
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.refusal is not None:
            self._fail(*self.server.refusal)
            return
        connection = HTTPConnection("127.0.0.1", self.server.behind)
        headers = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"} | {
        "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_REST_PORT": str(port),
    }
    command = [*_JAVA, "-cp", _class_path(), "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    gate = Gate(port)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _answers(port):
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


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/v1/config")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _class_path() -> str:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    jars = Path(spec.origin).parent / "jars"
    if not _CLASS_PATH.exists() or not all(map(os.path.exists, _CLASS_PATH.read_text().strip().split(os.pathsep))):
        (ivy,) = jars.glob("ivy-*.jar")
        made = _CLASS_PATH.with_suffix(".new")
        options = ["-ivy", str(_LIBRARIES), "-confs", "default", "-cachepath", str(made)]
        subprocess.run([*_JAVA, "-jar", str(ivy), *options], check=True, capture_output=True, timeout=2 * _PATIENCE)
        made.replace(_CLASS_PATH)
    return os.pathsep.join([_CLASS_PATH.read_text().strip(), *map(str, jars.glob("hadoop-client-*.jar"))])
