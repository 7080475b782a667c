"""A Spanner Omni server: how it is reached (https://cloud.google.com/spanner-omni/docs)."""

from dataclasses import dataclass

from pydantic import ConfigDict

NAME = "default"
"""The project and the instance of each server."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of an encrypted connection, in PEM.

    Attributes:
        ca: the certificates that sign the server's; None for public CAs, as gRPC knows them.
        certificate: the client's, with those that sign it, for a server that wants one; None without.
        key: the certificate's private key, without a passphrase.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            raise ValueError(f"{given} needs {missing}, too: give both, or neither")


@dataclass(frozen=True, slots=True)
class OmniServer:
    """The access to a server.

    Attributes:
        tls: of an encrypted connection; None for plain text.
        token_file: a file with the token that proves the user; None without.
        section: of the configuration that describes the server, for messages; empty for options of a Spark source.
    """

    tls: Tls | None = None
    token_file: str | None = None
    section: str = "source"

    def option(self, name: str) -> str:
        """The option that messages name, such as ``source.tls.ca`` for ``tls.ca``."""
        if self.section:
            return f"{self.section}.{name}"
        first, *others = name.replace("_", ".").split(".")
        return f"option {first}{''.join(part.capitalize() for part in others)}"
