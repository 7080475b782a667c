"""A stand-in for a server of Spanner Omni that can be written: the official emulator, behind a relay that ends TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

from tests.connector.spanner.omni.served import Authority, Issued

_CHUNK = 64 * 1024


def context_of(authority: Authority, issued: Issued, *, of_clients: bool = False) -> ssl.SSLContext:
    """Of a server with that certificate; ``of_clients`` wants one of the CA's of each client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    context.set_alpn_protocols(["h2"])
    if of_clients:
        context.load_verify_locations(authority.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def relayed(host: str, context: ssl.SSLContext) -> Iterator[str]:
    """The address of a relay to a server in plain text, which runs in a thread while the context is open."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    address, _, port = host.rpartition(":")

    async def serve() -> None:
        stop, open_ = asyncio.Event(), set[asyncio.Task[None]]()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            open_.add(task)
            with suppress(OSError, asyncio.CancelledError):
                there, back = await asyncio.open_connection(address, int(port))
                await asyncio.gather(_piped(reader, back), _piped(there, writer))
            open_.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
        port_here = server.sockets[0].getsockname()[1]
        ready.set_result((f"127.0.0.1:{port_here}", asyncio.get_running_loop(), stop))
        await stop.wait()
        server.close()
        for task in open_:
            task.cancel()
        await asyncio.gather(*open_)
        await asyncio.sleep(0.1)  # lets the transports close

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="relay", daemon=True)
    thread.start()
    found, loop, stop = ready.result()
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                writer.write(data)
                await writer.drain()
    finally:
        writer.transport.abort()
