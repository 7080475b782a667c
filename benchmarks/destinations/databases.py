"""Databases of the official emulator with one table: what rows are written into."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from google.cloud.spanner_v1.database import Database

from connector.config.address import DatabaseAddress
from emulator import SampleDatabase
from emulator.official.connection import connect


@contextmanager
def database_with(host: str, dialect: str, table: str, columns: Mapping[str, str]) -> Iterator[DatabaseAddress]:
    """A database without a change stream, and with a table of those columns; the first one is its key."""
    sample = SampleDatabase.create(host, dialect=dialect)
    is_postgresql = dialect == "postgresql"
    quote = '"' if is_postgresql else "`"
    of_table = ", ".join(f"{quote}{name}{quote} {kind}" for name, kind in columns.items())
    key = f"PRIMARY KEY ({quote}{next(iter(columns))}{quote})"
    try:
        sample.run_ddl(
            f"DROP CHANGE STREAM {quote}{sample.change_stream}{quote}",
            f"CREATE TABLE {quote}{table}{quote} ({of_table}{f', {key})' if is_postgresql else f') {key}'}",
        )
        yield DatabaseAddress(sample.project, sample.instance, sample.database_id, None, host)
    finally:
        sample.drop()


@cache
def connected(target: DatabaseAddress) -> Database:
    """A client of that database, one in each process."""
    assert target.emulator_host is not None
    client = connect(target.emulator_host, target.project)
    database: Database = client.instance(target.instance).database(target.database)
    return database
