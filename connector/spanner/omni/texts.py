"""Texts of gRPC about connections that a server of Spanner Omni refuses, and the hints for them. Pure."""

import re

from connector.config.omni import OmniServer

_HANDSHAKES = (
    (r"certificate has expired", "The certificate of the server has expired: renew it there."),
    (r"CERTIFICATE_VERIFY_FAILED", "The server's certificate is signed by no CA of {section}.tls.ca: correct it."),
    (
        r"Hostname Verification Check failed",
        "The server's certificate is for another name than {section}.endpoint.",
    ),
    (r"WRONG_VERSION_NUMBER", "The server speaks plain text: omit {section}.tls."),
    (r"Failed to create security handshaker", "Check the files of {section}.tls: the key must fit the certificate."),
)
_OPTION = re.compile(r"(?:\w+\.)?token_?file\b(?P<missing> is not set)?", re.IGNORECASE)


def with_token_option(message: str, server: OmniServer) -> str:
    """The message of a refused user, with the option that holds its token; it travels to other processes."""
    option = server.option("token_file")
    return f"{' '.join(message.split())} ({option}{'' if server.token_file else ' is not set'})"


def handshake_hint(message: str, section: str) -> str:
    """A hint for an encrypted connection that cannot be made; empty for other errors."""
    for pattern, hint in _HANDSHAKES:
        if re.search(pattern, message):
            return hint.format(section=section)
    return ""


def token_hint(message: str) -> str:
    """A hint for a call that was refused for its token; empty for calls with Google's credentials."""
    found = _OPTION.search(message)
    if found is None:
        return ""
    if found["missing"]:
        return f"Set {found[0].partition(' ')[0]}, or a client's certificate: the server wants to know the user."
    return f"Write a new token to {found[0]}, which is read again when it changes: one of Spanner Omni lasts an hour."
