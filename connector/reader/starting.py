"""The start of reading: a configured start that Spanner accepts, and the records that it still retains.

An offset such as ``-15m`` asks for what there is of the last minutes. If the change stream is younger, reading starts
with the stream. An absolute start before the stream's creation is an error: those changes were not recorded.

Only Spanner's answer to a query shows what it retains, because periods can be changed.
"""

import shlex

from connector.config.values import is_relative
from connector.core.timestamps import format_rfc3339
from connector.errors import BeforeStreamError, DataLostError, PlacementLostError, SpannerCdcError
from connector.log import Log
from connector.reader.change_stream import OpenStream
from connector.reader.placements.first_starts import halved
from connector.spanner.discovery import current_timestamp

_log = Log(__name__)

_MICROSECOND = 1_000
"""Spanner's commit timestamps are multiples of it."""


async def start_of(stream: OpenStream, text: str, end: int | None) -> int:
    """The start of a configuration, in nanoseconds since 1970.

    Args:
        stream: the change stream.
        text: the configured start: ``now``, an offset or a timestamp.
        end: the end, inclusive, or None.

    Raises:
        ConfigurationError: it is in the future or after the end.
        BeforeStreamError: it is a timestamp before the stream existed.
        DataLostError: it is before the retention.
        SpannerCdcError: the stream cannot be read at all.
    """
    start = stream.resolve(text)
    try:
        await stream.check_start(start, end)
    except BeforeStreamError as error:
        earliest = await first_start(stream, start, stream.now)
        if not is_relative(text) or (end is not None and end < earliest):
            raise BeforeStreamError(
                [f"{error}; the first start that it accepts is {format_rfc3339(earliest)}"], earliest=earliest
            ) from error.__cause__
        _log.warning(
            "the change stream is younger than the start: reading starts with the stream",
            change_stream=stream.stream.name,
            start=text,
            reading_from=format_rfc3339(earliest),
        )
        return earliest
    return start


async def first_start(stream: OpenStream, refused: int, accepted: int) -> int:
    """The first microsecond from which the stream can be read, found by halving.

    Args:
        stream: the change stream.
        refused: a start that Spanner does not accept.
        accepted: a start that it accepts.

    Raises:
        SpannerCdcError: the stream cannot be read at all.
    """

    async def is_accepted(start: int) -> bool:
        try:
            await stream.probe(start)
        except DataLostError:
            return False
        return True

    return await halved(refused, accepted, is_accepted, step=_MICROSECOND)


async def lost_range(stream: OpenStream, error: DataLostError, watermark: int, *, spool: str) -> DataLostError:
    """The error with the range that is lost to a spool at ``watermark``, and how to continue without it.

    If the error does not say from when on Spanner has records, Spanner is asked. If it does not answer, that is about
    its clock less the retention period.
    """
    about, earliest = "", error.earliest
    if earliest is None:
        clock = await _clock_or_opening(stream)
        try:
            earliest = await _first_retained(stream, watermark, clock)
        except SpannerCdcError:
            about, earliest = "about ", clock - stream.retention.period
    after = f"what was committed after {format_rfc3339(watermark)}"
    if earliest > watermark:
        lost, later = f"{after} and before {about}{format_rfc3339(earliest)} is lost", "some minutes after that"
    else:  # a stream that was dropped and created again has less than its retention period says
        lost, later = f"{after} is lost, up to when Spanner does not say", "later than that"
    return DataLostError(
        f"{lost}: {error.args[0]}",
        hint="Nothing was skipped. To continue without it, leaving a record of the gap:"
        f" spanner-cdc spool {shlex.quote(spool)} --restart-at TIMESTAMP, {later}.",
        earliest=error.earliest,
    )


def lost_placement(error: PlacementLostError, *, spool: str) -> PlacementLostError:
    """The error with how to continue without the placement."""
    at = "TIMESTAMP" if error.gone is None else format_rfc3339(error.gone)
    return PlacementLostError(
        error.message,
        hint="Nothing was skipped. To continue without it, and without what the other placements recorded until then,"
        f" leaving a record of the gap: spanner-cdc spool {shlex.quote(spool)} --restart-at {at}.",
        gone=error.gone,
    )


async def _first_retained(stream: OpenStream, watermark: int, clock: int) -> int:
    """The first timestamp that Spanner retains; the watermark if a new reader may start there."""
    try:
        await stream.probe(watermark)
    except DataLostError as error:
        return error.earliest or await first_start(stream, watermark, clock)
    return watermark


async def _clock_or_opening(stream: OpenStream) -> int:
    try:
        return await current_timestamp(stream.client)
    except SpannerCdcError:
        return stream.now  # older, so that a shorter range is reported, and about the right one
