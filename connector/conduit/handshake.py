"""The handshake of a plugin with Conduit, as hashicorp/go-plugin's: environment variables, one line on standard output.

See https://github.com/hashicorp/go-plugin/blob/main/docs/internals.md. The line says which protocol is spoken, and on
which socket. After it standard output is Conduit's log, as standard error is: there it reads lines of go-hclog's JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from connector.errors import ConfigurationError

COOKIE = "CONDUIT_PLUGIN_MAGIC_COOKIE"
_COOKIE_VALUE = "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f"
"""Public, and the same everywhere: it says that Conduit has started the process, and is no secret."""

_VERSIONS, _CERTIFICATE, _FOLDER = "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_CLIENT_CERT", "PLUGIN_UNIX_SOCKET_DIR"
_LEVEL = "CONDUIT_CONNECTOR_LOG_LEVEL"
_UTILITIES, _TOKEN = "CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET", "CONDUIT_CONNECTOR_TOKEN"
_CONNECTOR = "CONDUIT_CONNECTOR_ID"
_PROTOCOL = "2"
"""The version of Conduit's connector protocol."""

_NOT_BY_CONDUIT = (
    "serve is started by Conduit: put an executable file that runs `exec spanner-cdc serve` into the folder of its"
    " connectors (conduit run --connectors.path)"
)


@dataclass(frozen=True, slots=True)
class Utilities:
    """Conduit's services for its plugins.

    Attributes:
        target: their address.
        token: what this plugin's calls are accepted by.
        connector: the id of the connector that this plugin is started for; empty if Conduit does not say it.
    """

    target: str
    token: str = field(repr=False)
    connector: str


def check_started_by_conduit(environment: Mapping[str, str]) -> None:
    """Checks that Conduit has started this process, whose standard error is then a log of hclog's lines.

    Raises:
        ConfigurationError: a person has, most likely, who reads plain text.
    """
    if environment.get(COOKIE) != _COOKIE_VALUE:
        raise ConfigurationError([_NOT_BY_CONDUIT])


def check_connection(environment: Mapping[str, str]) -> None:
    """Checks that Conduit speaks what is spoken here.

    Raises:
        ConfigurationError: it does not.
    """
    if _PROTOCOL not in environment.get(_VERSIONS, "").split(","):
        spoken = environment.get(_VERSIONS) or "none"
        raise ConfigurationError([f"this Conduit speaks version {spoken} of the connector protocol: 2 is needed"])
    if environment.get(_CERTIFICATE):
        raise ConfigurationError(["this Conduit wants an encrypted connection to its plugins: there is none here"])


def socket_parent(environment: Mapping[str, str]) -> str | None:
    """The folder in which sockets are to be; None for that of temporary files."""
    return environment.get(_FOLDER) or None


def line(socket: Path) -> str:
    """The line that says where the plugin listens."""
    return f"1|{_PROTOCOL}|unix|{socket}|grpc|\n"


def utilities(environment: Mapping[str, str]) -> Utilities | None:
    """Conduit's services; None for a Conduit that has none."""
    target = environment.get(_UTILITIES)
    return Utilities(target, environment.get(_TOKEN, ""), environment.get(_CONNECTOR, "")) if target else None


def wants_details(environment: Mapping[str, str]) -> bool:
    """True if Conduit logs messages of the levels DEBUG and TRACE."""
    return environment.get(_LEVEL, "").lower() in ("debug", "trace")
