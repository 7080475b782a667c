"""Compares events with what was committed, row by row. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from connector.core.timestamps import format_rfc3339, parse
from spark_sink.self_test.tables import WorkloadColumn, WorkloadTable
from spark_sink.self_test.values import received, written
from spark_sink.self_test.workload import DELETE, UPDATE, Committed, WorkloadMod

Identity = tuple[int, str, tuple[object, ...]]
"""Commit timestamp, table and key of a mod; the workload changes no row twice in a transaction."""


class HistoryComparison:
    """Compares the events of one change stream.

    Args:
        tables: by name.
        committed: in the order of the commits.
        whole_rows: whether an update holds all columns, or at least those that changed.
        ordered: whether events are in the order of the commits.
        tags: whether transaction tags are compared; the official emulator keeps none.
    """

    def __init__(
        self,
        tables: Mapping[str, WorkloadTable],
        committed: Sequence[Committed],
        *,
        whole_rows: bool = True,
        ordered: bool = False,
        tags: bool = True,
    ) -> None:
        self._tables = tables
        self._columns = {name: {column.name: column for column in table.columns} for name, table in tables.items()}
        self._committed = committed
        self._whole_rows = whole_rows
        self._ordered = ordered
        self._tags = tags

    def differences(self, events: Iterable[Mapping[str, Any]]) -> list[str]:
        """The differences, a line each: none if every mod is there once, as it was committed, and nothing else is."""
        found: list[str] = []
        held: defaultdict[Identity, list[Mapping[str, Any]]] = defaultdict(list)
        last = 0
        for number, event in enumerate(events):
            try:
                identity = self._identity(event)
            except (KeyError, TypeError, ValueError, ArithmeticError) as error:
                found.append(f"event {number} cannot be read ({type(error).__name__})")
                continue
            if self._ordered and identity[0] < last:
                found.append(f"order: {_name(*identity)} comes after a later commit")
            last = max(last, identity[0])
            held[identity].append(event)
        for transaction in self._committed:
            for mod in transaction.mods:
                found += self._of_mod(transaction, mod, held.pop(self._identity_of(transaction, mod), []))
        found += [
            f"extra: {_name(*identity)}: {len(events)} events of what was never committed"
            for identity, events in held.items()
        ]
        return found

    def _identity(self, event: Mapping[str, Any]) -> Identity:
        table = self._tables[event["object"]]
        columns = self._columns[table.name]
        payload = event["payload"]
        key = tuple(received(columns[name], payload[name]) for name in table.key)
        return parse(event["source_timestamp"]), table.name, key

    def _identity_of(self, transaction: Committed, mod: WorkloadMod) -> Identity:
        table = self._tables[mod.table]
        columns = self._columns[mod.table]
        key = tuple(written(columns[name], value) for name, value in zip(table.key, mod.key, strict=True))
        return transaction.timestamp, mod.table, key

    def _of_mod(self, transaction: Committed, mod: WorkloadMod, events: Sequence[Mapping[str, Any]]) -> list[str]:
        name = f"{mod.mod_type} {_name(*self._identity_of(transaction, mod))}"
        if not events:
            return [f"missing: {name}"]
        if len(events) > 1:
            return [f"repeated: {name}: {len(events)} times"]
        event = events[0]
        metadata = event["source_metadata"]
        if metadata["mod_type"] != mod.mod_type:
            return [f"different: {name}: its mod type is {metadata['mod_type']}"]
        if self._tags and metadata["transaction_tag"] != transaction.tag:
            return [
                f"different: {name}: its transaction tag is {metadata['transaction_tag']!r}, not {transaction.tag!r}"
            ]
        wrong = self._wrong_columns(mod, event["payload"])
        return [f"different: {name}: {', '.join(wrong)}"] if wrong else []

    def _wrong_columns(self, mod: WorkloadMod, payload: Mapping[str, object]) -> list[str]:
        columns = self._columns[mod.table]
        needed: Iterable[str] = columns
        if mod.mod_type == DELETE:
            needed = ()
        elif mod.mod_type == UPDATE and not self._whole_rows:
            needed = mod.changed
        wrong = [f"{name} is missing" for name in needed if name not in payload]
        for name, value in payload.items():
            column = columns.get(name)
            if column is None:
                wrong.append(f"{name} is not a column")
            elif not _equal(column, mod.row[name], value):
                wrong.append(f"{name} has another value")
        return wrong


def _equal(column: WorkloadColumn, wanted: Any, value: object) -> bool:
    try:
        return written(column, wanted) == received(column, value)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return False


def _name(timestamp: int, table: str, key: tuple[object, ...]) -> str:
    return f"{table} {key!r} committed at {format_rfc3339(timestamp)}"
