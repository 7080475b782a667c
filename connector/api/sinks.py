"""A sink of the caller's own: the protocol, and what runs it over a change stream or over a spool."""

from typing import Protocol, overload

from connector.api.epochs import Epoch
from connector.api.spool import Spool
from connector.api.spool_consumer import SpoolConsumer
from connector.api.stop import Stop
from connector.api.stream import read_epochs
from connector.config import Config
from connector.spool import reading
from connector.threads import to_its_end


class EpochSink(Protocol):
    """Writes epochs to a destination.

    Exactly once: ``write`` stores the epoch's data and ``epoch.checkpoint``, which holds the epoch's number and
    identity, in one transaction of the destination; ``checkpoint`` gives back what was stored last. After a crash the
    epoch is then either stored with its checkpoint, and not written again, or not stored at all, and written again.

    At least once: ``write`` stores the checkpoint after the data. Events that are written again have the same
    :attr:`Event.uuid`. Over a spool the epoch that is written again is the same, by number and identity; without a
    spool it may end elsewhere.

    Over a spool one process at a time holds the consumer's name. In Cloud Storage it is held by a lease: a process that
    was suspended for longer than 20 seconds may still write one epoch after another process has taken over. Where that
    can happen, ``write`` compares the stored checkpoint with the one that it wrote last, in the same transaction.
    """

    async def checkpoint(self) -> str | None:
        """The checkpoint that was stored last, or None. Called once, before anything is read."""

    async def write(self, epoch: Epoch) -> None:
        """Stores an epoch with its checkpoint, durably when this returns; if this raises, neither of them.

        A call that has started is waited for, also if ``run_sink`` is cancelled meanwhile: a thread or a transaction
        that it runs in has ended when ``run_sink`` raises. Called with one epoch after the other, in commit order; also
        with epochs without rows, whose checkpoint is to be stored, and with those of a gap.
        """


@overload
async def run_sink(sink: EpochSink, source: Config, *, stop: Stop | None = None) -> None: ...


@overload
async def run_sink(
    sink: EpochSink, source: Spool, *, consumer: str, follow: bool = True, stop: Stop | None = None
) -> None: ...


async def run_sink(
    sink: EpochSink,
    source: Config | Spool,
    *,
    consumer: str | None = None,
    follow: bool = True,
    stop: Stop | None = None,
) -> None:
    """Writes every epoch after the sink's checkpoint to the sink, one after the other.

    Args:
        sink: the sink.
        source: a configuration, whose change stream is read directly, until its ``source.end``; or a spool.
        consumer: the name under which the spool knows the sink, only with a spool; one process may use it at a time.
            The spool keeps what the consumer has not passed. A new consumer starts at the oldest epoch that is kept.
        follow: with a spool, whether to wait for epochs that are not sealed yet, and for the spool itself; if not, it
            returns after the newest epoch.
        stop: returns after the epoch that is being written; without a spool, after those that are complete.

    Raises:
        ConfigurationError: the configuration or the sink's checkpoint is not valid, or the consumer's name is not.
        DataLostError: Spanner no longer retains what has to be read next; nothing was skipped.
        SpoolInUseError: another process uses the consumer's name.
        SpoolError: the spool cannot be read, or does not continue where the sink's checkpoint ends.
        SpannerCdcError: reading cannot continue.
        Exception: whatever the sink raised. Nothing is retried.
    """
    if isinstance(source, Spool):
        spool = SpoolConsumer(reading.Spool.at(source.path), consumer or "")
        await spool.run(sink.checkpoint, sink.write, follow=follow, stop=stop or Stop())
        return
    after = await sink.checkpoint()
    async with read_epochs(source, after=after, stop=stop) as epochs:
        async for epoch in epochs:
            await to_its_end(sink.write(epoch))
