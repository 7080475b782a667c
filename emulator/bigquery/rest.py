"""The REST interface of the BigQuery double: an HTTP server for the requests of Google's client."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from emulator.bigquery.catalog import Catalog
from emulator.bigquery.jobs import Jobs
from emulator.bigquery.refusals import Reason, RefusedError, invalid
from emulator.bigquery.schema import Json
from emulator.bigquery.table_resources import TableResources
from emulator.bigquery.traffic import Traffic

_BASE = "/bigquery/v2/projects/"
_UPLOAD = f"/upload{_BASE}"
_STATUS = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS",
           412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}  # fmt: skip


class _Request(NamedTuple):
    """The path's variable parts, the query's parameters, the etag of If-Match, and the body."""

    parts: tuple[str, ...]
    parameters: dict[str, str]
    if_match: str | None
    body: Json


_Answer = Callable[[_Request], Json]


class BigQueryRest:
    """Answers requests; may be called from many threads."""

    def __init__(self, catalog: Catalog, traffic: Traffic, *, count_jobs: bool = False) -> None:
        self.traffic = traffic
        self._catalog = catalog
        self._tables = TableResources(catalog)
        self._jobs = Jobs(catalog, traffic.meter if count_jobs else None)
        tables = r"datasets/([^/]+)/tables"
        routes: list[tuple[str, str, str, _Answer]] = [
            ("datasets.insert", "POST", r"datasets", lambda request: catalog.insert_dataset(request.body)),
            ("datasets.get", "GET", r"datasets/([^/]+)", lambda request: catalog.dataset(request.parts[0])),
            ("tables.insert", "POST", tables, lambda request: self._tables.insert(request.parts[0], request.body)),
            ("tables.list", "GET", tables, lambda request: self._tables.list_all(request.parts[0])),
            ("tables.get", "GET", rf"{tables}/([^/]+)", self._get_table),
            ("tables.patch", "PATCH", rf"{tables}/([^/]+)", self._patch_table),
            ("tables.delete", "DELETE", rf"{tables}/([^/]+)", self._delete_table),
            ("jobs.insert", "POST", r"jobs", lambda request: self._jobs.insert(request.body)),
            ("jobs.get", "GET", r"jobs/([^/]+)", self._get_job),
            ("jobs.query", "POST", r"queries", lambda request: self._jobs.query(request.body)),
            ("jobs.getQueryResults", "GET", r"queries/([^/]+)", self._get_results),
        ]
        self._routes = [(name, method, re.compile(path), answer) for name, method, path, answer in routes]

    def answer(self, method: str, target: str, if_match: str | None, body: bytes) -> tuple[int, Json | None]:
        """Returns the HTTP status and the document of the response, None without a document."""
        try:
            name, parts, route = self._route(method, urlsplit(target).path)
            failure = self.traffic.request(name, rest=True)
            if failure is not None and not failure.after:
                return failure.status, _error(failure.status, failure.reason, failure.message)
            parameters = {key: values[-1] for key, values in parse_qs(urlsplit(target).query).items()}
            read = _read_upload(body) if target.startswith(_UPLOAD) else _read(body)
            document = route(_Request(parts, parameters, if_match, read))
            if failure is not None:
                return failure.status, _error(failure.status, failure.reason, failure.message)
        except RefusedError as error:
            return error.reason.status, _error(error.reason.status, error.reason.word, error.message)
        return (200, document) if document else (204, None)

    def _route(self, method: str, path: str) -> tuple[str, tuple[str, ...], _Answer]:
        base = _UPLOAD if path.startswith(_UPLOAD) else _BASE
        if path.startswith(base):
            project, _, rest = path.removeprefix(base).partition("/")
            is_job = rest.startswith(("jobs", "queries"))  # which another project may run, and be billed for
            if unquote(project) != self._catalog.project and not is_job:
                raise RefusedError(Reason.NOT_FOUND, f"Not found: Project {unquote(project)}")
            for name, of, pattern, answer in self._routes:
                match = pattern.fullmatch(rest)
                if match is not None and method == of:
                    return name, tuple(map(unquote, match.groups())), answer
        raise RefusedError(Reason.NOT_IMPLEMENTED, f"The double does not serve {method} {path}")

    def _get_table(self, request: _Request) -> Json:
        with self._catalog.lock:
            return self._tables.show(self._catalog.table(*request.parts))

    def _patch_table(self, request: _Request) -> Json:
        dataset, table = request.parts
        return self._tables.patch(dataset, table, request.body, request.if_match)

    def _delete_table(self, request: _Request) -> Json:
        self._catalog.remove(*request.parts)
        return {}

    def _get_job(self, request: _Request) -> Json:
        return self._jobs.get(request.parts[0], request.parameters.get("location"))

    def _get_results(self, request: _Request) -> Json:
        return self._jobs.results(request.parts[0], request.parameters.get("location"))


def _read(body: bytes) -> Json:
    if not body:
        return {}
    try:
        read = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"Invalid JSON payload received: {error}") from error
    if not isinstance(read, dict):
        raise invalid("Invalid JSON payload received: it is not an object")
    return read


def _read_upload(body: bytes) -> Json:
    """Reads the job in a multipart upload, with the number of bytes that it loads."""
    boundary, _, _ = body.partition(b"\r\n")
    parts = [part.partition(b"\r\n\r\n")[2] for part in body.split(boundary)[1:3]]
    if not boundary.startswith(b"--") or len(parts) < 2:
        raise RefusedError(Reason.NOT_IMPLEMENTED, "The double supports only uploads in a single request")
    return {**_read(parts[0].strip()), "uploaded": len(parts[1]) - 2}


def _error(status: int, reason: str, message: str) -> Json:
    error: dict[str, Any] = {"message": message, "domain": "global", "reason": reason}
    return {"error": {"code": status, "message": message, "errors": [error], "status": _STATUS.get(status, "INTERNAL")}}


@contextmanager
def serving_rest(rest: BigQueryRest) -> Iterator[int]:
    """Serves on a port of 127.0.0.1 while the context is open; yields the port."""
    server = _RestServer(rest)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="BigQuery double, REST")
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.close_connections()
        server.server_close()


class _RestServer(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, rest: BigQueryRest) -> None:
        super().__init__(("127.0.0.1", 0), _RestHandler)
        self.rest = rest
        self._open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Closes the connections that clients keep open, so that their threads end."""
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _RestHandler(BaseHTTPRequestHandler):
    server: _RestServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # a response is sent in one segment

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, document = self.server.rest.answer(self.command, self.path, self.headers.get("If-Match"), body)
        data = b"" if document is None else orjson.dumps(document)
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815 - the library's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Logs nothing."""
