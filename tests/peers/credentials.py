"""Makes a server require credentials: a TLS relay before it, and a service that issues access tokens."""

import asyncio
import datetime as dt
import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

ACCESS_TOKEN = "ya29.private-access"
KEY_ID = "0123456789abcdef"


@contextmanager
def authorised(host: str, folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Accepts TLS connections for `host`; yields the address, and the environment that a client needs.

    The client's credentials are a service account's, whose key is that of the certificate, in `folder`/key.pem.
    """
    certificate, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])
    account = folder / "account.json"
    with _tokens() as address, _tls(host, context) as port:
        user = {
            "type": "service_account",
            "project_id": "scripted-project",
            "private_key_id": KEY_ID,
            "private_key": key.read_text(),
            "client_email": "reader@scripted-project.iam.gserviceaccount.com",
            "client_id": "1",
            "token_uri": address,
        }
        account.write_text(json.dumps(user))
        yield (
            f"127.0.0.1:{port}",
            {
                "GOOGLE_APPLICATION_CREDENTIALS": str(account),
                "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(certificate),
                "GOOGLE_CLOUD_QUOTA_PROJECT": "quota",
                "NO_PROXY": "127.0.0.1",
            },
        )


class _Tokens(BaseHTTPRequestHandler):
    """Returns the access token to every request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"access_token": ACCESS_TOKEN, "expires_in": 3600, "token_type": "Bearer"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@contextmanager
def _tokens() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tokens) as server:
        thread = threading.Thread(target=server.serve_forever, name="tokens", daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _tls(host: str, context: ssl.SSLContext) -> Iterator[int]:
    """Relays TLS connections to `host`, which does not use TLS; yields the port."""
    ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    address, _, port = host.rpartition(":")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(address, int(port))
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def serve() -> None:
        stop = asyncio.Event()
        async with await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context) as server:
            ready.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="TLS", daemon=True)
    thread.start()
    listening, loop, stop = ready.result(10)
    try:
        yield listening
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Writes a self-signed certificate of 127.0.0.1 and its key; returns their paths."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
