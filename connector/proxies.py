"""Proxies that the environment names: emulators are reached without one, and errors of other servers name the variable.

gRPC and HTTP clients use a proxy for addresses of this machine, too, where it cannot reach them.
"""

import os
import urllib.request

import requests
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession

DIRECT_CHANNEL: tuple[tuple[str, int], ...] = (("grpc.enable_http_proxy", 0),)
"""The options of a gRPC channel to an emulator."""

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens addresses of this machine."""

_OF_GRPC = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCLUDED = ("no_grpc_proxy", "no_proxy")


def direct_session() -> AuthorizedSession:
    """An HTTP session for Google's libraries with an emulator, which gets no credentials."""
    session = AuthorizedSession(AnonymousCredentials())
    session.trust_env = False  # a CA bundle and a .netrc are not for emulators, either
    return session


def grpc_proxy(host: str) -> str:
    """The name of the variable with the proxy that gRPC uses for ``host:port``; empty if there is none.

    https://grpc.github.io/grpc/core/md_doc_environment_variables.html
    """
    name = next((name for name in _OF_GRPC if name in os.environ), "")
    if not name or not os.environ[name].strip():
        return ""
    server = host.rpartition(":")[0] or host
    excluded = next((os.environ[name] for name in _EXCLUDED if name in os.environ), "")
    suffixes = [suffix.strip().lower() for suffix in excluded.split(",")]
    return "" if any(suffix and server.lower().endswith(suffix) for suffix in suffixes) else name


def https_proxy(host: str) -> str:
    """The name of the variable with the proxy that HTTPS requests to a host use; empty if there is none."""
    if requests.utils.should_bypass_proxies(f"https://{host}", None):
        return ""
    names = [name for scheme in ("https_proxy", "all_proxy") for name in (scheme, scheme.upper())]
    return next((name for name in names if os.environ.get(name)), "")


def is_of_proxy(error: BaseException | None) -> bool:
    """True if an error of an HTTP library says that the proxy refuses, or cannot be reached."""
    while error is not None and not isinstance(error, requests.exceptions.ProxyError):
        error = error.__cause__ or error.__context__
    return error is not None


def hint(variable: str) -> str:
    """A hint about a proxy that may be why a server does not answer; empty if no variable names one."""
    if not variable:
        return ""
    return f"Requests go through the proxy that {variable} names: correct it, or add the address to no_proxy."
