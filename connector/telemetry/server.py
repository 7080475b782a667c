"""Serves the status page, ``/healthz``, ``/readyz``, ``/metrics`` and ``/api/status``, on loopback unless configured.

The server has a thread and an event loop of its own: a busy reader delays no answer, and many clients get the same
answer, made once a second.
"""

import asyncio
import hmac
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from importlib import resources

import msgspec
import orjson
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from yarl import URL

from connector.config.address import is_loopback
from connector.config.loading import Config
from connector.config.sections import StatusConfig
from connector.log import Log
from connector.spool.reading import Spool
from connector.telemetry.consumers import ConsumerStates
from connector.telemetry.document import schema
from connector.telemetry.exporter import registry_of
from connector.telemetry.history import INTERVAL
from connector.telemetry.listening import Connections, no_listening
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.status import Reporter
from connector.threads import first_of, in_background

_KEPT = 1.0
"""Seconds that an answer is served again before a new one is made."""
_TURN = 1.0
"""Seconds between two signs of life of the reader's event loop."""
_MOST, _PATIENCE, _IDLE = 100, 10.0, 75.0
"""Connections at once, and the seconds that one is kept before its first request and between two."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""The file and the content type of each path of the page."""
_JSON = "application/json"
_OPEN = (*_PAGE, "/healthz", "/readyz")
"""Paths that need no token: the page has no data of its own, and probes of Kubernetes cannot send a secret."""

_log = Log(__name__)


@asynccontextmanager
async def serving(config: Config, metrics: ReaderMetrics) -> AsyncIterator[None]:
    """Serves the status while the context is open; without a free port it only logs a warning."""
    consumers = ConsumerStates(Spool.at(config.spool.path))
    reporter = Reporter(config, metrics, consumers)
    server = _Server(config.status, reporter, registry_of(metrics, consumers, config.source), metrics, consumers)
    port = await asyncio.to_thread(server.start)
    if port is None:
        yield
        return
    if not is_loopback(config.status.host) and not config.status.token:
        _log.warning("the status page is open to the network: set status.token", host=config.status.host)
    _log.info("status page", url=f"http://{config.status.host}:{port}/")
    try:
        async with in_background(_turn(reporter), name="signs of life"):
            yield
    finally:
        await asyncio.to_thread(server.stop)


async def _turn(reporter: Reporter) -> None:
    while True:
        reporter.turned = time.monotonic()
        await asyncio.sleep(_TURN)


@lru_cache(maxsize=64)
def _host(header: str) -> str:
    """The host of a Host header without its port; empty if it is not one."""
    try:
        return URL(f"http://{header}").host or ""
    except ValueError:
        return ""


class _Kept:
    """An answer that is made at most once a second."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._body = b""
        self._made = -_KEPT

    def body(self) -> bytes:
        if time.monotonic() - self._made >= _KEPT:
            self._body = self._make()
            self._made = time.monotonic()
        return self._body


class _Server:
    def __init__(
        self,
        config: StatusConfig,
        reporter: Reporter,
        registry: CollectorRegistry,
        metrics: ReaderMetrics,
        consumers: ConsumerStates,
    ) -> None:
        self._config = config
        self._reporter = reporter
        self._metrics = metrics
        self._consumers = consumers
        folder = resources.files(__package__) / "page"
        self._answers = {
            path: (kind, _Kept(partial(bytes, (folder / name).read_bytes()))) for path, (name, kind) in _PAGE.items()
        } | {
            "/metrics": (CONTENT_TYPE_LATEST, _Kept(lambda: generate_latest(registry))),
            "/api/status": (_JSON, _Kept(lambda: msgspec.json.encode(reporter.status()))),
            "/api/status/schema": (_JSON, _Kept(lambda: orjson.dumps(schema(), option=orjson.OPT_INDENT_2))),
        }
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="status", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._port: int | None = None
        self._connections: Connections | None = None

    def start(self) -> int | None:
        """Returns the port that is served, or None if there is none."""
        self._thread.start()
        self._started.wait()
        return self._port

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        runner = web.AppRunner(
            self._application(), access_log=None, handle_signals=False, shutdown_timeout=0.5, keepalive_timeout=_IDLE
        )
        listener: asyncio.Server | None = None
        try:
            await runner.setup()
            assert runner.server is not None
            connections = self._connections = Connections(runner.server, most=_MOST, patience=_PATIENCE)
            try:
                listener = await self._loop.create_server(connections, self._config.host, self._config.port)
            except OSError as error:
                why = no_listening(self._config.host, self._config.port, error)
                _log.warning("no status page is served", reason=why)
                return
            self._port = listener.sockets[0].getsockname()[1]
            self._started.set()
            await self._sample(connections)
        finally:
            self._started.set()
            if listener is not None:
                listener.close()
            await runner.cleanup()

    async def _sample(self, connections: Connections) -> None:
        """Follows the partitions each second, and the rest each ten, until :meth:`stop`."""
        second = 0
        while not self._stopping.is_set():
            connections.close_silent()
            self._reporter.history.follow(self._metrics.graph())
            if second % INTERVAL == 0:
                self._reporter.history.sample(self._metrics, time.time_ns())
                await asyncio.to_thread(self._consumers.read)
            second += 1
            await first_of(self._stopping.wait(), within=1.0)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._checked])
        application.on_response_prepare.append(_harden)
        application.router.add_get("/healthz", self._health)
        application.router.add_get("/readyz", self._ready)
        for path in self._answers:
            application.router.add_get(path, self._answer)
        return application

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._connections is not None:
            self._connections.heard(request.protocol)
        if is_loopback(self._config.host) and not self._is_own(request):
            raise web.HTTPForbidden(text="this Host header is not served\n")
        if request.path not in _OPEN and not self._has_token(request):
            raise web.HTTPUnauthorized(
                text="send status.token as Authorization: Bearer\n", headers={hdrs.WWW_AUTHENTICATE: "Bearer"}
            )
        return await handler(request)

    def _has_token(self, request: web.Request) -> bool:
        """True if the request has the token, or none is configured."""
        sent = request.headers.get(hdrs.AUTHORIZATION, "")
        expected = f"Bearer {self._config.token}"
        return not self._config.token or hmac.compare_digest(sent.encode("utf-8", "replace"), expected.encode())

    def _is_own(self, request: web.Request) -> bool:
        """True if a browser was sent here by our own address, and not by a name that resolves to it."""
        name = _host(request.headers.get(hdrs.HOST, ""))
        return name == self._config.host or is_loopback(name)

    async def _health(self, _: web.Request) -> web.Response:
        return _verdict(self._reporter.stuck())

    async def _ready(self, request: web.Request) -> web.Response:
        reason = self._reporter.unready()
        return _verdict(reason if self._has_token(request) else reason and "not ready; the reason needs status.token")

    async def _answer(self, request: web.Request) -> web.Response:
        kind, kept = self._answers[request.path]
        return web.Response(body=kept.body(), headers={hdrs.CONTENT_TYPE: kind})


def _verdict(reason: str) -> web.Response:
    return web.Response(status=503 if reason else 200, text=f"{reason or 'ok'}\n")


async def _harden(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.pop(hdrs.SERVER, None)
