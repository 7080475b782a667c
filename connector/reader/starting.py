"""The start of reading: a configured start that Spanner accepts.

An offset such as ``-15m`` asks for what there is of the last minutes. If the change stream is younger, reading starts
with the stream. A timestamp asks for everything from then on, which nobody can return.
"""

from connector.config.values import is_relative
from connector.core.timestamps import format_rfc3339
from connector.errors import BeforeStreamError
from connector.log import Log
from connector.reader.change_stream import OpenStream
from connector.reader.retained import first_start

_log = Log(__name__)


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
