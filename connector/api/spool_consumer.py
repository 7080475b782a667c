"""A sink as a consumer of a spool: holds its name, keeps what it needs, and records how far it is."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

from connector.api.checkpoint import Checkpoint
from connector.api.epochs import Epoch
from connector.api.spool_epochs import SpoolEpochs
from connector.api.stop import Stop
from connector.config.sinks import sink_names
from connector.errors import ConfigurationError, SpoolError
from connector.log import Log
from connector.spool import consumers, reading
from connector.spool.destinations import check_not_a_sink
from connector.threads import first_of, in_thread, to_its_end, tried_in_thread

_POLL_INTERVAL = 0.1
"""Seconds between two looks for a new epoch, at least."""

_log = Log(__name__)


class SpoolConsumer:
    """Gives a spool's epochs to a sink, under a consumer's name.

    Args:
        spool: the spool.
        name: the consumer's name.

    Raises:
        ConfigurationError: the name is not valid, or that of a registered sink.
    """

    def __init__(self, spool: reading.Spool, name: str) -> None:
        try:
            consumers.checked_name(name)
        except SpoolError as error:
            raise ConfigurationError([str(error)]) from None
        if name.partition(".")[0] in sink_names():
            raise ConfigurationError([f"consumer {name!r}: it is the name of a registered sink: choose another"])
        self._spool = spool
        self._name = name
        self._epochs = SpoolEpochs(spool)
        self._recorded = time.monotonic() - spool.storage.rewrite_interval
        self._unrecorded: Checkpoint | None = None
        self._check_claim: Callable[[], None] = lambda: None

    async def run(
        self,
        stored: Callable[[], Awaitable[str | None]],
        write: Callable[[Epoch], Awaitable[None]],
        *,
        follow: bool,
        stop: Stop,
    ) -> None:
        """Writes every epoch after the stored checkpoint; arguments and errors are those of ``run_sink``."""
        async with self._claimed() as self._check_claim:
            text = await stored()
            if not await self._exists(follow=follow, stop=stop):
                return
            await in_thread(check_not_a_sink, self._spool, self._name)
            done = await in_thread(self._start, text)
            while True:
                done = await self._write_new(done, write, stop)
                if stop.requested or not follow:
                    break
                await self._pause(stop)
                await self._record()
            await self._record(wait=True)

    async def _write_new(
        self, done: Checkpoint | None, write: Callable[[Epoch], Awaitable[None]], stop: Stop
    ) -> Checkpoint | None:
        """Writes the epochs up to the newest, unless a stop is requested; returns the last that was written."""
        async for epoch in self._after(done):
            if stop.requested:
                break
            if epoch.gap is not None:
                _log.warning("an epoch's events are missing for good", epoch=epoch.number, reason=epoch.gap)
            self._check_claim()
            await to_its_end(write(epoch))
            done = self._unrecorded = Checkpoint(epoch.stream, epoch.number, epoch.identity)
            await self._record()
        return done

    async def _after(self, done: Checkpoint | None) -> AsyncIterator[Epoch]:
        """The epochs up to the newest; read in a thread, because the spool may be far away."""
        if await in_thread(self._spool.latest) == (done.epoch if done else 0):
            return
        epochs = self._epochs.after(done)
        while (epoch := await in_thread(lambda: next(epochs, None))) is not None:
            yield epoch

    async def _exists(self, *, follow: bool, stop: Stop) -> bool:
        """Waits for the spool, if it is to be followed; False if a stop was requested before."""
        while follow and not stop.requested:
            if not isinstance(await tried_in_thread(FileNotFoundError, self._spool.header), FileNotFoundError):
                return True
            await self._pause(stop)
        return not follow

    async def _pause(self, stop: Stop) -> None:
        await first_of(stop.wait(), within=max(self._spool.storage.poll_interval, _POLL_INTERVAL))

    def _start(self, text: str | None) -> Checkpoint | None:
        """Registers the consumer at the sink's checkpoint, so that the epochs after it are kept from then on.

        Raises:
            SpoolError: they are not kept any more; or the sink has lost its checkpoint, and epochs with it.
        """
        stream = self._epochs.stream()
        done = None if text is None else Checkpoint.of(text, stream)
        known = consumers.register(self._spool, self._name, now=time.time_ns())
        if done is None:
            if known.at and self._spool.floor() > 1:
                raise SpoolError(
                    f"the sink of consumer {self._name!r} has no checkpoint, but the consumer is done with epoch"
                    f" {known.epoch} of the spool at {self._spool.path}, and epochs before {self._spool.floor()} were"
                    " deleted",
                    hint="Restore the sink's data. To start at the oldest epoch that is kept:"
                    f" spanner-cdc spool {self._spool.path} --forget {self._name}",
                )
            self._keep_from(None, known.epoch)
            return None
        self._epochs.check(done)
        if known.epoch > done.epoch:
            self._keep_from(done, known.epoch)
            self._epochs.check(done)  # nothing was deleted between
        self._unrecorded = done
        return done

    def _keep_from(self, done: Checkpoint | None, known: int) -> None:
        """Sets the consumer's record back, so that nothing after the checkpoint is deleted from now on."""
        if done is not None:
            consumers.record(self._spool, self._name, done.epoch, now=time.time_ns(), at=done.identity)
        elif known >= self._spool.floor():
            for _ in range(2):  # before the floor is read a second time epochs could still be deleted
                consumers.record(self._spool, self._name, self._spool.floor() - 1, now=time.time_ns())

    async def _record(self, *, wait: bool = False) -> None:
        """Records the progress, unless the storage took it too recently; with ``wait`` waits until it can."""
        done = self._unrecorded
        if done is None:
            return
        left = self._recorded + self._spool.storage.rewrite_interval - time.monotonic()
        if left > 0:
            if not wait:
                return
            await asyncio.sleep(left)
        await in_thread(consumers.record, self._spool, self._name, done.epoch, now=time.time_ns(), at=done.identity)
        self._recorded, self._unrecorded = time.monotonic(), None

    @asynccontextmanager
    async def _claimed(self) -> AsyncIterator[Callable[[], None]]:
        """Holds the consumer's name; yields a check that raises SpoolInUseError once it is held no more.

        Raises:
            SpoolInUseError: another process holds it.
        """
        held = ExitStack()
        try:
            yield await in_thread(lambda: held.enter_context(consumers.claimed(self._spool, self._name)))
        finally:
            await in_thread(held.close)
