"""The daemon's side of ``spanner-cdc reload``: reads its configuration again, and applies all that differs, or nothing.

What concerns the reader takes effect between two epochs. The reader is drained as for a pause, and the next one begins
where it has ended, with the new options. So an epoch is of one configuration alone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager

from connector.config.loading import Config
from connector.config.reloading.comparison import outcomes
from connector.config.reloading.fields import NOT_READ_BY_READER, Outcome
from connector.core.timestamps import format_rfc3339
from connector.daemon.states.daemon import Lifecycle
from connector.errors import ConfigurationError, SpannerCdcError, SpoolError
from connector.log import Log
from connector.reader.change_stream import OpenStream, reconfigured
from connector.reader.stopping import Stoppable
from connector.spool.reading import Spool
from connector.spool.requests.reload import ReloadAnswer, ReloadRequest, answer_reload, reload_request_of
from connector.spool.storage.locations import absolute
from connector.telemetry.metrics import ReaderMetrics
from connector.threads import in_background, tried_in_thread

OnReload = Callable[[Config, Collection[str]], Awaitable[None]]
"""Called with the new configuration and the names of the options that differ, while no reader has the old one."""

_log = Log(__name__)


async def no_others(config: Config, options: Collection[str]) -> None:
    """Applies nothing: for a daemon beside which nothing runs."""
    del config, options


class Reloads:
    """The configuration of a daemon, which requests replace; see :func:`reloading`.

    Args:
        config: the configuration of the start.
        spool: the spool; the caller holds its lock.
        life: the daemon's states.
        metrics: of the daemon.
        on_reload: applies it to what runs beside the reader.

    Attributes:
        config: the configuration as it is now.
    """

    def __init__(
        self, config: Config, spool: Spool, life: Lifecycle, metrics: ReaderMetrics, on_reload: OnReload
    ) -> None:
        self.config = config
        self._spool = spool
        self._life = life
        self._metrics = metrics
        self._on_reload = on_reload
        self._stream: OpenStream | None = None
        self._wanted = asyncio.Event()
        self._unused = asyncio.Event()
        self._unused.set()
        self._is_settled = asyncio.Event()
        self._is_settled.set()

    async def taken(self, stream: OpenStream) -> tuple[Config, OpenStream]:
        """The configuration for the next reader, and the stream with its options, once no change is being applied.

        From then on a change drains that reader first: :meth:`draining`.

        Args:
            stream: as it was opened, or returned by the last call.
        """
        while not self._is_settled.is_set():
            await self._is_settled.wait()
        self._unused.clear()
        self._stream = self._stream or stream
        if self._stream.config != self.config.source:
            self._stream = await reconfigured(self._stream, self.config.source)
        return self.config, self._stream

    @asynccontextmanager
    async def draining(self, reader: Stoppable) -> AsyncIterator[None]:
        """Surrounds the running of a reader: drains it when its configuration is replaced."""

        async def drain() -> None:
            await self._wanted.wait()
            await self._life.drain(reader, reason="the configuration is reloaded")

        async with in_background(drain(), name="drain for a reload"):
            yield
        self._unused.set()  # after an error nothing is applied: the daemon ends, and its next start reads the file

    async def follow(self) -> None:
        """Answers requests until it is cancelled."""
        answered: tuple[ReloadRequest, ReloadAnswer] | None = None
        while True:
            if answered is None:
                answered = await self._looked()
            if answered is not None:
                error = await tried_in_thread(SpoolError, answer_reload, self._spool, *answered)
                answered = answered if isinstance(error, SpoolError) else None  # else it is tried again
            await asyncio.sleep(self._life.poll)

    async def _looked(self) -> tuple[ReloadRequest, ReloadAnswer] | None:
        """Looks for a request, and does what it wants."""
        request = await tried_in_thread(SpoolError, reload_request_of, self._spool)
        if isinstance(request, SpoolError):
            _log.debug("whether a reload is requested is not known", reason=str(request))
            return None
        return None if request is None else (request, await self._answered(request))

    async def _answered(self, request: ReloadRequest) -> ReloadAnswer:
        """Does what a request wants, and returns the answer."""
        answer = ReloadAnswer(request=request.id, answered=time.time_ns(), config=absolute(self.config.file))
        after = await tried_in_thread(SpannerCdcError, self.config.again)
        if isinstance(after, SpannerCdcError):
            faults = after.errors if isinstance(after, ConfigurationError) else [str(after)]
            _log.warning("the edited configuration is invalid, and not reloaded", faults="; ".join(faults))
            return answer.model_copy(update={"faults": faults})
        found = outcomes(self.config, after)
        answer = answer.model_copy(update={"options": {name: str(outcome) for name, outcome in found.items()}})
        if left := [name for name, outcome in found.items() if outcome is not Outcome.APPLIED]:
            _log.warning(
                "the configuration is not reloaded: options need a restart, or are refused", options=", ".join(left)
            )
            return answer
        if not found:
            _log.info("a reload is requested, and the configuration has not changed")
            return answer.model_copy(update={"applied": True})
        return answer.model_copy(update=await self._applied(after, found))

    async def _applied(self, after: Config, found: Mapping[str, Outcome]) -> Mapping[str, object]:
        """Applies a configuration; returns what its answer has of that."""
        is_read_with = not NOT_READ_BY_READER.issuperset(found)
        self._is_settled.clear()
        try:
            if is_read_with:
                self._wanted.set()
                await self._unused.wait()
                self._wanted.clear()
            self.config = after
            self._metrics.max_bytes = after.spool.max_bytes
            await self._life.limits(after.spool.max_bytes)
            warnings = await self._reconfigured() if is_read_with else []
            await self._on_reload(after, found.keys())
        finally:
            self._is_settled.set()
        since = (self._metrics.sealed_watermark or self._metrics.start) if is_read_with else 0
        _log.info(
            "the configuration is reloaded",
            options=", ".join(found),
            after=format_rfc3339(since) if since else "now",
        )
        return {"applied": True, "after": since, "warnings": warnings, "answered": time.time_ns()}

    async def _reconfigured(self) -> list[str]:
        """Gives the stream the new options; returns warnings. Before it is open the next reader's start does that."""
        if self._stream is None:
            return []
        before, self._stream = self._stream, await reconfigured(self._stream, self.config.source)
        if before.config.tables == self._stream.config.tables:
            return []
        self._stream.warn_of_tables()
        return [
            f"source.tables: {pattern!r} matches no table that change stream {self._stream.stream.name} watches"
            for pattern in self._stream.unmatched
        ]


@asynccontextmanager
async def reloading(
    config: Config, spool: Spool, life: Lifecycle, metrics: ReaderMetrics, on_reload: OnReload
) -> AsyncIterator[Reloads]:
    """Answers requests to reload while the context is open, whether the daemon reads or is paused."""
    reloads = Reloads(config, spool, life, metrics, on_reload)
    async with in_background(reloads.follow(), name="reloads"):
        yield reloads
