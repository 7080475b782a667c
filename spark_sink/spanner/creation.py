"""What the sink creates in the destination: its bookkeeping table, and by option the tables that are missing."""

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_admin_database_v1 import DatabaseAdminClient
from google.cloud.spanner_admin_database_v1.services.database_admin.transports import DatabaseAdminGrpcTransport

from connector.spanner.blocking import BlockingClient, DatabaseAddress
from connector.spanner.client import ADMIN
from spark_sink.errors import SinkError
from spark_sink.spanner.config import Target
from spark_sink.spanner.destination_tables import Destination, destination_at
from spark_sink.spanner.progress import DDL, TABLE

_TIMEOUT = 300.0

_CREATED = re.compile(
    r"\s*CREATE\s+(TABLE|SCHEMA)\s+(?:IF\s+NOT\s+EXISTS\s+)?((?:[`\"]?[\w$]+[`\"]?\.?)+)", re.IGNORECASE
)


_DELETION_POLICY = re.compile(
    r",\s*ROW\s+DELETION\s+POLICY\s*\(\s*OLDER_THAN\s*\([^)]*\)\s*\)|\s+TTL\s+INTERVAL\s+'[^']*'\s+ON\s+(?:\"[^\"]+\"|\w+)",
    re.IGNORECASE,
)
"""Rows leave the destination when they leave the source."""


def prepare(target: Target, emulator_host: str | None) -> Destination:
    """Creates the bookkeeping table, if it is missing; returns what is there otherwise.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses it.
    """
    found = asyncio.run(destination_at(target, emulator_host))
    if TABLE not in found.tables:
        try:
            _update(target, emulator_host, [DDL[found.dialect.name]])
        except SinkError:
            if TABLE not in asyncio.run(destination_at(target, emulator_host)).tables:
                raise  # else the sink of the stream, or of a backfill beside it, has created it meanwhile
    return found


def create_missing(
    tables: Iterable[str], source: DatabaseAddress, target: Target, emulator_host: str | None
) -> list[str]:
    """Creates those of the source's tables that the destination lacks, as the source's DDL has them; returns them.

    Raises:
        SpannerCdcError: a database cannot be reached, or refuses it.
    """
    known = asyncio.run(destination_at(target, emulator_host)).tables
    missing = {table for table in tables if table not in known}
    if not missing:
        return []
    wanted = list(statements_of(_ddl(source, emulator_host), missing, _ddl(target, emulator_host)))
    if wanted:
        _update(target, emulator_host, wanted)
    return sorted(missing)


def statements_of(ddl: Iterable[str], tables: Collection[str], there: Iterable[str]) -> Iterator[str]:
    """The statements of a database's DDL that create some tables, and the schemas that they are in, in order.

    They are without policies that delete old rows, which would delete those that the source has written again.

    Args:
        ddl: the statements.
        tables: names, ``schema.table`` in a named schema.
        there: the statements of the other database, whose schemas are not created again.
    """
    known = {name for kind, name, _ in _created(there) if kind == "SCHEMA"}
    schemas = {table.rpartition(".")[0] for table in tables} - known
    for kind, name, statement in _created(ddl):
        if name in (schemas if kind == "SCHEMA" else tables):
            yield _DELETION_POLICY.sub("", statement)


def _created(ddl: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Of each statement that creates a table or a schema its kind, the name, and the statement."""
    for statement in ddl:
        if match := _CREATED.match(statement):
            yield match[1].upper(), re.sub(r'[`"]', "", match[2]).removeprefix("public."), statement


def _ddl(address: DatabaseAddress, emulator_host: str | None) -> list[str]:
    with _admin(address, emulator_host) as (admin, database):
        return list(admin.get_database_ddl(database=database, timeout=_TIMEOUT).statements)


@contextmanager
def _admin(address: DatabaseAddress, emulator_host: str | None) -> Iterator[tuple[DatabaseAdminClient, str]]:
    with BlockingClient(address, emulator_host, scopes=ADMIN) as client:
        try:
            yield DatabaseAdminClient(transport=DatabaseAdminGrpcTransport(channel=client.channel)), client.database
        except GoogleAPICallError as error:
            why = " ".join(str(error.message).split())
            raise SinkError(
                f"{client.database} refuses a change of its tables ({error.code}: {why})",
                hint="Create them by hand, or give the sink roles/spanner.databaseAdmin.",
            ) from error


def _update(target: Target, emulator_host: str | None, statements: list[str]) -> None:
    with _admin(target, emulator_host) as (admin, database):
        admin.update_database_ddl(database=database, statements=statements, timeout=_TIMEOUT).result(timeout=_TIMEOUT)
