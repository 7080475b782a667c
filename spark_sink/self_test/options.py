"""The options of a self-test, and the names of what it creates."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

MODES = ("merge", "merge-load", "append-only", "changelog")
"""The modes of the BigQuery sink."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of everything that one self-test makes; all hold its random suffix.

    Attributes:
        suffix: eight hex digits.
    """

    suffix: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def prefix(self) -> str:
        """The prefix of every name: letters, digits and underscores."""
        return f"self_test_{self.suffix}_"

    @property
    def database(self) -> str:
        """The database's id, if the self-test makes one."""
        return f"self-test-{self.suffix}"

    def of(self, name: str) -> str:
        """The whole name of a table or a change stream."""
        return f"{self.prefix}{name}"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line.

    Attributes:
        database: an existing database; None to make one.
        dataset: of BigQuery; None to omit BigQuery.
        bigquery_project: the dataset's project; None for ``project``.
        bucket: of Cloud Storage, ``gs://bucket`` or its name; None to omit it.
        dialect: of the database that is made, ``googlesql`` or ``postgresql``.
        emulator_host: an emulator's address; None for the service.
        endpoint: a regional or private endpoint of Spanner, or the address of a server of Spanner Omni.
        edition: ``cloud`` or ``omni``.
        tls: of a server of Spanner Omni, as in a configuration; None for plain text.
        token_file: with the token of a user of such a server.
        bigquery_endpoint: an emulator's REST address; None for the service.
        bigquery_grpc_endpoint: likewise for rows.
        modes: of the BigQuery sink.
        with_spark: whether sinks are run.
        seed: of the random values.
    """

    project: str
    instance: str
    database: str | None = None
    dataset: str | None = None
    bigquery_project: str | None = None
    bucket: str | None = None
    dialect: str = "googlesql"
    emulator_host: str | None = None
    endpoint: str | None = None
    edition: str = "cloud"
    tls: Mapping[str, str] | None = None
    token_file: str | None = None
    bigquery_endpoint: str | None = None
    bigquery_grpc_endpoint: str | None = None
    modes: tuple[str, ...] = MODES
    with_spark: bool = True
    seed: int = field(default_factory=lambda: secrets.randbelow(10**6))

    @property
    def server(self) -> dict[str, object]:
        """The options of a configuration that name the server."""
        named = {"project": self.project, "instance": self.instance, "endpoint": self.endpoint}
        tls = None if self.tls is None else dict(self.tls)
        return {"edition": self.edition, **named, "tls": tls, "token_file": self.token_file}

    @property
    def arguments(self) -> list[str]:
        """The options of a command line that name the server."""
        given = {"--edition": self.edition, "--project": self.project, "--instance": self.instance}
        given |= {f"--tls-{name}": path for name, path in (self.tls or {}).items()}
        given |= {"--endpoint": self.endpoint or "", "--token-file": self.token_file or ""}
        flags = [] if self.tls is None else ["--tls"]
        return [*flags, *(text for name, value in given.items() if value for text in (name, value))]

    @property
    def is_emulated(self) -> bool:
        """True for the official emulator, which skips a transaction now and then, and keeps no tags."""
        return self.emulator_host is not None

    @property
    def is_omni(self) -> bool:
        """True for a server of Spanner Omni."""
        return self.edition == "omni"

    @property
    def bucket_url(self) -> str | None:
        """The bucket as ``gs://bucket``, without a slash at its end."""
        return f"gs://{self.bucket.removeprefix('gs://').rstrip('/')}" if self.bucket else None

    def announced(self, names: Names) -> list[str]:
        """The resources that the self-test is about to create, and what they may cost, a line each."""
        if self.database is None:
            where = f"a database {names.database} ({self.dialect}) in instance {self.project}/{self.instance}"
            lines = [f"makes {where}, and deletes it at its end"]
        else:
            where = f"tables and change streams {names.prefix}... in database {self.database}"
            lines = [f"makes {where}, and deletes them at its end"]
        if self.bucket_url:
            lines.append(f"makes objects below {self.bucket_url}/{names.prefix.rstrip('_')}/, and deletes them")
        if self.dataset:
            project = self.bigquery_project or self.project
            lines.append(
                f"makes tables {names.prefix}... in BigQuery's dataset {project}.{self.dataset}, and deletes them"
            )
        cost = "costs some cents of storage, load and queries, and uses the instance's nodes for some minutes"
        if self.is_omni and not self.dataset and not self.bucket:
            cost = "costs nothing: it uses a server of Spanner Omni for some minutes"
        elif self.is_emulated and not self.dataset and not self.bucket:
            cost = "costs nothing: it runs against an emulator"
        return [*lines, cost]
