"""The token of a user of Spanner Omni, which another program writes to a file and renews there every hour."""

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import grpc

from connector.config.omni import OmniServer
from connector.errors import ConfigurationError
from connector.spanner.omni.certificates import content

_TOKEN = re.compile(rb"[\x21-\x7e]+")

_Callback = Callable[[Sequence[tuple[str, str]], Exception | None], None]


class TokenFileError(Exception):
    """The file has no token; the text names the option."""


class TokenFile(grpc.AuthMetadataPlugin):  # type: ignore[misc]  # the library ships no types
    """Adds the token in a file to each call; the file is read again when it has changed.

    Args:
        server: which names the file.
        path: of the file.
    """

    def __init__(self, server: OmniServer, path: str) -> None:
        self._option = server.option("token_file")
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def __call__(self, context: grpc.AuthMetadataContext, callback: _Callback) -> None:
        """Adds the header."""
        del context
        try:
            token = self.token()
        except TokenFileError as error:
            callback((), error)
        else:
            callback((("authorization", f"Bearer {token}"),), None)

    def token(self) -> str:
        """The token that the file has now.

        Raises:
            TokenFileError: it has none.
        """
        with self._lock:
            seen = None
            with suppress(OSError):  # reading names the reason
                found = Path(self._path).stat()
                seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen is None or seen != self._seen:
                self._seen = None
                self._token = self._read()
                self._seen = seen
            return self._token

    def renew(self) -> None:
        """Lets the next call read the file again, because the server has refused the token."""
        with self._lock:
            self._seen = None

    def check(self) -> None:
        """Checks that there is a token.

        Raises:
            ConfigurationError: there is none.
        """
        try:
            self.token()
        except TokenFileError as error:
            raise ConfigurationError([str(error)]) from None

    def channel_credentials(self, channel: grpc.ChannelCredentials) -> grpc.ChannelCredentials:
        """The credentials of a channel with encryption, whose calls have the token."""
        return grpc.composite_channel_credentials(channel, grpc.metadata_call_credentials(self))

    def _read(self) -> str:
        errors: list[str] = []
        text = content(self._option, self._path, errors)
        if text is None:
            raise TokenFileError(errors[0])
        if _TOKEN.fullmatch(text.strip()) is None:
            raise TokenFileError(f"{self._option}: {self._path} is not one line with a token")
        return text.strip().decode("ascii")
