"""Damages by hand at each kind of destination: rows that are altered, lost, or there too many."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol
from uuid import uuid4

import orjson
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.spanner_v1.keyset import KeySet

from emulator import SampleDatabase
from tests.local_bigquery import LocalBigQuery, serving
from tests.spark_sink.reading.backfill.campaign.destinations import DATASET, Files, LocalTables
from tests.spark_sink.reading.backfill.campaign.tables import (
    Key,
    Rows,
    columns_of,
    committed_at,
    key_columns,
    rows_of_database,
    tables,
)
from tests.spark_sink.sinks.spanner.samples import empty

SINKS = ("files", "spanner", "delta", "iceberg", "merge-load", "append-only")
WRONG = "damaged"

Row = tuple[str, Key]


@dataclass(frozen=True, slots=True)
class Damages:
    """Rows by table and key.

    Attributes:
        altered: rows that get another name.
        lost: rows that are removed.
        extra: rows that are added.
    """

    altered: list[Row]
    lost: list[Row]
    extra: list[Row]

    @classmethod
    def drawn(cls, rows: Iterable[Row], count: int, random: Random) -> "Damages":
        """About half of the damages alter, others lose, and some add.

        Parents are not lost: changes of their children would become dead letters in another database.
        """
        chosen = random.sample(sorted(rows), count)
        lost = [row for row in chosen[count // 2 : count * 4 // 5] if row[0].startswith("Child")]
        altered = [row for row in chosen[: count * 4 // 5] if row not in lost]
        extra = [(table, (*key[:-1], 10**8 + key[-1])) for table, key in chosen[count * 4 // 5 :]]
        return cls(altered, lost, extra)


class Damaged(Protocol):
    """A destination that can be damaged."""

    def sink(self) -> dict[str, object]:
        """The section `sink` of the configuration."""

    def rows(self) -> Rows:
        """The rows that it comes to, of all tables."""

    def damage(self, damages: Damages) -> None:
        """Damages it, while no sink runs."""


@contextmanager
def damaged(sink: str, folder: Path, source: SampleDatabase) -> Iterator[Damaged]:
    """A destination that outlives the service."""
    if sink == "files":
        yield DamagedFiles(folder / "events")
    elif sink == "spanner":
        copy = SampleDatabase.create(source.host, dialect=source.dialect)
        empty(copy)
        yield DamagedDatabase(copy)
        copy.drop()
    elif sink in ("delta", "iceberg"):
        from tests.spark_sink.reading.repairs.damaged_lakes import DamagedLake

        with closing(DamagedLake(sink, folder / "lake", "NEW_ROW")) as lake:
            yield lake
    else:
        with serving(folder) as server:
            yield DamagedTables(server, sink)


class DamagedFiles(Files):
    """JSON lines: the events of a lost row are removed, and that of a row too many is added."""

    def damage(self, damages: Damages) -> None:
        altered, lost = set(damages.altered), set(damages.lost)
        extra: dict[str, list[Row]] = {}
        for row in damages.extra:
            extra.setdefault(row[0], []).append(row)
        for path in sorted(self._folder.rglob("*.jsonl")):
            lines = []
            for line in path.read_bytes().splitlines():
                event = orjson.loads(line)
                row = self._of(event)[:2]
                if row in altered:
                    event["payload"]["Name"] = WRONG
                if row not in lost:
                    lines.append(orjson.dumps(event))
                if not event["source_metadata"]["is_deleted"]:
                    lines += [orjson.dumps(_with_key(event, one)) for one in extra.pop(row[0], [])]
            path.write_bytes(b"".join(line + b"\n" for line in lines))


def _with_key(event: Mapping[str, Any], row: Row) -> dict[str, Any]:
    values = dict(zip(key_columns(row[0]), row[1], strict=True))
    return {**event, "payload": {**event["payload"], **values}, "uuid": str(uuid4())}


class DamagedDatabase:
    """Another database of the emulator."""

    def __init__(self, copy: SampleDatabase) -> None:
        self._copy = copy

    def sink(self) -> dict[str, object]:
        return {"type": "spanner", "database": self._copy.database_id, "create_tables": True}

    def rows(self) -> Rows:
        with self._copy.database.batch() as batch:  # its timestamp is after all others
            batch.insert_or_update("Parent0", columns_of("Parent0"), [(-1, "", 0)])
        rows = rows_of_database(self._copy.database, committed_at(batch))
        del rows["Parent0", (-1,)]
        return rows

    def damage(self, damages: Damages) -> None:
        with self._copy.database.batch() as batch:
            for table, key in damages.lost:
                batch.delete(table, KeySet(keys=[key]))
            for table, key in damages.altered:
                batch.update(table, (*key_columns(table), "Name"), [(*key, WRONG)])
            for table, key in damages.extra:
                batch.insert(table, columns_of(table), [(*key, WRONG, 0)])


class DamagedTables(LocalTables):
    """Tables of local-bigquery, merged or appended to."""

    def __init__(self, server: LocalBigQuery, mode: str) -> None:
        super().__init__(server)
        self.captures = "NEW_ROW"
        self._mode = mode

    def sink(self) -> dict[str, object]:
        return {**super().sink(), "mode": self._mode}

    def rows(self) -> Rows:
        if self._mode == "merge-load":
            return super().rows()
        newest: dict[Row, tuple[str, str, tuple[str, int]]] = {}
        for table in tables():
            metadata = ("datastream_metadata.change_sequence_number", "datastream_metadata.change_type")
            names = [*(f"`{name}`" for name in columns_of(table)), *metadata]
            for row in self.query(f"SELECT {', '.join(names)} FROM {self._name(table)}"):
                *values, number, kind = row.values()
                key = table, tuple(values[:-2])
                if key not in newest or newest[key][0] < number:
                    newest[key] = number, kind, (values[-2], values[-1])
        return {key: row for key, (_, kind, row) in newest.items() if kind != "DELETE"}

    def damage(self, damages: Damages) -> None:
        for table in tables():
            name = self._name(table)
            if altered := condition(table, damages.altered):
                self.query(f"UPDATE {name} SET Name = '{WRONG}' WHERE {altered}")
            if lost := condition(table, damages.lost):
                self.query(f"DELETE FROM {name} WHERE {lost}")
            for of_table, key in damages.extra:
                if of_table == table:
                    values = ", ".join(map(str, key))
                    rest = ", ".join(f"`{each}`" for each in [*columns_of(table)[-2:], "datastream_metadata"])
                    columns = ", ".join(f"`{each}`" for each in key_columns(table))
                    self.query(
                        f"INSERT INTO {name} ({columns}, {rest}) SELECT {values}, {rest} FROM {name}"
                        " WHERE datastream_metadata.change_sequence_number IS NOT NULL LIMIT 1"
                    )

    def query(self, sql: str) -> list[Any]:
        """The rows of a query, or of a statement none."""
        with closing(self._client()) as client:
            return list(client.query(sql).result())

    def _name(self, table: str) -> str:
        return f"`{self._server.project}.{DATASET}.{table}`"

    def _client(self) -> bigquery.Client:
        return bigquery.Client(
            project=self._server.project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self._server.endpoint},
        )


def condition(table: str, rows: Iterable[Row]) -> str:
    """The SQL condition that a row is one of these; empty if none is of the table."""
    keys = [" AND ".join(f"{name} = {value}" for name, value in zip(key_columns(table), key, strict=True))
            for of_table, key in rows if of_table == table]  # fmt: skip
    return " OR ".join(f"({key})" for key in keys)
