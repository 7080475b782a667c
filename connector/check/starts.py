"""The start of a new spool: ``check`` and the daemon decide it alike."""

from contextlib import suppress

from connector.config.sections import SourceConfig
from connector.core.timestamps import MICROSECOND
from connector.reader.change_stream import OpenStream
from connector.reader.starting import start_of
from connector.spool.backfill.records import check_movable
from connector.spool.reading import Spool


async def start_of_spool(spool: Spool, stream: OpenStream, config: SourceConfig, end: int | None) -> int | None:
    """The start of a new spool, resolved by Spanner's clock; None if the spool has a start already.

    Raises:
        ConfigurationError: the start is invalid, or a backfill has fixed another.
        DataLostError: Spanner no longer retains what follows it.
        SpannerCdcError: the spool is another stream's or of other placements, or the stream cannot be read.
    """
    with suppress(FileNotFoundError):
        header = spool.check_source(config.name, config.rules_fingerprint)
        if spool.latest() > 0 or header.requested_start == config.start:
            header.check_placements(stream.placements, spool.path)
            return None
        check_movable(spool, header)
    if config.backfill is None:
        return await start_of(stream, config.start, end)
    start = start_after(stream.now)
    await stream.check_start(start, end)
    return start


def start_after(now: int) -> int:
    """The start of a spool that a backfill creates, by Spanner's clock: right after the backfill's timestamp.

    The timestamp has whole microseconds, as those of Spanner's commits, and has passed.
    """
    return now // MICROSECOND * MICROSECOND - MICROSECOND + 1
