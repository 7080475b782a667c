"""Emulators are reached whatever proxy the environment names, and an address without one is refused quickly."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from google.auth.credentials import AnonymousCredentials

from connector.config import SourceConfig
from connector.errors import ConfigurationError, UnreachableError
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import SpannerClient
from connector.spanner.emulators import EmulatorClient, checked_address
from connector.spanner.tokens import Tokens
from connector.spanner.transport import Transport
from emulator import Scenario, ScriptedServer
from tests.connector.builders import address_of

NOTHING = "127.0.0.1:9"
DATABASE = "projects/p/instances/instance/databases/d"


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.generate(5, origin=time.time_ns(), seconds=5, dialect="googlesql", mode="IMMUTABLE_KEY_RANGE")


@pytest.fixture
def server(scenario: Scenario) -> Iterator[ScriptedServer]:
    with ScriptedServer.started(scenario, begins=time.time_ns()) as started:
        yield started


@pytest.fixture
def _behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", f"http://{NOTHING}")
    monkeypatch.setenv("http_proxy", f"http://{NOTHING}")


async def asked(client: SpannerClient) -> list[list[object]]:
    async with client.connected():
        return await client.rows("SELECT CURRENT_TIMESTAMP")


def names(scenario: Scenario) -> str:
    return f"projects/{scenario.project}/instances/{scenario.instance}/databases/{scenario.database}"


@pytest.mark.usefixtures("_behind_a_proxy")
def test_every_client_reaches_an_emulator_though_the_environment_names_a_proxy(
    scenario: Scenario, server: ScriptedServer
) -> None:
    assert len(asyncio.run(asked(SpannerClient(address_of(names(scenario), server.host))))) == 1
    source = SourceConfig(
        project=scenario.project,
        instance=scenario.instance,
        database=scenario.database,
        change_stream="S",
        emulator_host=server.host,
    )
    with BlockingClient(source.address) as blocking:
        assert blocking.session()
    library = EmulatorClient(server.host, scenario.project).instance(scenario.instance).database(scenario.database)
    with library.snapshot() as snapshot:
        assert len(list(snapshot.execute_sql("SELECT 1"))) == 1


@pytest.mark.usefixtures("_behind_a_proxy")
def test_an_error_of_spanner_behind_a_proxy_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.spanner.client.SETUP_TIMEOUT", 1.0)
    monkeypatch.setattr("connector.spanner.client.tokens_of_application", lambda _: Tokens(AnonymousCredentials()))
    with pytest.raises(UnreachableError, match=r"proxy that https_proxy names"):
        asyncio.run(asked(SpannerClient(address_of(DATABASE))))


@pytest.mark.parametrize(
    "host", ["http://localhost:9010", "localhost", "localhost:", "localhost:0", "localhost:70000", "a b:1", ":9010"]
)
def test_an_address_that_is_not_one_is_refused_at_once_with_the_options_that_name_it(host: str) -> None:
    with pytest.raises(ConfigurationError, match=r"SPANNER_EMULATOR_HOST.*source\.emulator_host.*HOST:PORT"):
        asyncio.run(asked(SpannerClient(address_of(DATABASE, host))))


@pytest.mark.parametrize("host", ["localhost:9010", "127.0.0.1:1", "[::1]:9010", "emulator.test:65535"])
def test_an_address_of_an_emulator_is_accepted(host: str) -> None:
    assert checked_address(host, "source") == host


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that is no Spanner."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                accepted.append(connection)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in accepted:
            connection.close()


def silence(_: socket.socket) -> None:
    """Says nothing."""


def http(connection: socket.socket) -> None:
    """Answers as a web server does."""
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    connection.close()


def slowly(connection: socket.socket) -> None:
    """Answers as a gRPC server of a busy machine does, with the first frame of HTTP/2."""
    time.sleep(0.3)
    connection.sendall(b"\0\0\0\4\0\0\0\0\0")


def test_a_server_of_a_busy_machine_is_waited_for() -> None:
    async def accepts(host: str) -> str:
        transport = Transport(host, None, user_agent="test")
        try:
            return await transport.accepts(0.01, 60.0)
        finally:
            await transport.close()

    with answering(slowly) as host:
        assert asyncio.run(accepts(host)) == ""


@pytest.mark.parametrize("answer", [silence, http])
def test_a_server_that_is_no_spanner_is_refused_soon(answer: Callable[[socket.socket], None]) -> None:
    with answering(answer) as host:
        _refused_soon(host)


def test_an_address_where_nothing_listens_is_refused_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    _refused_soon(f"127.0.0.1:{port}")


def _refused_soon(host: str) -> None:
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match=rf"{host}.*SPANNER_EMULATOR_HOST"):
        asyncio.run(asked(SpannerClient(address_of(DATABASE, host))))
    assert time.monotonic() - begun < 20.0  # eight seconds at most, on a machine that has other work
