"""A new sink from the kept spool alone equals the old one, and one since a timestamp has all that came after it."""

from contextlib import closing

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.spanner_v1.keyset import KeySet
from pyspark.sql import SparkSession

from emulator import SampleDatabase
from tests.integration.servers import MakeDatabase, database, emulator
from tests.local_bigquery import LocalBigQuery
from tests.spark_sink.sinks.named.kept_copies import TABLES, Rows, check_copies
from tests.spark_sink.spools import SpoolMaker

__all__ = ["database", "emulator"]

pytestmark = pytest.mark.spark


class Databases:
    """Spanner databases of an emulator; the source is none of it."""

    def __init__(self, database: MakeDatabase, mode: str) -> None:
        self._make = database
        self._mode = mode
        self._made: dict[str, SampleDatabase] = {}

    def sink(self, name: str) -> dict[str, object]:
        sample = self._of(name)
        address = {"project": sample.project, "instance": sample.instance, "database": sample.database_id}
        return {"type": "spanner", "mode": self._mode, "emulator_host": sample.host, "tables": _NAMES, **address}

    def rows(self, name: str) -> Rows:
        with self._of(name).database.snapshot(multi_use=True) as snapshot:
            return {
                (table, key): value
                for table in TABLES
                for key, value in snapshot.read(_NAMES[table], ("Id", "Name"), KeySet(all_=True))
            }

    def remove(self, name: str) -> None:
        """All rows, and the sink's row, without which it continues where it was."""
        with self._of(name).database.batch() as batch:
            for table in (*_NAMES.values(), "spanner_cdc_progress"):
                batch.delete(table, KeySet(all_=True))

    def _of(self, name: str) -> SampleDatabase:
        if name not in self._made:
            self._made[name] = self._make()
            columns = "(Id INT64 NOT NULL, Name STRING(MAX)) PRIMARY KEY (Id)"
            self._made[name].run_ddl(*(f"CREATE TABLE {table} {columns}" for table in _NAMES.values()))
        return self._made[name]


_NAMES = {table: f"{table}Copy" for table in TABLES}
"""The sample database has tables of these names."""


class Datasets:
    """Datasets of local-bigquery."""

    def __init__(self, server: LocalBigQuery) -> None:
        self._server = server

    def sink(self, name: str) -> dict[str, object]:
        return {
            "type": "bigquery",
            "mode": "merge-load",
            "project": self._server.project,
            "dataset": f"kept_{name}",
            "location": "US",
            "endpoint": self._server.endpoint,
            "grpc_endpoint": self._server.grpc_endpoint,
        }

    def rows(self, name: str) -> Rows:
        with closing(self._client()) as client:
            path = f"{self._server.project}.kept_{name}"
            return {
                (table, row["Id"]): row["Name"]
                for table in TABLES
                for row in client.query(f"SELECT Id, Name FROM `{path}.{table}`").result()
            }

    def remove(self, name: str) -> None:
        with closing(self._client()) as client:
            client.delete_dataset(f"{self._server.project}.kept_{name}", delete_contents=True)

    def _client(self) -> bigquery.Client:
        return bigquery.Client(
            project=self._server.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self._server.endpoint},
        )


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("mode", ["rows", "transactions"])
def test_databases(spark: SparkSession, spool: SpoolMaker, database: MakeDatabase, mode: str) -> None:
    check_copies(spark, spool, Databases(database, mode))


@pytest.mark.slow
def test_merged_tables_of_bigquery(spark: SparkSession, spool: SpoolMaker, local_bigquery: LocalBigQuery) -> None:
    check_copies(spark, spool, Datasets(local_bigquery))
