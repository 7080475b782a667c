"""The reason why no connection to a server of Spanner Omni can be made, found by a handshake of its own.

gRPC says that a socket was closed where a server wants encryption, or another certificate.
"""

import socket
import ssl

from connector.config.address import DatabaseAddress
from connector.config.omni import OmniServer, Tls
from connector.errors import ConfigurationError, SpannerCdcError, UnreachableError

_PATIENCE = 5.0
"""Seconds for each step."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""The beginning of HTTP/2: a server answers with settings of its own."""

_EXPIRED, _NOT_YET_VALID, _OTHER_HOST, _OTHER_ADDRESS = 10, 9, 62, 64
"""Of OpenSSL's X509_V_ERR."""


def refused_connection(address: DatabaseAddress, why: str) -> SpannerCdcError:
    """The error for a server that accepts no connection.

    Args:
        address: whose server it is.
        why: what gRPC has seen, as a clause.
    """
    server = address.omni
    assert server is not None
    option = server.option("tls")
    try:
        if server.tls is None:
            if _speaks_tls(address):
                return ConfigurationError([f"{option}: the server at {address.host} wants encryption: set {option}"])
        else:
            _shake_hands(address, server, server.tls)
    except (ConfigurationError, UnreachableError) as error:
        return error
    except OSError as error:
        why = error.strerror or str(error)
    return UnreachableError(
        f"no Spanner Omni server answers at {address.host}: {why}",
        hint=f"Start it, or correct {server.option('endpoint')}.",
    )


def _connected(address: DatabaseAddress) -> socket.socket:
    host, _, port = address.host.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _PATIENCE)


def _speaks_tls(address: DatabaseAddress) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    with _connected(address) as connection:
        try:
            context.wrap_socket(connection).close()
        except (ssl.SSLError, TimeoutError, ConnectionError):
            return False
    return True


def _shake_hands(address: DatabaseAddress, server: OmniServer, tls: Tls) -> None:
    """Raises the error that a handshake explains."""
    context = ssl.create_default_context(cafile=tls.ca)
    context.set_alpn_protocols(["h2"])
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    name = address.host.rpartition(":")[0].strip("[]")
    at = f"the server at {address.host}"
    with _connected(address) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=name) as secured:
                secured.sendall(_PREFACE)
                answer = secured.recv(1)
        except ssl.SSLCertVerificationError as error:
            raise _refused_certificate(error, at, server, tls) from None
        except ssl.SSLError as error:
            if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
                raise ConfigurationError(
                    [f"{server.option('tls')}: {at} speaks plain text: omit {server.option('tls')}"]
                ) from None
            answer = b""
        except (TimeoutError, ConnectionError):
            answer = b""
    if not answer:
        option = server.option("tls.certificate")
        raise ConfigurationError(
            [
                f"{option}: {at} ends the connection: it wants a client's certificate: set it, and its key"
                if tls.certificate is None
                else f"{option}: {at} does not accept {tls.certificate}: use a certificate that its CA has signed"
            ]
        )


def _refused_certificate(
    error: ssl.SSLCertVerificationError, at: str, server: OmniServer, tls: Tls
) -> ConfigurationError | UnreachableError:
    match error.verify_code:
        case code if code == _EXPIRED:
            return UnreachableError(
                f"{server.option('endpoint')}: the certificate of {at} has expired", hint="Renew it there."
            )
        case code if code == _NOT_YET_VALID:
            return UnreachableError(
                f"{server.option('endpoint')}: the certificate of {at} is not valid yet",
                hint="Look at the clocks of both machines.",
            )
        case code if code in (_OTHER_HOST, _OTHER_ADDRESS):
            return ConfigurationError(
                [f"{server.option('endpoint')}: the certificate of {at} is for another name: use a name that it has"]
            )
    which = "public CAs have" if tls.ca is None else f"{tls.ca} has"
    why = f"the certificate of {at} is signed by none that {which} ({error.verify_message})"
    return ConfigurationError([f"{server.option('tls.ca')}: {why}: name the file with the CA of that server"])
