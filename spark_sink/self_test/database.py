"""Makes the database, tables and change streams of a self-test, and deletes what it made."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from google.api_core.exceptions import GoogleAPICallError, NotFound, ServiceUnavailable
from google.cloud import spanner
from google.cloud.spanner_admin_database_v1 import DatabaseAdminClient, DatabaseDialect
from google.cloud.spanner_v1.database import Database
from google.cloud.spanner_v1.instance import Instance
from grpc import StatusCode

from connector.config.address import DatabaseAddress
from connector.config.loading import validated
from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError
from connector.process import EMULATOR_HOST
from connector.spanner.blocking import BlockingClient
from connector.spanner.client import ADMIN
from connector.spanner.emulators import ChannelClient, EmulatorClient
from connector.spanner.omni.handshake import refused_connection
from spark_sink.self_test.errors import words_of
from spark_sink.self_test.options import Names, Options
from spark_sink.self_test.splits import AskedSplits, ask_for_splits
from spark_sink.self_test.tables import (
    CHANGED,
    KEYS,
    MUTABLE,
    PLACED,
    SCALARS,
    WHOLE,
    WorkloadTable,
    stream_ddl,
    tables,
    unwatched_table,
    uuid_table,
)
from spark_sink.self_test.values import Limits
from spark_sink.self_test.workload import INSERT, Committed, Planned, WorkloadMod, WorkloadPlanner, commit, nanoseconds

_TIMEOUT = 600.0
_FIRST_TIMEOUT = 30.0
"""Seconds for the first call, so that a wrong address is noticed soon."""

_BEFORE_SPLITS = 6
"""Transactions that are committed before splits are asked for."""

_SPLIT_KEYS = (("types", (("3",), ("6",))), ("children", (("1", "300"),)))
"""Amid the rows of tables: as Spanner's JSON, where an INT64 is a string."""

_MAKES_NOTHING = {
    StatusCode.FAILED_PRECONDITION,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.PERMISSION_DENIED,
    StatusCode.UNIMPLEMENTED,
}
"""Codes of a refused statement; after another one it may have been carried out."""


@dataclass(slots=True)
class Leftovers:
    """The resources that were created and must be deleted, the newest first."""

    made: list[tuple[str, str, Callable[[], object]]] = field(default_factory=list)

    def add(self, what: str, command: str, delete: Callable[[], object]) -> None:
        """Remembers how something is deleted; called before it is made, so that nothing is forgotten.

        Args:
            what: it is.
            command: deletes it by hand.
            delete: deletes it, and does nothing if it is not there.
        """
        self.made.append((what, command, delete))

    def delete(self) -> list[tuple[str, str]]:
        """Deletes everything; returns what is left, each with its command. A second Ctrl-C ends it early."""
        left: list[tuple[str, str]] = []
        while self.made:
            what, command, delete = self.made[-1]
            try:
                delete()
            except KeyboardInterrupt:
                left += [(what, command) for what, command, _ in reversed(self.made)]
                self.made.clear()
                return left
            except Exception as error:  # noqa: BLE001 - whatever it is, the rest is deleted and this is reported
                left.append((f"{what} ({words_of(error)})", command))
            self.made.pop()
        return left


@dataclass(slots=True)
class TestDatabase:
    """The database with its tables and change streams.

    Attributes:
        tables: those that the change streams watch, by name.
        streams: the kinds of change streams that were created.
        refused: kinds of streams, or tables, that the server refused, each with its words.
        created: when the change streams were about to be created, by Spanner's clock, in nanoseconds since 1970.
        committed: by the workload.
        splits: the answer to the request for splits, which is made amid the workload; None before it.
        unwatched: transactions on the table whose key alone is watched.
    """

    options: Options
    names: Names
    dialect: str
    id: str
    database: Database
    admin: DatabaseAdminClient
    tables: dict[str, WorkloadTable] = field(default_factory=dict)
    streams: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    created: int = 0
    committed: list[Committed] = field(default_factory=list)
    splits: AskedSplits | None = None
    unwatched: list[Committed] = field(default_factory=list)

    @classmethod
    def make(cls, options: Options, names: Names, left: Leftovers) -> "TestDatabase":
        """Makes it, or tables and change streams in the one that is named.

        Raises:
            ConfigurationError: there is no such instance or database.
            GoogleAPIError, GoogleAuthError: Spanner refuses, or cannot be reached.
        """
        if options.emulator_host:
            os.environ[EMULATOR_HOST] = options.emulator_host
        else:
            os.environ.pop(EMULATOR_HOST, None)
        client = _client(options)
        instance = _instance(client, options, left)
        if options.database is None:
            database, dialect = _create_database(instance, options, names, left), options.dialect
        else:
            database = instance.database(options.database)
            if not database.exists():
                raise ConfigurationError([f"--database: there is no database {options.database} in {instance.name}"])
            database.reload()
            is_postgresql = database.database_dialect == DatabaseDialect.POSTGRESQL
            dialect = "postgresql" if is_postgresql else "googlesql"
        found = cls(options, names, dialect, options.database or names.database, database, client.database_admin_api)
        found._create(left)
        return found

    def now(self) -> int:
        """Spanner's clock, nanoseconds since 1970."""
        with self.database.snapshot() as snapshot:
            (row,) = list(snapshot.execute_sql("SELECT CURRENT_TIMESTAMP"))
        return nanoseconds(row[0])

    def clock_skew(self) -> float:
        """Seconds by which Spanner's clock is before this machine's, give or take half a round trip."""
        before = time.time()
        there = self.now() / SECOND
        return there - (before + time.time()) / 2

    def write(self) -> None:
        """Commits the workload, and asks for splits of its tables in the middle.

        Raises:
            GoogleAPIError: Spanner refuses a transaction.
        """
        limits = Limits(self.options.is_emulated, 9 if self.dialect == "googlesql" else 6)
        planner = WorkloadPlanner(self.tables, Random(self.options.seed), limits)  # noqa: S311 - values, no secret
        for planned in planner.transactions():
            if planned.mods:
                self.committed.append(commit(self.database, planned, self.tables))
            if len(self.committed) == _BEFORE_SPLITS:
                self.splits = self._ask_for_splits()

    def history_of(self, kind: str) -> tuple[dict[str, WorkloadTable], list[Committed]]:
        """The tables that a change stream watches whole, and what was committed to them."""
        if kind != PLACED:
            return self.tables, self.committed
        table = unwatched_table(self.names)
        return {table.name: table}, self.unwatched

    def write_unwatched(self) -> None:
        """Inserts, updates and deletes a row of the table whose key alone is watched."""
        table = unwatched_table(self.names)
        for mod_type, note in ((INSERT, "a"), ("UPDATE", "b"), ("DELETE", "b")):
            mod = WorkloadMod(table.name, mod_type, ("1",), {"id": "1", "note": note}, frozenset({"note"}))
            self.unwatched.append(commit(self.database, Planned((mod,)), {table.name: table}))

    def _ask_for_splits(self) -> AskedSplits:
        points = [(self.names.of(table), keys) for table, keys in _SPLIT_KEYS]
        return ask_for_splits(self.admin, self.database.name, points, self.now())

    def _create(self, left: Leftovers) -> None:
        """Creates first, in one change, what every server must accept, because schema changes are slow; then the rest.

        Raises:
            GoogleAPIError: that is refused.
        """
        # local-bigquery leaves appended arrays of these types encoded.
        omitted = {"BYTES", "JSON"} if self.options.bigquery_endpoint else set[str]()
        arrays = [kind for kind in SCALARS if kind not in omitted]
        self.tables = {table.name: table for table in tables(self.names, arrays)}
        optional = uuid_table(self.names), unwatched_table(self.names)
        self._add(left, *(("TABLE", table.name, table.ddl(self.dialect)) for table in self.tables.values()))
        for table in optional:
            self._try(left, table.name, "TABLE", table.name, table.ddl(self.dialect))
        if optional[0].name not in self.refused:
            self.tables[optional[0].name] = optional[0]
        self.created = self.now()
        watched = tuple(self.tables.values())
        whole = stream_ddl(self.names, WHOLE, watched, self.dialect)
        self._add(left, ("CHANGE STREAM", self.names.of(WHOLE), whole))
        for kind, chosen in ((CHANGED, watched), (MUTABLE, watched), (KEYS, optional[1:]), (PLACED, optional[1:])):
            statement = stream_ddl(self.names, kind, chosen, self.dialect)
            self._try(left, kind, "CHANGE STREAM", self.names.of(kind), statement)
        self.streams = [kind for kind in (WHOLE, CHANGED, MUTABLE, KEYS, PLACED) if kind not in self.refused]

    def _try(self, left: Leftovers, what: str, kind: str, name: str, statement: str) -> None:
        """Creates what a server may refuse."""
        try:
            self._add(left, (kind, name, statement))
        except GoogleAPICallError as error:
            self.refused[what] = words_of(error)
            if self.options.database is not None and error.grpc_status_code in _MAKES_NOTHING:
                left.made.pop()

    def _add(self, left: Leftovers, *made: tuple[str, str, str]) -> None:
        """Creates things, each with its kind, name and statement; they are dropped unless the whole database is."""
        for kind, name, _ in made if self.options.database is not None else ():
            drop = f"DROP {kind} {name}"
            command = _by_hand(self.options, f"databases ddl update {self.id} --ddl='{drop}'", drop)
            left.add(f"{kind.lower()} {name}", command, partial(self._drop, drop))
        self._ddl(*(statement for _, _, statement in made))

    def _drop(self, statement: str) -> None:
        with suppress(NotFound):
            self._ddl(statement)

    def _ddl(self, *statements: str) -> None:
        self.database.update_ddl(statements).result(timeout=_TIMEOUT)


def _by_hand(options: Options, command: str, statement: str) -> str:
    """The command that deletes something: Google's, or what to run on a server of Spanner Omni."""
    if options.is_omni:
        return f"{statement}, on the server {options.endpoint}"
    return f"gcloud spanner {command} --project={options.project} --instance={options.instance}"


def _client(options: Options) -> spanner.Client:
    """Google's client of the server.

    Raises:
        SpannerCdcError: the options of the server are invalid, or one of Spanner Omni does not answer.
    """
    address = validated({"source": {**options.server, "database": "any", "change_stream": "any"}}).source.address
    if options.emulator_host:
        return EmulatorClient(options.emulator_host, options.project)
    if options.is_omni:
        return _omni_client(options, address)
    endpoint = {"api_endpoint": options.endpoint} if options.endpoint else None
    return spanner.Client(project=options.project, client_options=endpoint, disable_builtin_metrics=True)


def _omni_client(options: Options, address: DatabaseAddress) -> spanner.Client:
    """Google's client of a server of Spanner Omni, which answers."""
    client = ChannelClient(BlockingClient(address, scopes=ADMIN).channel, address.host, options.project)
    instance = f"projects/{options.project}/instances/{options.instance}"
    try:
        client.database_admin_api.list_databases(parent=instance, retry=None, timeout=_FIRST_TIMEOUT)
    except ServiceUnavailable as error:
        raise refused_connection(address, words_of(error)) from error
    return client


def _instance(client: spanner.Client, options: Options, left: Leftovers) -> Instance:
    """The instance; on an emulator, which begins with none, it is made."""
    config = f"{client.project_name}/instanceConfigs/emulator-config"
    instance: Instance = client.instance(options.instance, config, node_count=1)
    if options.is_omni:
        return instance  # each server has one
    try:
        client.instance_admin_api.get_instance(name=instance.name, retry=None, timeout=_FIRST_TIMEOUT)
    except NotFound:
        if options.emulator_host is None:
            raise ConfigurationError([f"--instance: there is no instance {instance.name}"]) from None
        command = f"gcloud spanner instances delete {options.instance} --project={options.project}"
        left.add(f"instance {options.instance} of the emulator", command, instance.delete)
        instance.create().result(timeout=_TIMEOUT)
    return instance


def _create_database(instance: Instance, options: Options, names: Names, left: Leftovers) -> Database:
    kind = DatabaseDialect.POSTGRESQL if options.dialect == "postgresql" else DatabaseDialect.GOOGLE_STANDARD_SQL
    database: Database = instance.database(names.database, database_dialect=kind)

    def drop() -> None:
        with suppress(NotFound):
            database.drop()

    command = _by_hand(options, f"databases delete {names.database}", f"DROP DATABASE `{names.database}`")
    left.add(f"database {names.database}", command, drop)
    database.create().result(timeout=_TIMEOUT)
    return database
