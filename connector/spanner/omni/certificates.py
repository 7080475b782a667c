"""The files of an encrypted connection to Spanner Omni, checked before gRPC gets them: its own messages are opaque."""

from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from connector.config.omni import OmniServer, Tls
from connector.errors import ConfigurationError, advice

_LARGEST = 1024 * 1024
"""Bytes of a file that is read: a wrong path may name anything."""


def certified_channel(server: OmniServer, tls: Tls) -> grpc.ChannelCredentials:
    """Reads the files, and returns the credentials of a gRPC channel that they make.

    Raises:
        ConfigurationError: every fault: a file is missing or invalid, a certificate has expired, or a key does not fit.
    """
    errors: list[str] = []
    ca = _checked_ca(server, tls.ca, errors)
    certificate = key = None
    if tls.certificate is not None and tls.key is not None:
        certificate = content(server.option("tls.certificate"), tls.certificate, errors)
        key = content(server.option("tls.key"), tls.key, errors)
        if certificate is not None and key is not None:
            errors += _faults_of_pair(server, tls, certificate, key)
    if errors:
        raise ConfigurationError(errors)
    return grpc.ssl_channel_credentials(ca, key, certificate)


def content(option: str, path: str, errors: list[str]) -> bytes | None:
    """The content of a small file; None, and an error that names the option, if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            found = file.read(_LARGEST)
    except OSError as error:
        hint = advice(error, access="read") or "Correct the path, which worker processes and executors read, too"
        errors.append(f"{option}: {path}: {error.strerror or error}. {hint}".rstrip("."))
        return None
    if not found.strip():
        errors.append(f"{option}: {path} is empty")
        return None
    return found


def _checked_ca(server: OmniServer, path: str | None, errors: list[str]) -> bytes | None:
    if path is None:
        return None  # gRPC's own
    option = server.option("tls.ca")
    found = content(option, path, errors)
    certificates = _parsed(option, path, found, errors) if found is not None else []
    if certificates and all(one.not_valid_after_utc < datetime.now(UTC) for one in certificates):
        errors.append(f"{option}: {path} has expired at {_text(certificates[0].not_valid_after_utc)}: renew it")
    return found


def _faults_of_pair(server: OmniServer, tls: Tls, certificate: bytes, key: bytes) -> list[str]:
    errors: list[str] = []
    option = server.option("tls.certificate")
    found = _parsed(option, str(tls.certificate), certificate, errors)
    if not found:
        return errors
    own, now = found[0], datetime.now(UTC)
    if own.not_valid_after_utc < now:
        errors.append(f"{option}: {tls.certificate} has expired at {_text(own.not_valid_after_utc)}: renew it")
    elif own.not_valid_before_utc > now:
        begins = _text(own.not_valid_before_utc)
        errors.append(f"{option}: {tls.certificate} is valid only from {begins} on: look at this machine's clock")
    option = server.option("tls.key")
    try:
        public = load_pem_private_key(key, None).public_key()
    except TypeError:
        return [*errors, f"{option}: {tls.key} has a passphrase, which this version cannot ask for: store it without"]
    except Exception:  # noqa: BLE001 - the library raises many kinds, and its texts may hold parts of the key
        return [*errors, f"{option}: {tls.key} has no private key in PEM"]
    as_der = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*as_der) != own.public_key().public_bytes(*as_der):
        errors.append(f"{option}: {tls.key} does not fit the certificate {tls.certificate}: name the key of that one")
    return errors


def _parsed(option: str, path: str, text: bytes, errors: list[str]) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        errors.append(f"{option}: {path} has no certificate in PEM")
        return []


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
