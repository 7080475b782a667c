"""The destinations of the campaign: how a sink is configured for each, and which rows it comes to."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from google.api_core.exceptions import NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from emulator.bigquery.double import BigQueryDouble
from tests.local_bigquery import LocalBigQuery, serving
from tests.spark_sink.reading.backfill.campaign.tables import Key, Rows, columns_of, key_columns, tables
from tests.spark_sink.reading.backfill.state import events, position_of

SINKS = ("files", "append-only", "merge", "merge-load", "delta", "iceberg")
DATASET = "campaign"


class Destination(Protocol):
    """The destination of a sink.

    Attributes:
        captures: the value capture type of the change stream.
        is_merged: whether a table has one row for each key while it is written.
    """

    captures: str
    is_merged: bool

    def sink(self) -> dict[str, object]:
        """The section `sink` of the configuration."""

    def rows(self) -> Rows:
        """The rows that it comes to, of all tables."""

    def counts(self, table: str) -> dict[Key, int]:
        """The column `Count` of the rows that a query would see now."""

    def faults(self) -> str:
        """A fault that does not depend on the rows; empty if there is none."""


@contextmanager
def destination(sink: str, folder: Path, captures: str = "NEW_ROW") -> Iterator[Destination]:
    """A destination that outlives the service; ``captures`` is for those that take either kind of rows."""
    if sink == "files":
        yield Files(folder / "events")
    elif sink in ("delta", "iceberg"):
        from tests.spark_sink.reading.backfill.campaign.lakes import LakeTables

        with closing(LakeTables(sink, folder / "lake", captures)) as lake:
            yield lake
    elif sink == "merge-load":
        with serving(folder) as local:
            yield LocalTables(local)
    else:
        with BigQueryDouble.started() as double:
            yield MergedTables(double) if sink == "merge" else AppendedTables(double)


def _is_twice(uuids: Iterable[str]) -> str:
    found = Counter(uuids)
    twice = [uuid for uuid, times in found.items() if times > 1]
    return f"{len(twice)} of {len(found)} events came more than once: {twice[:3]}" if twice else ""


def _newest(rows: Iterable[tuple[str, Key, object, tuple[str, int] | None]]) -> Rows:
    """The rows that remain of a history of tables, keys, positions and rows (None: deleted), in any order."""
    newest: dict[tuple[str, Key], tuple[Any, tuple[str, int] | None]] = {}
    for table, key, at, row in rows:
        if (table, key) not in newest or at > newest[table, key][0]:
            newest[table, key] = (at, row)
    return {key: row for key, (_, row) in newest.items() if row is not None}


class Files:
    """JSON lines in a folder."""

    captures = "NEW_ROW"
    is_merged = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sink(self) -> dict[str, object]:
        return {"path": str(self._folder), "rotate_interval": "0s"}

    def rows(self) -> Rows:
        return _newest(map(self._of, events(self._folder)))

    def counts(self, table: str) -> dict[Key, int]:
        raise NotImplementedError

    def faults(self) -> str:
        return _is_twice(event["uuid"] for event in events(self._folder))

    @staticmethod
    def _of(event: Mapping[str, Any]) -> tuple[str, Key, object, tuple[str, int] | None]:
        payload, table = event["payload"], event["object"]
        key = tuple(int(payload[name]) for name in key_columns(table))
        is_deleted = event["source_metadata"]["is_deleted"]
        return table, key, position_of(dict(event)), None if is_deleted else (payload["Name"], int(payload["Count"]))


def _bigquery_sink(server: BigQueryDouble | LocalBigQuery, mode: str) -> dict[str, object]:
    return {
        "type": "bigquery",
        "mode": mode,
        "project": server.project,
        "dataset": DATASET,
        "location": "US",
        "max_staleness": "10s",  # rows that are loaded and merged would gather for an hour
        "endpoint": server.endpoint,
        "grpc_endpoint": server.grpc_endpoint,
    }


class AppendedTables:
    """Tables that are appended to, of the project's double of BigQuery."""

    captures = "NEW_ROW"
    is_merged = False
    mode = "append-only"

    def __init__(self, double: BigQueryDouble) -> None:
        self._double = double

    def sink(self) -> dict[str, object]:
        return _bigquery_sink(self._double, self.mode)

    def rows(self) -> Rows:
        return _newest(
            (table, key, row["datastream_metadata"]["change_sequence_number"], self._values(row))
            for table in tables()
            for key, row in self._of(table)
        )

    def counts(self, table: str) -> dict[Key, int]:
        return {key: row["Count"] for key, row in self._of(table)}

    def faults(self) -> str:
        return _is_twice(row["datastream_metadata"]["uuid"] for table in tables() for _, row in self._of(table))

    def _of(self, table: str) -> Iterator[tuple[Key, dict[str, Any]]]:
        if DATASET not in self._double.datasets() or table not in self._double.tables(DATASET):
            return
        for row in self._double.rows(DATASET, table):
            yield tuple(row[name] for name in key_columns(table)), row

    @staticmethod
    def _values(row: Mapping[str, Any]) -> tuple[str, int] | None:
        is_deleted = row["datastream_metadata"].get("change_type") == "DELETE"
        return None if is_deleted else (row["Name"], row["Count"])


class MergedTables(AppendedTables):
    """Tables into which the double merges changes by their sequence numbers."""

    is_merged = True
    mode = "merge"

    def rows(self) -> Rows:
        return {(table, key): (row["Name"], row["Count"]) for table in tables() for key, row in self._of(table)}

    def faults(self) -> str:
        conflicts = {table: self._double.conflicts(DATASET, table) for table in self._double.tables(DATASET)}
        return f"different changes have the same number: {conflicts}" if any(conflicts.values()) else ""


class LocalTables:
    """Tables into which loaded rows are merged, of local-bigquery."""

    captures = "OLD_AND_NEW_VALUES"
    is_merged = True

    def __init__(self, server: LocalBigQuery) -> None:
        self._server = server

    def sink(self) -> dict[str, object]:
        return _bigquery_sink(self._server, "merge-load")

    def rows(self) -> Rows:
        return {
            (table, tuple(row[:-2])): (row[-2], row[-1])
            for table in tables()
            for row in self._selected(table, columns_of(table))
        }

    def counts(self, table: str) -> dict[Key, int]:
        try:
            return {tuple(row[:-1]): row[-1] for row in self._selected(table, (*key_columns(table), "Count"))}
        except NotFound:
            return {}

    def faults(self) -> str:
        found = Counter((table, row) for table in tables() for row in self._selected(table, key_columns(table)))
        twice = [key for key, times in found.items() if times > 1]
        return f"{len(twice)} keys are there more than once: {twice[:3]}" if twice else ""

    def _selected(self, table: str, columns: Iterable[str]) -> list[tuple[Any, ...]]:
        names = ", ".join(f"`{name}`" for name in columns)
        with closing(self._client()) as client:
            found = client.query(f"SELECT {names} FROM `{self._server.project}.{DATASET}.{table}`").result()
            return [tuple(row.values()) for row in found]

    def _client(self) -> bigquery.Client:
        return bigquery.Client(
            project=self._server.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self._server.endpoint},
        )
