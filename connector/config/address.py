"""The address of a database: one value that is passed to all that calls Spanner, in other processes, too."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

from connector.config.directed_reads import DirectedReads
from connector.config.omni import OmniServer
from connector.core.masking.rules import ColumnRules

ENDPOINT = "spanner.googleapis.com:443"
"""The address of the service, unless an endpoint is configured."""

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/@\[\]]+):(\d{1,5})")


def is_host_and_port(text: str) -> bool:
    """True for HOST:PORT, with a port from 1 to 65535."""
    found = _HOST_AND_PORT.fullmatch(text)
    return found is not None and 0 < int(found[2]) < 65536


def is_host(text: str) -> bool:
    """True for HOST, or HOST:PORT."""
    return is_host_and_port(text) or is_host_and_port(f"{text}:1")


def is_loopback(host: str) -> bool:
    """True for ``localhost`` and an address that only this machine reaches."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _one_name(host_and_port: str) -> str:
    """The host and port, where each name of this machine is ``localhost``."""
    host, _, port = host_and_port.rpartition(":")
    return f"localhost:{port}" if is_loopback(host.strip("[]").lower()) else host_and_port


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Names a database, and says how it is reached.

    Attributes:
        project: the project's id.
        instance: the instance's id.
        database: the database's id.
        endpoint: a regional or private endpoint of the service, or None; of Spanner Omni its server's ``host:port``.
        emulator_host: an emulator's ``host:port``, without credentials and encryption; None for the service.
        database_role: a role of fine-grained access control, or None.
        directed_reads: the replicas that serve reads; None where Spanner chooses.
        omni: the access to a server of Spanner Omni; None for the service and an emulator.
        columns: the columns that every reader of the database excludes or hashes before it returns a row; None if all
            are read as they are. It is a part of the address so that no reader can be without it.
    """

    project: str
    instance: str
    database: str
    endpoint: str | None = None
    emulator_host: str | None = None
    database_role: str | None = None
    directed_reads: DirectedReads | None = None
    omni: OmniServer | None = None
    columns: ColumnRules | None = None

    @property
    def path(self) -> str:
        """The resource name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    @property
    def host(self) -> str:
        """The address of Spanner, or of the emulator."""
        return self.emulator_host or self.endpoint or ENDPOINT

    @property
    def is_plain(self) -> bool:
        """True for a connection without encryption, which no proxy carries."""
        return bool(self.emulator_host) or (self.omni is not None and self.omni.tls is None)

    def is_database_of(self, other: "DatabaseAddress") -> bool:
        """True if both are one database.

        The service has it at each endpoint. An emulator may have any names, and all servers of Spanner Omni have the
        same project and instance. All names of this machine are one.
        """
        are_of_service = self.is_of_service and other.is_of_service
        return self.path == other.path and (are_of_service or _one_name(self.host) == _one_name(other.host))

    @property
    def is_of_service(self) -> bool:
        """True for the service of Google Cloud: neither an emulator nor a server of Spanner Omni."""
        return self.omni is None and self.emulator_host is None
