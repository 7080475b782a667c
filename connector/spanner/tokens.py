"""Access tokens: each call has one, and a token that Spanner has refused is not sent again."""

import time
from typing import Protocol

import google.auth.transport.requests
import grpc
from google.auth.transport.grpc import AuthMetadataPlugin

BETWEEN = 10.0
"""Seconds between two renewals, at least: hundreds of queries are refused at once."""


class GoogleCredentials(Protocol):
    """Google's credentials: they fetch a token before a call that finds none."""

    token: str | None


class Tokens:
    """The access tokens of credentials; they also add the quota project's header to each call.

    Args:
        credentials: Google's.
    """

    def __init__(self, credentials: GoogleCredentials) -> None:
        self._credentials = credentials
        self._renewed = float("-inf")

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """The credentials of a channel with encryption, whose calls have a token."""
        plugin = AuthMetadataPlugin(self._credentials, google.auth.transport.requests.Request())
        calls = grpc.metadata_call_credentials(plugin)
        return grpc.composite_channel_credentials(grpc.ssl_channel_credentials(), calls)

    def renew(self) -> None:
        """Lets the next call fetch a new token, because Spanner has refused this one though it has not expired."""
        now = time.monotonic()
        if now - self._renewed >= BETWEEN:
            self._renewed = now
            self._credentials.token = None
