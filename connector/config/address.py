"""The address of a database: one value that is passed to all that calls Spanner, in other processes, too."""

from dataclasses import dataclass

from connector.config.directed_reads import DirectedReads

ENDPOINT = "spanner.googleapis.com:443"
"""The address of the service, unless an endpoint is configured."""


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Names a database, and says how it is reached.

    Attributes:
        project: the project's id.
        instance: the instance's id.
        database: the database's id.
        endpoint: a regional or private endpoint of the service, or None.
        emulator_host: an emulator's ``host:port``, without credentials and encryption; None for the service.
        database_role: a role of fine-grained access control, or None.
        directed_reads: the replicas that serve reads; None where Spanner chooses.
    """

    project: str
    instance: str
    database: str
    endpoint: str | None = None
    emulator_host: str | None = None
    database_role: str | None = None
    directed_reads: DirectedReads | None = None

    @property
    def path(self) -> str:
        """The resource name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    @property
    def host(self) -> str:
        """The address of Spanner, or of the emulator."""
        return self.emulator_host or self.endpoint or ENDPOINT
