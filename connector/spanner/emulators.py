"""Emulators of Spanner: their addresses, and Google's library on a given channel, to them and to other servers."""

from collections.abc import Sequence

import grpc
from google.auth.credentials import AnonymousCredentials
from google.cloud import spanner
from google.cloud.spanner_admin_database_v1 import DatabaseAdminClient, DatabaseDialect
from google.cloud.spanner_admin_database_v1.services.database_admin.transports import DatabaseAdminGrpcTransport
from google.cloud.spanner_admin_instance_v1 import InstanceAdminClient
from google.cloud.spanner_admin_instance_v1.services.instance_admin.transports import InstanceAdminGrpcTransport
from google.cloud.spanner_v1 import SpannerClient
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.instance import Instance
from google.cloud.spanner_v1.services.spanner.transports.grpc import SpannerGrpcTransport

from connector.config.emulator_address import emulator_problem
from connector.errors import ConfigurationError
from connector.proxies import DIRECT_CHANNEL

PATIENCE = 2.0
"""Seconds in which a connection to an emulator is not refused: it is near."""

SILENCE = 8.0
"""Seconds in which an emulator answers, however busy its machine is."""


def checked_address(host: str, section: str) -> str:
    """An emulator's address, unless it cannot be one.

    Args:
        host: the address.
        section: of the configuration that may name it.

    Raises:
        ConfigurationError: it is not HOST:PORT.
    """
    if problem := emulator_problem(host, section):
        raise ConfigurationError([problem])
    return host


class ChannelClient(spanner.Client):
    """Google's client on one channel, whatever the environment names; it sends no metrics.

    It connects at the first call. The library's own channels to an emulator would use the environment's proxy.

    Args:
        channel: to the server, with its credentials.
        host: the server's ``host:port``.
        project: the project's id.
    """

    def __init__(self, channel: grpc.Channel, host: str, project: str) -> None:
        super().__init__(
            project=project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": host},
            disable_builtin_metrics=True,
        )
        self._emulator_host = self._host = host
        self._instance_admin_api = InstanceAdminClient(transport=InstanceAdminGrpcTransport(channel=channel))
        self._database_admin_api = DatabaseAdminClient(transport=DatabaseAdminGrpcTransport(channel=channel))
        self.spanner_api = SpannerClient(transport=SpannerGrpcTransport(channel=channel))

    def instance(  # type: ignore[override]  # fewer options
        self, instance_id: str, configuration_name: str | None = None, *, node_count: int | None = None
    ) -> "_Instance":
        """An instance of the server."""
        return _Instance(  # type: ignore[no-untyped-call]  # the library's
            instance_id, self, configuration_name, node_count=node_count, emulator_host=self._emulator_host
        )


class EmulatorClient(ChannelClient):
    """Google's client of one emulator.

    Args:
        host: the emulator's ``host:port``.
        project: the project's id.
    """

    def __init__(self, host: str, project: str) -> None:
        super().__init__(grpc.insecure_channel(host, options=DIRECT_CHANNEL), host, project)


class _Instance(Instance):
    def database(  # type: ignore[override]  # fewer options
        self,
        database_id: str,
        ddl_statements: Sequence[str] = (),
        *,
        database_dialect: int = DatabaseDialect.DATABASE_DIALECT_UNSPECIFIED,
        database_role: str | None = None,
    ) -> Database:
        """A database of the server."""
        found: Database = super().database(  # type: ignore[no-untyped-call]
            database_id, ddl_statements, database_dialect=database_dialect, database_role=database_role
        )
        found._spanner_api = self._client.spanner_api  # noqa: SLF001 - the library has no other way
        return found
