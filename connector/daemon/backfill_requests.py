"""Spanner's answers that are needed to record a backfill, from a thread beside the running event loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from connector.core.schemas import TableSchema
from connector.errors import SpannerCdcError, UnreachableError
from connector.log import Log
from connector.reader.change_stream import OpenStream
from connector.spanner.discovery import MetadataAsOf, current_timestamp, find_change_stream
from connector.spanner.relations import Relations, relations_of

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests to Spanner from a thread beside the running event loop.

    Attributes:
        clock: Spanner's clock, Unix nanoseconds.
        tables: the watched tables as of a timestamp.
        relations: which tables are to be read before which.
    """

    clock: Callable[[], int]
    tables: Callable[[int], Sequence[TableSchema]]
    relations: Callable[[], Relations]

    @classmethod
    def of(cls, stream: OpenStream) -> Self:
        """Those of a stream."""
        loop, client = asyncio.get_running_loop(), stream.client
        return cls(
            lambda: asyncio.run_coroutine_threadsafe(current_timestamp(client), loop).result(),
            lambda timestamp: asyncio.run_coroutine_threadsafe(_tables_as_of(stream, timestamp), loop).result(),
            lambda: asyncio.run_coroutine_threadsafe(relations_of(client, stream.dialect), loop).result(),
        )


async def _tables_as_of(stream: OpenStream, timestamp: int) -> Sequence[TableSchema]:
    """The watched tables with their columns as of a timestamp: what a query at that timestamp finds."""
    try:
        found = await find_change_stream(MetadataAsOf(stream.client, timestamp), stream.dialect, stream.stream.name)
    except UnreachableError:
        raise
    except SpannerCdcError as error:  # the timestamp is no longer retained, which whoever reads it will report
        _log.warning("the tables' columns as of the backfill's timestamp are not known", reason=error)
        return stream.stream.tables
    rules = stream.config.columns.rules
    return found.tables if rules is None else [rules.schema(table) for table in found.tables]
