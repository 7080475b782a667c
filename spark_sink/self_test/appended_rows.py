"""Compares the rows of BigQuery's appended tables with what was committed: each change once, by its key."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from connector.core.timestamps import MICROSECOND, format_rfc3339, unix_nanoseconds
from spark_sink.self_test.tables import WorkloadTable
from spark_sink.self_test.values import written
from spark_sink.self_test.workload import Committed
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.tables.table import CHANGELOG, METADATA

_KINDS = {"UPDATE-INSERT": "UPDATE"}

Change = tuple[int, str, tuple[object, ...]]
"""Commit timestamp in microseconds, mod type and key."""


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """Reads the appended tables of a mode.

    Attributes:
        client: runs the queries.
        project: of the dataset.
        dataset: its name.
        mode: ``append-only`` or ``changelog``.
        prefix: of the tables' names.
    """

    client: BigQueryClient
    project: str
    dataset: str
    mode: str
    prefix: str

    def differences(self, tables: Mapping[str, WorkloadTable], committed: Sequence[Committed]) -> list[str]:
        """The differences, a line each.

        Raises:
            SinkError: the tables cannot be queried.
        """
        found = []
        for table in tables.values():
            wanted = Counter(_wanted(table, committed))
            if not wanted:
                continue
            held = Counter(self._changes(table))
            found += [f"missing: {_name(table, change)}" for change in sorted(wanted - held, key=repr)]
            found += [
                f"{'repeated' if change in wanted else 'extra'}: {_name(table, change)}"
                for change in sorted(held - wanted, key=repr)
            ]
        return found

    def _changes(self, table: WorkloadTable) -> Iterator[Change]:
        name = f"{self.prefix}{table.name}{'_changelog' if self.mode == CHANGELOG else ''}"
        if self.mode == CHANGELOG:
            kind, time = "_metadata_spanner_mod_type", "_metadata_spanner_commit_timestamp"
        else:
            kind, time = f"{METADATA}.change_type", f"{METADATA}.change_sequence_number"
        keys = ", ".join(table.key)
        sql = f"SELECT {kind} AS k, {time} AS t, {keys} FROM `{self.project}.{self.dataset}.{name}`"
        for kind_of, at, *key in self.client.rows(sql, self.dataset, name):
            yield _micros(at), _KINDS.get(kind_of, kind_of), tuple(_plain(part) for part in key)


def _wanted(table: WorkloadTable, committed: Sequence[Committed]) -> Iterator[Change]:
    columns = table.columns[: table.key_length]
    for transaction in committed:
        for mod in transaction.mods:
            if mod.table == table.name:
                key = tuple(written(column, value) for column, value in zip(columns, mod.key, strict=True))
                yield transaction.timestamp // 1000, mod.mod_type, key


def _micros(at: Any) -> int:
    """Microseconds since 1970 of a timestamp, or of a change sequence number."""
    return (unix_nanoseconds(at) if isinstance(at, datetime) else int(at[:16], 16)) // MICROSECOND


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value


def _name(table: WorkloadTable, change: Change) -> str:
    at, kind, key = change
    return f"{kind} {table.name} {key!r} committed at {format_rfc3339(at * 1000)}"
