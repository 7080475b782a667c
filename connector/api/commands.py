"""The commands ``read`` and ``tail`` as functions."""

from typing import BinaryIO

from connector.api.stop import Stop, reader_stop
from connector.config import Config
from connector.daemon import read as daemon
from connector.errors import ConfigurationError
from connector.reader import tail as printing


async def read(config: Config, *, stop: Stop | None = None) -> None:
    """Reads the configured change stream into its spool until ``source.end``, or until ``stop``.

    The same as ``spanner-cdc read``: it continues from the spool's newest epoch, and serves the status page at
    ``config.status``. It installs no signal handlers. Cancelling it is safe: what was not sealed is read again.

    Args:
        config: the configuration.
        stop: seals what is complete, for ``config.drain_timeout`` at most, and returns.

    Raises:
        ConfigurationError: the configuration does not fit the database, or Spark's executors are to read.
        DataLostError: Spanner no longer retains what has to be read next; nothing was skipped.
        SpoolInUseError: another process writes the spool.
        SpannerCdcError: reading cannot continue. What was sealed is kept, and the next call continues from there.
    """
    if config.source.reader == "executors":
        error = (
            "source.reader: executors is for `spanner-cdc read` and `run`: set it to process to read in this process"
        )
        raise ConfigurationError([error])
    async with reader_stop(stop, config.drain_timeout) as follower:
        await daemon.read(config, follower)


async def tail(config: Config, out: BinaryIO, *, stop: Stop | None = None) -> None:
    """Writes events as JSON lines from ``source.start`` until ``source.end``, or until ``stop``.

    The same as ``spanner-cdc tail``: ``config.envelope.format`` is ``datastream`` or ``opencdc``; no spool is used.

    Args:
        config: the configuration.
        out: a binary file, which is flushed after each epoch. Reading waits while it blocks.
        stop: writes what is complete, for ``config.drain_timeout`` at most, and returns.

    Raises:
        ConfigurationError: the configuration does not fit the database.
        DataLostError: Spanner no longer retains what was committed from the start on.
        BrokenPipeError: whoever read ``out`` is gone.
        SpannerCdcError: reading cannot continue.
    """
    async with reader_stop(stop, config.drain_timeout) as follower:
        await printing.tail(config.source, config.envelope, out, follower)
