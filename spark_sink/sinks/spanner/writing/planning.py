"""Planning of a unit: its rows as mutations of the destination's tables, or why they cannot be written. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_sink.sinks.spanner.config import Applying
from spark_sink.sinks.spanner.destination_tables import DestinationTable
from spark_sink.sinks.spanner.writing.destination_names import DestinationNames
from spark_sink.sinks.spanner.writing.mutations import DELETE, UPDATE, WRITE, Levels, RowMutation, leveled
from spark_sink.sinks.spanner.writing.omissions import Omissions
from spark_sink.sinks.spanner.writing.progress import TABLE, TYPES
from spark_sink.sinks.spanner.writing.row_merger import KeyedChange, MergedRow, Value, merged
from spark_sink.sinks.spanner.writing.units import Unit

COMMIT_TIMESTAMP, SEQUENCE = "source_commit_timestamp", "source_change_sequence_number"
METADATA = (COMMIT_TIMESTAMP, SEQUENCE)
RECORD_SEQUENCE, MOD_INDEX = "source_record_sequence", "source_mod_index"
"""The parts of the sequence number, with the commit timestamp the sort keys of Datastream; written where they exist."""

_HELD = {COMMIT_TIMESTAMP: "timestamp", SEQUENCE: "text", RECORD_SEQUENCE: "text", MOD_INDEX: "integer"}
METADATA_TYPES = {dialect: {name: types[held] for name, held in _HELD.items()} for dialect, types in TYPES.items()}
"""The types of all four, by the dialect's name."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The mutations that a unit becomes.

    Attributes:
        levels: the mutations.
        rejected: rows that the destination has no table or no column for, with the reason.
        omitted: what was left out of how many changes (``MergedUnit``).
    """

    levels: Levels
    rejected: Sequence[tuple[MergedRow, str]]
    omitted: Mapping[tuple[str, str], int]


class WritePlanner:
    """Plans units.

    Args:
        applying: the options.
        tables: the destination's.
        keys: the columns of each key, of the source's tables.
        omissions: decides what of changes is left out; None: nothing.
        columns: all columns of the source's tables, as far as they are known.
    """

    def __init__(
        self,
        applying: Applying,
        tables: Mapping[str, DestinationTable],
        keys: Mapping[str, Sequence[str]],
        omissions: Omissions | None = None,
        columns: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self._applying = applying
        self._names = DestinationNames(applying, tables)
        self._keys = keys
        self._omissions = omissions
        self._columns = columns or {}
        self._sources: dict[str, list[str]] = defaultdict(list)
        for source in sorted(keys):
            self._sources[applying.table(source).lower()].append(source)

    def plan(self, unit: Unit) -> WritePlan:
        """The mutations of a unit."""
        mutations: list[tuple[int, RowMutation]] = []
        deleted_last: list[tuple[int, RowMutation]] = []
        accepted: list[MergedRow] = []
        rejected: list[tuple[MergedRow, str]] = []
        reasons: dict[tuple[str, tuple[str, ...], frozenset[str], frozenset[str]], str] = {}
        found = merged((change for change in unit.changes if is_of_user(change)), self._keys, self._omissions)
        if self._omissions is not None:
            self._names = self._omissions.names
        for row in found.rows:
            about = row.table, row.key_columns, frozenset(row.values), frozenset(row.conflicts)
            if about not in reasons:
                why = self.why_not(row.table, row.values, row.key_columns)
                reasons[about] = why or self._conflict(row.table, row.conflicts)
            if reasons[about]:
                rejected.append((row, reasons[about]))
            else:
                accepted.append(row)
        self._relax(accepted)
        for row in accepted:
            known = self._names.tables[self._names.table(row.table)]
            if not known.is_referred_to:
                mutations += [(known.depth, one) for one in self._mutations(row)]
            elif row.is_deleted:
                deleted_last += [(known.depth, one) for one in self._mutations(row)]
            else:  # what refers to a row that is written again stays
                mutations += [(known.depth, one) for one in self._mutations(row) if one.operation != DELETE]
        if self._applying.mode == "transactions":
            mutations = list(self._without_cascades(mutations, deleted_last))
        takes_others = any(self._names.tables[one.table].takes_others for _, one in deleted_last)
        return WritePlan(leveled(mutations, deleted_last, takes_others=takes_others), rejected, found.omitted)

    def why_not(
        self, table: str, columns: Sequence[str] | Mapping[str, object], key_columns: Sequence[str] = ()
    ) -> str:
        """The reason why rows with these columns cannot be written; empty if they can. No key means the newest one."""
        name = self._names.table(table)
        known = self._names.tables.get(name)
        if known is None:
            return f"the destination has no table {name}"
        others = [one for one in self._sources[name.lower()] if one.lower() != table.lower()]
        if self._omissions is not None:
            others = [one for one in others if not self._omissions.is_gone(one)]
        if others:
            return f"table {name} of the destination would have the rows of {table} and of {', '.join(others)}"
        if shared := self._of_two(table, columns):
            return f"column {shared[0]} of table {name} of the destination would have the values of {shared[1]}"
        wanted = {self._names.column(table, column) for column in columns} - (known.generated & {*known.key})
        if missing := sorted({*wanted, *(METADATA if self._applying.metadata else ())} - known.columns):
            return f"table {name} of the destination has no column {', '.join(missing)} that can be written"
        key = [self._names.column(table, column) for column in key_columns or self._keys[table]]
        if sorted(key) != sorted(known.key):
            return f"the key of table {name} of the destination is {', '.join(known.key)}, not {', '.join(key)}"
        return ""

    def _of_two(self, table: str, columns: Collection[str]) -> tuple[str, str] | None:
        """The first column of the destination that would be two of a table, with their names; else None.

        One that only its capitals distinguish from another one was dropped before that was added.
        """
        if not any(name.rpartition(".")[0] == table for name in self._applying.columns):
            return None
        there: dict[str, dict[str, str]] = defaultdict(dict)
        for column in (*self._columns.get(table, ()), *columns):
            there[self._applying.column(table, column).lower()][column.lower()] = column
        for column in columns:
            target = self._applying.column(table, column)
            others = there[target.lower()].values()
            if len(others) > 1:
                names = sorted(one for one in others if one in columns or not self._is_gone(table, one))
                if len(names) > 1:
                    return target, " and of ".join(names)
        return None

    def _is_gone(self, table: str, column: str) -> bool:
        return self._omissions is not None and self._omissions.is_gone(table, column)

    def _conflict(self, table: str, columns: Collection[str]) -> str:
        if not columns:
            return ""
        name = self._names.table(table)
        of_key = self._names.tables[name].key
        former = {self._names.column(table, column) for column in columns}
        names = ", ".join(sorted(former))
        if not former.isdisjoint(of_key):
            return (
                f"the key of table {name} of the destination is {', '.join(of_key)} with a former type of {names}: the"
                " source has dropped that table and created it again. Drop it there, too, and replay"
            )
        return (
            f"table {name} of the destination has column {names} with a former type: the source"
            " has dropped it and added it again. Drop it there, too, add it with the new type, and replay"
        )

    def _relax(self, rows: Sequence[MergedRow]) -> None:
        """Has columns made nullable that the destination requires and rows have no value for."""
        if self._omissions is None or not self._omissions.may_relax:
            return
        needs: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            known = self._names.tables[self._names.table(row.table)]
            not_null = known.not_null.difference(known.key)
            if not_null and not row.is_deleted:
                written = self._written(row, known)
                absent = known.required if row.is_whole else frozenset[str]()
                needs[row.table] |= {
                    name for name in not_null if (written[name] is None if name in written else name in absent)
                }
        if needs := {table: names for table, names in needs.items() if names}:
            self._omissions.relax(needs)
            self._names = self._omissions.names

    def another_type(self, row: MergedRow) -> str:
        """The reason why Spanner rejects a row if a column's type explains it; empty if no column has another type."""
        if row.is_deleted or not row.differing:
            return ""
        names = ", ".join(sorted(self._names.column(row.table, column) for column in row.differing))
        return (
            f"table {self._names.table(row.table)} of the destination has column {names} with another type than the"
            " source: drop it there, add it with the source's type, and replay"
        )

    def _mutations(self, row: MergedRow) -> list[RowMutation]:
        table = self._names.table(row.table)
        known = self._names.tables[table]
        found = []
        if row.is_deleted or row.is_replaced:
            key = dict(zip(row.key_columns, row.key, strict=True))
            named = {self._names.column(row.table, name): value for name, value in key.items()}
            found.append(RowMutation(DELETE, table, known.key, [named[name] for name in known.key], row))
        if not row.is_deleted:
            written = self._written(row, known)
            lacking = tuple(sorted(known.required - written.keys())) if row.is_whole else ()
            operation = WRITE if row.is_whole and (row.is_inserted or not lacking) else UPDATE
            found.append(RowMutation(operation, table, tuple(written), list(written.values()), row, lacking))
        return found

    def _written(self, row: MergedRow, known: DestinationTable) -> dict[str, Value]:
        """The values that are written of a row, by the names of the destination's columns."""
        written = {self._names.column(row.table, name): value for name, value in row.values.items()}
        if self._applying.metadata:
            last = row.changes[-1]
            written |= {COMMIT_TIMESTAMP: last.commit_timestamp, SEQUENCE: last.sequence}
            parts = _parts(last.sequence)
            written |= {name: value for name, value in parts.items() if name in known.columns}
        return {name: value for name, value in written.items() if name not in known.generated}

    def _without_cascades(
        self, mutations: list[tuple[int, RowMutation]], deleted_last: list[tuple[int, RowMutation]]
    ) -> Iterator[tuple[int, RowMutation]]:
        """Without the deletes of rows that the destination deletes with their parents: Spanner counts these as one."""
        deleted = {
            (one.table, tuple(one.values))
            for _, one in (*mutations, *deleted_last)
            if one.operation == DELETE and one.row.is_deleted
        }
        for depth, one in mutations:
            parent = self._names.tables[one.table].cascades_from
            key = tuple(one.values[: len(self._names.tables[parent].key)]) if parent else ()
            if not (one.operation == DELETE and one.row.is_deleted and (parent, key) in deleted):
                yield depth, one


def _parts(sequence: str) -> dict[str, Value]:
    """The columns for the parts of a change sequence number; NULL where a dead letter has none."""
    try:
        _, record, index = (int(part, 16) for part in sequence.split("/"))
    except (AttributeError, ValueError):
        return {RECORD_SEQUENCE: None, MOD_INDEX: None}
    return {RECORD_SEQUENCE: f"{record:08}", MOD_INDEX: str(index)}


def is_of_user(change: KeyedChange) -> bool:
    """True if a change is of the user's tables: a stream back reports those of the bookkeeping row, too."""
    return change.table != TABLE
