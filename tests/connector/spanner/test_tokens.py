"""A token that Spanner has refused is not sent again, and the reader waits for another one."""

import asyncio
import time

import grpc
import pytest

from connector.errors import StreamError, UnreachableError
from connector.spanner import client as client_module
from connector.spanner import tokens
from connector.spanner.client import SpannerClient
from connector.spanner.tokens import Tokens
from emulator import Scenario, ScriptedServer
from tests.connector.builders import address_of

REFUSAL = (grpc.StatusCode.UNAUTHENTICATED, "Request had invalid authentication credentials.")


class Credentials:
    """Has a token, until it is renewed."""

    token: str | None = "refused"


def test_a_refused_token_is_dropped_once_however_many_calls_were_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = Credentials()
    found = Tokens(credentials)
    found.renew()
    assert credentials.token is None
    credentials.token = "new"
    found.renew()
    assert credentials.token == "new"
    monkeypatch.setattr(tokens, "BETWEEN", 0.0)
    found.renew()
    assert credentials.token is None


def test_a_call_whose_credentials_are_refused_renews_the_token_and_a_later_one_may_succeed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = Scenario.generate(5, origin=time.time_ns(), seconds=5, dialect="googlesql", mode="IMMUTABLE_KEY_RANGE")
    name = f"projects/{scenario.project}/instances/{scenario.instance}/databases/{scenario.database}"

    async def main(server: ScriptedServer) -> None:
        credentials = Credentials()
        async with SpannerClient(address_of(name, server.host)).connected() as client:
            client._tokens = Tokens(credentials)
            assert await client.rows("SELECT CURRENT_TIMESTAMP")
            server.refuse(*REFUSAL)
            with monkeypatch.context() as hurried:
                hurried.setattr(client_module, "SETUP_TIMEOUT", 1.0)
                with pytest.raises(UnreachableError, match=r"accept the credentials .*clock is right") as caught:
                    await client.rows("SELECT CURRENT_TIMESTAMP")
            assert isinstance(caught.value.__cause__, grpc.RpcError)
            assert credentials.token is None
            server.accept()
            assert await client.rows("SELECT CURRENT_TIMESTAMP")

    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        asyncio.run(main(server))


def test_a_token_that_is_refused_for_a_session_is_renewed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "SETUP_TIMEOUT", 1.0)
    scenario = Scenario.generate(5, origin=time.time_ns(), seconds=5, dialect="googlesql", mode="IMMUTABLE_KEY_RANGE")
    name = f"projects/{scenario.project}/instances/{scenario.instance}/databases/{scenario.database}"

    async def main(server: ScriptedServer) -> None:
        credentials = Credentials()
        server.refuse(*REFUSAL)
        async with SpannerClient(address_of(name, server.host)).connected() as client:
            client._tokens = Tokens(credentials)
            with pytest.raises(StreamError, match=r"does not accept the credentials"):
                await client.rows("SELECT CURRENT_TIMESTAMP")
            assert credentials.token is None

    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        asyncio.run(main(server))
