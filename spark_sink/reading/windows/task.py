"""Reads a share of a window: the one-process reader on a part of the cut, whose end is the window's.

What this process has proven is handed on at once, because the order among shares comes later. Nothing outlives the
call, so that a task that is tried again, or runs twice at a time, returns the same records.
"""

import contextlib
from collections.abc import Generator
from dataclasses import dataclass

import msgspec

from connector.core.changes import Changes
from connector.core.dialects import MUTABLE
from connector.core.health.retries import SPANNER
from connector.core.windows import Share, ShareReport, Window
from connector.reader.change_stream import WINDOW, OpenStream
from connector.reader.read_state import QueriedStream
from connector.spanner.clock import SpannerClock
from connector.spanner.discovery import current_timestamp
from connector.spanner.partition_query import StreamAddress
from connector.spanner.transport import PUMPS
from connector.spool.reading import Spool
from connector.spool.storage.failing import FAILING
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.retrying import reporting_retries
from spark_sink.reading.windows.dead_letters import LateDeadLetters
from spark_sink.reading.windows.handover import Handover
from spark_sink.reading.windows.share_reader import HandOn, ShareReader


@dataclass(frozen=True, slots=True)
class WindowSetup:
    """The settings that all tasks share: the change stream, and where late records go."""

    stream: StreamAddress
    spool: str
    """Path of the spool, whose folder late/ takes late records."""
    late_records: str
    """source.late_records: stop or dead-letter."""

    @classmethod
    def of(cls, stream: OpenStream, spool: str) -> "WindowSetup":
        """The setup of a change stream that was found, for the spool at that path."""
        return cls(stream.address, spool, stream.config.late_records)

    def to_json(self) -> str:
        """As a document for :meth:`from_json`."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "WindowSetup":
        """The setup of a document."""
        return msgspec.json.decode(text, type=cls)


def read_share(setup: WindowSetup, window: Window, share: Share) -> Generator[Changes | ShareReport]:
    """Reads a share to the window's end: its records as they are proven, in commit order, and its report last.

    Each item has about 4 MB of records at most. The guard against incomplete transactions cannot run here. Records name
    neither share nor partition: :func:`connector.core.windows.without_repeats` needs the share alone, and in the
    MUTABLE_KEY_RANGE mode only.

    A thread runs the reader. What is read ahead is bounded, and so is what the caller has not taken. Closing the
    iterator ends the thread.

    Raises:
        SpannerCdcError: one clear line. Transient errors are retried here, without limit.
    """

    async def read(hand_on: HandOn) -> ShareReport:
        return await _read(setup, window, share, hand_on)

    with (
        reporting_retries(Spool.at(setup.spool), SPANNER, "", of_task=True),
        contextlib.closing(Handover(read, f"share {share.number} of epoch {window.epoch}")) as handover,
    ):
        yield from handover.items()


async def _read(setup: WindowSetup, window: Window, share: Share, hand_on: HandOn) -> ShareReport:
    queried = setup.stream
    client = queried.client()

    async def spanner_clock() -> int:
        return await current_timestamp(client)

    async with client.connected():
        stream = QueriedStream(
            queried.change_stream,
            # each of many has little, and a thread for each costs more than asyncio
            queried.queries(client, behind=len(share.cut) <= PUMPS),
            SpannerClock(spanner_clock, window.high + 1),  # a window is planned when the clock has passed it
            queried.heartbeat,
            WINDOW if queried.partition_mode == MUTABLE else None,
        )
        reader = ShareReader(
            stream,
            window,
            share,
            hand_on,
            metrics=ReaderMetrics(failing=FAILING, endpoint=client.host, proxy=client.proxy),
            late_records=LateDeadLetters(setup.spool, continues=setup.late_records == "dead-letter"),
        )
        return await reader.read()
