"""A scripted server of Spanner Omni: in plain text, with TLS, or with TLS for clients with a certificate."""

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from connector.config import SourceConfig
from connector.core.timestamps import SECOND, format_rfc3339
from emulator import Scenario, ScriptedServer

DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that issues certificates into a folder."""

    folder: Path
    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey

    @classmethod
    def named(cls, folder: Path, name: str) -> "Authority":
        private = ec.generate_private_key(ec.SECP256R1())
        certificate = _built(name, name, private, private, -DAY, 30 * DAY, is_ca=True)
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, certificate, private)

    @property
    def ca(self) -> Path:
        return self.folder / f"{_name(self.certificate)}.pem"

    def issue(
        self, name: str, *, begins: dt.timedelta = -DAY, ends: dt.timedelta = 30 * DAY, address: str = "127.0.0.1"
    ) -> Issued:
        """A certificate of that name, valid between two times from now."""
        private = ec.generate_private_key(ec.SECP256R1())
        made = _built(name, _name(self.certificate), private, self.private, begins, ends, address=address)
        found = Issued(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        found.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        found.key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return found

    def credentials(self, issued: Issued, *, of_clients: bool = False) -> grpc.ServerCredentials:
        """Of a server with that certificate; ``of_clients`` wants one of this CA's of each client."""
        pair = (issued.key.read_bytes(), issued.certificate.read_bytes())
        return grpc.ssl_server_credentials([pair], self.ca.read_bytes() if of_clients else None, of_clients)


def _name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _built(
    name: str,
    issuer: str,
    private: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    begins: dt.timedelta,
    ends: dt.timedelta,
    *,
    is_ca: bool = False,
    address: str = "127.0.0.1",
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, issuer)]
    return (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))]), critical=False)
        .sign(signer, hashes.SHA256())
    )


@contextmanager
def serving_omni(credentials: grpc.ServerCredentials | None = None, *, seed: int = 7) -> Iterator[ScriptedServer]:
    """A server with a history that ended ten seconds ago, whose project and instance are Omni's."""
    now = time.time_ns()
    scenario = Scenario.generate(
        seed,
        origin=now - 40 * SECOND,
        seconds=30,
        dialect="googlesql",
        mode="IMMUTABLE_KEY_RANGE",
        transactions=60,
    )
    named = replace(scenario, project="default", instance="default")
    with ScriptedServer.started(named, begins=now, credentials=credentials) as server:
        yield server


def node_of(server: ScriptedServer, **options: Any) -> dict[str, Any]:
    """The section ``source`` for all of a server's stream."""
    scenario = server.engine.scenario
    return {
        "edition": "omni",
        "endpoint": server.host,
        "database": scenario.database,
        "change_stream": scenario.change_stream,
        "start": format_rfc3339(scenario.history.origin),
        "end": format_rfc3339(scenario.history.horizon),
        **options,
    }


def source_of(server: ScriptedServer, **options: Any) -> SourceConfig:
    """The same, as it is read."""
    return SourceConfig.model_validate(node_of(server, **options))


def mutual(authority: Authority, client: Issued) -> dict[str, str]:
    """The option ``tls`` of a client with a certificate."""
    return {"ca": str(authority.ca), "certificate": str(client.certificate), "key": str(client.key)}
