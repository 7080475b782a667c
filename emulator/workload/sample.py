"""Creates a sample database in an emulator: tables of every kind, and a change stream that watches all of them."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass

from google.api_core.exceptions import AlreadyExists
from google.cloud.spanner_admin_database_v1 import DatabaseDialect
from google.cloud.spanner_v1.client import Client
from google.cloud.spanner_v1.database import Database

from emulator.official.connection import connect
from emulator.workload.tables import TABLES, Dialect, Table, ddl

_SECONDS = 60
_DIALECTS: dict[str, tuple[Dialect, int]] = {
    "googlesql": ("googlesql", DatabaseDialect.GOOGLE_STANDARD_SQL),
    "postgresql": ("postgresql", DatabaseDialect.POSTGRESQL),
}


@dataclass(frozen=True, slots=True)
class SampleDatabase:
    """A database created by `create`, with its names and google-cloud-spanner's objects for it."""

    host: str
    project: str
    instance: str
    database_id: str
    dialect: Dialect
    change_stream: str
    value_capture_type: str
    client: Client
    database: Database
    tables: tuple[Table, ...] = TABLES

    @classmethod
    def create(
        cls,
        host: str,
        *,
        dialect: str = "googlesql",
        project: str = "sample-project",
        instance: str = "sample-instance",
        database_id: str | None = None,
        change_stream: str = "Everything",
        value_capture_type: str = "NEW_ROW",
    ) -> SampleDatabase:
        """Creates the database, and the instance (2 characters or more) if there is none, in the emulator at `host`.

        The database's id is a new random one if None. The change stream is FOR ALL, with the given value capture
        type. Raises ValueError for a dialect other than googlesql and postgresql; other errors are Spanner's
        (google.api_core.exceptions), such as AlreadyExists if the database exists.
        """
        if dialect not in _DIALECTS:
            raise ValueError(f"{dialect!r} is not a valid dialect: use googlesql or postgresql")
        known, database_dialect = _DIALECTS[dialect]
        client = connect(host, project)
        made = client.instance(instance, f"{client.project_name}/instanceConfigs/emulator-config", node_count=1)
        with contextlib.suppress(AlreadyExists):
            made.create().result(timeout=_SECONDS)
        name = database_id or f"sample-{uuid.uuid4().hex[:12]}"
        database = made.database(name, database_dialect=database_dialect)
        database.create().result(timeout=_SECONDS)
        sample = cls(
            host=host,
            project=project,
            instance=instance,
            database_id=name,
            dialect=known,
            change_stream=change_stream,
            value_capture_type=value_capture_type,
            client=client,
            database=database,
        )
        sample.run_ddl(*ddl(known, change_stream, value_capture_type))
        return sample

    @property
    def path(self) -> str:
        """The database's full name: projects/P/instances/I/databases/D."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database_id}"

    def run_ddl(self, *statements: str) -> None:
        """Runs DDL statements in order and waits until they are done; errors are google.api_core.exceptions."""
        self.database.update_ddl(list(statements)).result(timeout=_SECONDS)

    def drop(self) -> None:
        """Drops the database; an emulator holds 100 per instance."""
        self.database.drop()
