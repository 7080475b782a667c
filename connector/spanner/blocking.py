"""Calls to Spanner for threads instead of asyncio: one channel, whose streams are iterated where they are needed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

import grpc
from google.api_core.exceptions import GoogleAPICallError, RetryError

from connector.config.address import DatabaseAddress
from connector.proxies import grpc_proxy
from connector.spanner.client import (
    CREATE_SESSION,
    DATA,
    SETUP_TIMEOUT,
    USER_AGENT,
    call_headers,
    create_session_request,
    credentials_for,
    session_name,
)
from connector.spanner.errors import CallAction, CallError, classify, classify_library
from connector.spanner.omni.texts import with_token_option
from connector.spanner.transport import blocking_channel

STREAM_TIMEOUT = 3600.0
"""Seconds that a call may take; a longer reading continues from its last resume token. No call waits for ever."""


class BlockingClient:
    """A database's connection for one thread at a time.

    Attributes:
        database: its resource name.
        host: the address.
        proxy: the environment variable with the proxy that calls go through; empty if there is none.

    Args:
        address: the database.
        scopes: what the credentials are for.

    Raises:
        SpannerCdcError: there are no credentials, or those of Spanner Omni are invalid.
    """

    def __init__(self, address: DatabaseAddress, *, scopes: Sequence[str] = DATA) -> None:
        self.database = address.path
        self._role = address.database_role
        self._omni = address.omni
        self._tokens, credentials = credentials_for(address, scopes)
        self.host = address.host
        self.proxy = "" if address.is_plain else grpc_proxy(self.host)
        self.channel = blocking_channel(self.host, credentials, user_agent=USER_AGENT)
        self._session: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all calls and closes the channel."""
        self.channel.close()

    def session(self) -> str:
        """The name of the multiplexed session, which the first call creates.

        Raises:
            grpc.RpcError: the call failed; see :func:`connector.spanner.errors.classify`.
        """
        if self._session is None:
            request = create_session_request(self.database, self._role)
            headers = call_headers(self.database, "database", self.database)
            create = self.channel.unary_unary(CREATE_SESSION)
            self._session = session_name(create(request, metadata=headers, timeout=SETUP_TIMEOUT))
        return self._session

    def forget_session(self) -> None:
        """Lets the next call of :meth:`session` create another one."""
        self._session = None

    def failed(self, error: grpc.RpcError | GoogleAPICallError | RetryError) -> CallError:
        """Classifies the error of a call; a token that Spanner has refused is renewed before the next call."""
        found = classify(error) if isinstance(error, grpc.RpcError) else classify_library(error)
        if found.action is CallAction.WAIT:
            self.renew_token()
            if self._omni is not None:
                found = replace(found, message=with_token_option(found.message, self._omni))
        return replace(found, proxy=self.proxy)

    def renew_token(self) -> None:
        """Lets the next call fetch a new access token, because Spanner has refused this one."""
        if self._tokens is not None:
            self._tokens.renew()

    @contextmanager
    def streaming(self, method: str, session: str, request: bytes) -> Iterator[Iterator[bytes]]:
        """The messages of a call while the context is open; leaving it cancels the call.

        It ends with DEADLINE_EXCEEDED after :data:`STREAM_TIMEOUT`. Iterating them raises grpc.RpcError if the call
        fails. While nothing is iterated, gRPC's flow control stops the server.
        """
        headers = call_headers(self.database, "session", session)
        call = self.channel.unary_stream(method)(request, metadata=headers, timeout=STREAM_TIMEOUT)
        try:
            yield call
        finally:
            call.cancel()
