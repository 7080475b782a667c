"""The places that a table is copied to: how the sink and the plain way write each, and how many rows have arrived."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from benchmarks.destinations import copying, plain_clients
from benchmarks.destinations.copying import Sink
from benchmarks.destinations.databases import connected, database_with
from benchmarks.destinations.library import Parts
from benchmarks.measure.files import rows_below
from benchmarks.measure.subject import Measure, Measuring, Work
from benchmarks.replay.rows import COLUMNS, TABLE
from connector.config.address import DatabaseAddress
from emulator import find_or_start
from emulator.bigquery.double import BigQueryDouble


class Target(Protocol):
    """An empty place: the destination of one copy."""

    @property
    def sink(self) -> Sink:
        """The section ``sink`` that writes it."""

    def plainly(self, spark: Measuring, parts: Parts) -> Measure:
        """Measures the plain way."""

    def rows(self, spark: Measuring) -> int:
        """The rows that have arrived."""


class Place(Protocol):
    """A kind of destination."""

    def target(self, folder: str) -> AbstractContextManager[Target]:
        """An empty target; the folder is its own."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A format of a sink that writes into a folder.

    Attributes:
        sink_type: the sink's.
        file_format: of both ways.
        copy: copies the table plainly.
        count: returns the rows in a folder.
    """

    sink_type: str
    file_format: str
    copy: Work
    count: Callable[[Measuring, str, str], int]

    @contextmanager
    def target(self, folder: str) -> Iterator[Target]:
        """A folder for what is written."""
        yield _FolderTarget(f"{folder}/out", self)


@dataclass(frozen=True, slots=True)
class _FolderTarget:
    folder: str
    kind: Folder

    @property
    def sink(self) -> Sink:
        return {"type": self.kind.sink_type, "path": self.folder, "format": self.kind.file_format}

    def plainly(self, spark: Measuring, parts: Parts) -> Measure:
        return spark.run(self.kind.copy, parts, self.folder, self.kind.file_format)

    def rows(self, spark: Measuring) -> int:
        return self.kind.count(spark, self.folder, self.kind.file_format)


def files(file_format: str) -> Folder:
    """Files of a format of the file sink."""
    return Folder("files", file_format, copying.to_sparks_files, _rows_of_files)


def tables(file_format: str) -> Folder:
    """Tables of a lakehouse format, in the mode merge."""
    return Folder("tables", file_format, copying.to_sparks_table, _rows_of_table)


def _rows_of_files(_: Measuring, folder: str, file_format: str) -> int:
    return rows_below(Path(folder), file_format)


def _rows_of_table(spark: Measuring, folder: str, file_format: str) -> int:
    return spark.run(copying.rows_of_table, folder, file_format).events


class BigQuery:
    """BigQuery's double in a process's threads, which counts rows and keeps none; the sink is in the mode merge."""

    @contextmanager
    def target(self, folder: str) -> Iterator[Target]:
        """An empty BigQuery, with the table of the plain client."""
        del folder
        with BigQueryDouble.started(keep_rows=False, check=False) as double:
            endpoint = {"api_endpoint": double.endpoint}
            client = bigquery.Client("double", credentials=AnonymousCredentials(), client_options=endpoint)
            client.create_dataset(_DATASET)
            client.create_table(bigquery.Table(f"double.{_DATASET}.{TABLE}", _fields()))
            client.close()
            yield _BigQueryTarget(double)


_DATASET = "plain"


def _fields() -> list[bigquery.SchemaField]:
    return [bigquery.SchemaField(name, code) for name, code in COLUMNS.items()]


@dataclass(frozen=True, slots=True)
class _BigQueryTarget:
    double: BigQueryDouble

    @property
    def sink(self) -> Sink:
        return {
            "type": "bigquery",
            "project": "double",
            "dataset": "bench",
            "location": "EU",
            "endpoint": self.double.endpoint,
            "grpc_endpoint": self.double.grpc_endpoint,
        }

    def plainly(self, spark: Measuring, parts: Parts) -> Measure:
        table = f"projects/double/datasets/{_DATASET}/tables/{TABLE}"
        return spark.run(plain_clients.to_bigquery, parts, self.double.grpc_endpoint, table)

    def rows(self, _: Measuring) -> int:
        return self.double.counts.rows


class Spanner:
    """Another database, on the official emulator."""

    @contextmanager
    def target(self, folder: str) -> Iterator[Target]:
        """A database with the table, of an emulator of its own.

        Raises:
            EmulatorNotFoundError: there is none.
        """
        del folder
        key, *others = COLUMNS.items()
        columns = {name: _COLUMN_TYPES.get(code, code) for name, code in others}
        with (
            find_or_start() as emulator,
            database_with(emulator.host, "googlesql", TABLE, {key[0]: f"{key[1]} NOT NULL", **columns}) as database,
        ):
            yield _SpannerTarget(database)


_COLUMN_TYPES = {"STRING": "STRING(MAX)", "BYTES": "BYTES(MAX)"}


@dataclass(frozen=True, slots=True)
class _SpannerTarget:
    database: DatabaseAddress

    @property
    def sink(self) -> Sink:
        there = self.database
        return {
            "type": "spanner",
            "project": there.project,
            "instance": there.instance,
            "database": there.database,
            "emulator_host": there.emulator_host,
        }

    def plainly(self, spark: Measuring, parts: Parts) -> Measure:
        return spark.run(plain_clients.to_spanner, parts, self.database)

    def rows(self, _: Measuring) -> int:
        with connected(self.database).snapshot() as snapshot:
            ((count,),) = snapshot.execute_sql(f"SELECT COUNT(*) FROM {TABLE}")
        return int(count)
