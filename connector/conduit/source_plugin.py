"""The source of a pipeline: Conduit's calls, from the configuration to the end.

Conduit configures and opens the source, and then runs it: one stream on which records go to Conduit, and the positions
of those that it has processed come back. Conduit keeps the last of these, and opens the source with it the next time;
nothing is kept here. What was sent and not acknowledged is read and sent again.

Where Conduit is slower than Spanner, it receives no further messages: a message is sent when gRPC has taken the one
before, so the reader waits, and holds Spanner back.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import NoReturn, Protocol

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from connector.conduit.handshake import Utilities
from connector.conduit.messages import Empty, Stopped, records_message
from connector.conduit.reasons import reason_of
from connector.conduit.schema_encoder import SchemaEncoder
from connector.conduit.schema_service import SchemaService
from connector.conduit.settings import Schemas, configured, resumed
from connector.config.loading import Config
from connector.core.byte_columns import ends_of, slices_of
from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.position import Position
from connector.core.timestamps import SECOND
from connector.envelope.opencdc import OpenCdcRecord, OpenCdcWriter
from connector.envelope.opencdc_protobuf import EncodedRecord
from connector.errors import ConfigurationError
from connector.log import Log, whereabouts
from connector.reader.change_stream import OpenStream
from connector.reader.sealer import SealedEpochSink
from connector.reader.stopping import StopRequest, unexpected_cancellation
from connector.reader.unspooled import EventRows, read_unspooled

_MOST_RECORDS, _MOST_BYTES = 1_000, 4 * 1024 * 1024
"""Of a message, whichever it has first: bytes of its rows' values, and one record at least, however large it is."""

_DRAIN = 5 * SECOND
"""Seconds that a stop waits for a Conduit that receives nothing; unsent records are read again from the position."""

_log = Log(__name__)


class Context(Protocol):
    """gRPC's, of a call."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """Ends the call with an error."""

    async def write(self, message: bytes) -> None:
        """Sends a message of a stream."""

    def done(self) -> bool:
        """True if the call has ended, by either side."""


class SourcePlugin:
    """The source.

    Args:
        utilities: Conduit's services, among them that of schemas; None if it has none.
    """

    def __init__(self, utilities: Utilities | None = None) -> None:
        self._utilities = utilities
        self._schemas = Schemas()
        self._config: Config | None = None
        self._after: Position | None = None
        self._stop: StopRequest | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._sent = b""
        self._acknowledged = 0
        self._processed = b""

    async def configure(self, request: Message, context: Context) -> Message:
        """Checks the settings; ends the call with their faults, if there are any."""
        try:
            offered = self._utilities is not None
            self._config, self._schemas = configured(dict(request.config), offered=offered)
        except ConfigurationError as error:
            _log.error("the settings are refused", why=str(error))  # a pipeline's error is empty while Conduit retries
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return Empty()

    async def open(self, request: Message, context: Context) -> Message:
        """Takes the position after which to read; ends the call if it is damaged or of another change stream."""
        if self._config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the source is opened before it is configured")
        try:
            self._config, self._after = resumed(self._config, request.position)
        except ConfigurationError as error:
            _log.error("the position is refused", why=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return Empty()

    async def run(self, requests: AsyncIterator[Message], context: Context) -> None:
        """Reads, and sends records, until Conduit stops it; then waits for the last acknowledgements."""
        config = self._config
        if config is None or self._stop is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the source is run once, after it was opened")
        stop = self._stop = StopRequest(drain_timeout=_DRAIN)
        acknowledging = asyncio.create_task(self._acknowledge(requests), name="acknowledgements")
        self._reader = asyncio.create_task(self._read(config, stop, context), name="reader")
        try:
            await self._until_stopped(self._reader, stop, context)
            await acknowledging
        except Exception as error:  # noqa: BLE001 - Conduit shows one line of any
            position = Position.from_bytes(self._processed) if self._processed else self._after
            line = reason_of(error, position)
            _log.error("reading has failed", why=line)
            _log.debug("where reading has failed", frames=whereabouts(error))
            await context.abort(grpc.StatusCode.ABORTED, line)
        finally:
            for task in (self._reader, acknowledging):
                task.cancel()
            await asyncio.gather(self._reader, acknowledging, return_exceptions=True)
            self._ended.set()
            _log.info("the source has ended", acknowledged_records=self._acknowledged)

    async def _until_stopped(self, reader: asyncio.Task[None], stop: StopRequest, context: Context) -> None:
        await asyncio.wait({reader})
        self._ended.set()
        if not reader.cancelled():
            reader.result()
        if not stop.requested and not context.done():
            raise unexpected_cancellation()

    async def stop(self, request: Message, context: Context) -> Message:
        """Sends what is complete, and returns the position of the last record; empty if there was none."""
        del request, context
        if self._stop is not None:
            self._stop.request()
            if self._reader is not None and not self._stop.reading:  # it connects yet, and there is nothing to drain
                self._reader.cancel()
            await self._ended.wait()
        return Stopped(last_position=self._sent)

    async def teardown(self, request: Message, context: Context) -> Message:
        """Ends what is running; Conduit calls it also where nothing was configured."""
        del request, context
        if self._stop is not None and self._reader is not None:
            self._stop.request()
            self._reader.cancel()
            await self._ended.wait()
        return Empty()

    async def _read(self, config: Config, stop: StopRequest, context: Context) -> None:
        async def send(message: bytes, last: bytes) -> None:
            self._sent = last  # before it is sent: what is cancelled now may have left, and nothing follows it
            try:
                await context.write(message)
            except Exception:
                if context.done():
                    raise asyncio.CancelledError from None
                raise

        def sender(stream: OpenStream) -> "RecordSender":
            rows = EventRows(stream, config.envelope, after=self._after)
            encoder = SchemaEncoder(rows.registry, service, self._schemas) if service is not None else None
            return RecordSender(rows, send, encoder)

        resumed = self._after is not None
        async with self._schema_service() as service:
            await read_unspooled(config.source, sender, stop, resumed=resumed)

    def _schema_service(self) -> AbstractAsyncContextManager[SchemaService | None]:
        """Conduit's schema service; None where nothing is to be encoded."""
        if self._utilities is None or not self._schemas:
            return nullcontext()
        return aclosing(SchemaService(self._utilities))

    async def _acknowledge(self, requests: AsyncIterator[Message]) -> None:
        async for request in requests:
            self._acknowledged += len(request.ack_positions)
            if request.ack_positions:
                self._processed = request.ack_positions[-1]


Send = Callable[[bytes, bytes], Awaitable[None]]
"""Sends a message of records, the last of which has this position."""


class RecordSender(SealedEpochSink):
    """An epoch sink that sends OpenCDC records.

    Args:
        rows: makes the envelope's columns.
        send: sends a message.
        encoder: encodes keys or payloads by schemas; without it both are structured data.
    """

    def __init__(self, rows: EventRows, send: Send, encoder: SchemaEncoder | None = None) -> None:
        self._rows = rows
        self._send = send
        self._encoder = encoder
        self._writer = OpenCdcWriter(rows.registry.by_key)

    async def deliver(self, epoch: SealedEpoch, cut: list[CutPartition], *, final: bool) -> None:
        """Sends the epoch's records; returns when gRPC has taken them.

        Raises:
            SpannerCdcError: Spanner does not give a new table's key, a value does not match its type, or Conduit does
                not register a schema.
        """
        await self._rows.learn(epoch)
        rows = await asyncio.to_thread(self._rows.of, epoch)
        for part in parts(rows) if rows is not None else ():
            records = await self._records(part)
            await self._send(await asyncio.to_thread(records_message, records), records[-1].position)

    async def _records(self, rows: pa.RecordBatch) -> Sequence[OpenCdcRecord | EncodedRecord]:
        if self._encoder is not None:
            return await self._encoder.records(rows)
        return await asyncio.to_thread(lambda: list(self._writer.records(rows)))


def parts(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of each message."""
    ends = ends_of(rows.column("payload")) + ends_of(rows.column("before"))
    return slices_of(rows, ends, most_bytes=_MOST_BYTES, most_rows=_MOST_RECORDS)
