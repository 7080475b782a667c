"""The result of a comparison of a destination with Spanner."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from connector.core.timestamps import format_rfc3339
from connector.proof.verify.rows import RowDifference, RowKind

MOST_SHOWN = 1000
"""Rows that differ whose keys are kept; those beyond are counted."""

MOST_COUNTS = 10_000
"""Combinations of columns that are counted apart; those beyond are counted by table."""

REPAIRABLE = (RowKind.MISSING, RowKind.DIFFERENT, RowKind.EXTRA)
"""The kinds of differences that writing or deleting a row mends."""

OTHER_COLUMNS = ("other combinations of columns",)


@dataclass(slots=True)
class RepairReport:
    """The rows that a repair delivers.

    Attributes:
        counts: how many rows, by table and kind.
        timestamp: of the rows that it delivers, nanoseconds since 1970; 0 if it is not recorded.
        is_delivered: whether all are at the destination, or among its dead letters.
        dead_letters: how many of them the destination has rejected.
        refused: why they cannot be delivered, where they are only counted; empty if they can.
    """

    counts: Mapping[tuple[str, RowKind], int]
    timestamp: int = 0
    is_delivered: bool = False
    dead_letters: int = 0
    refused: str = ""

    @property
    def total(self) -> int:
        """The number of rows."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "at": format_rfc3339(self.timestamp) if self.timestamp else None,
            "delivered": self.is_delivered,
            "dead_letters": self.dead_letters,
            "rows": self.total,
            "tables": [
                {"table": table, **{kind.value: self.counts.get((table, kind), 0) for kind in REPAIRABLE}}
                for table in self._tables
            ],
        }

    def lines(self) -> list[str]:
        """A line for each table."""
        delivered = "delivered" if self.dead_letters else "repaired"
        what = delivered if self.is_delivered else "to repair"
        lines = []
        for table in self._tables:
            counts = (f"{self.counts.get((table, kind), 0)} {kind.value}" for kind in REPAIRABLE)
            lines.append(f"{what}: {table}: {', '.join(counts)}")
        return lines

    @property
    def _tables(self) -> list[str]:
        return sorted({table for table, _ in self.counts})


@dataclass(slots=True)
class VerifyReport:
    """The result.

    Attributes:
        destination: for people.
        timestamp: of the rows, nanoseconds since 1970.
        source_rows: rows in Spanner, by table.
        replica_rows: rows in the destination, by table.
        counts: rows that differ, by table, kind and columns.
        first: the first of them, with their keys.
        omitted: rows that backfills have not delivered and the destination does not have, by table; they do not differ.
        later: rows that have changed since the timestamp, by table; they are not compared.
        unsure: rows that differ, and were not looked up again.
        unsure_values: values that are NULL in Spanner, and in the destination NULL or not captured.
        unsure_tables: tables with rows that may differ although nothing shows it.
        keyless: tables without a key, which are not compared.
        created_since: tables that the database did not have at the timestamp, which are not compared.
        note: what may explain differences.
        missing_note: what may explain rows that are missing.
        repair: the rows that a repair delivers; None if none was asked for.
    """

    destination: str
    timestamp: int
    tables: tuple[str, ...]
    source_rows: Counter[str] = field(default_factory=Counter)
    replica_rows: Counter[str] = field(default_factory=Counter)
    counts: Counter[tuple[str, RowKind, tuple[str, ...]]] = field(default_factory=Counter)
    first: list[RowDifference] = field(default_factory=list)
    omitted: Counter[str] = field(default_factory=Counter)
    later: Counter[str] = field(default_factory=Counter)
    unsure: int = 0
    unsure_values: int = 0
    unsure_tables: set[str] = field(default_factory=set)
    keyless: tuple[str, ...] = ()
    created_since: tuple[str, ...] = ()
    note: str = ""
    missing_note: str = ""
    repair: RepairReport | None = None

    @property
    def total(self) -> int:
        """The number of rows that differ."""
        return self.counts.total()

    @property
    def left(self) -> int:
        """The number of rows that differ and are not repaired."""
        if self.repair is None or not self.repair.is_delivered:
            return self.total
        return self.total - self.repair.total + self.repair.dead_letters

    @property
    def equal_tables(self) -> list[str]:
        """The tables of which all rows were compared, and no row is left that differs, or that may."""
        left = Counter[str]()
        for (table, _, _), count in self.counts.items():
            left[table] += count
        if self.repair is not None and self.repair.is_delivered and not self.repair.dead_letters:
            for (table, _), count in self.repair.counts.items():
                left[table] -= count
        unsure = self.unsure_tables.union(table for table, count in self.omitted.items() if count)
        return [table for table in self.tables if not left[table] and table not in unsure]

    def add(self, one: RowDifference) -> None:
        """Counts a row that differs."""
        known = len(self.counts) < MOST_COUNTS or (one.table, one.kind, one.columns) in self.counts
        self.counts[one.table, one.kind, one.columns if known or not one.columns else OTHER_COLUMNS] += 1
        if len(self.first) < MOST_SHOWN:
            self.first.append(one)

    def to_json(self, *, show_keys: bool) -> dict[str, object]:
        """For ``--json``; keys are values of rows."""
        node: dict[str, object] = {
            "destination": self.destination,
            "at": format_rfc3339(self.timestamp),
            "tables": [
                {
                    "table": table,
                    "rows": self.source_rows[table],
                    "destination_rows": self.replica_rows[table],
                    "changed_since": self.later[table],
                    "omitted_by_backfill": self.omitted[table],
                }
                for table in self.tables
            ],
            "differing_rows": self.total,
            "differences": [
                {"table": table, "kind": kind.value, "columns": list(columns), "rows": count}
                for (table, kind, columns), count in sorted(self.counts.items())
            ],
            "created_since": list(self.created_since),
            "notes": self.notes(),
        }
        if self.repair is not None:
            node["repair"] = self.repair.to_json()
        if show_keys:
            node["first_rows"] = [
                {"table": one.table, "kind": one.kind.value, "columns": list(one.columns), "key": one.key}
                for one in self.first
            ]
        return node

    def notes(self) -> list[str]:
        """Notes that explain the result, in sentences."""
        notes = []
        if self.missing_note and any(kind is RowKind.MISSING for _, kind, _ in self.counts):
            notes.append(self.missing_note)
        if self.later.total():
            at = format_rfc3339(self.timestamp)
            notes.append(f"{self.later.total()} rows have changed since {at}: they were not compared")
        if self.omitted.total():
            notes.append(
                f"{self.omitted.total()} rows of {', '.join(sorted(self.omitted))} do not count as missing:"
                " source.backfill omits them, unless they have changed since the stream's start"
            )
        if self.unsure:
            notes.append(
                f"{self.unsure} of the rows that differ may have changed since: they were not looked up again, because"
                " there are too many, or because their key is hashed"
            )
        if self.unsure_values:
            notes.append(
                f"{self.unsure_values} values are NULL in Spanner, and null in the files, where a change may have set"
                " or omitted them: they count as equal. JSON lines and source.complete_rows distinguish both"
            )
        if self.keyless:
            notes.append(f"not compared, because they have no key: {', '.join(self.keyless)}")
        if self.created_since:
            at = format_rfc3339(self.timestamp)
            notes.append(f"not compared, because they were created after {at}: {', '.join(self.created_since)}")
        if self.total and self.note:
            notes.append(self.note)
        if self.repair is not None and self.repair.refused:
            notes.append(self.repair.refused)
        if self.repair is not None and self.repair.dead_letters:
            notes.append(
                f"{self.repair.dead_letters} of the rows became dead letters: `spanner-cdc dead-letters list` has the"
                " reasons. Stop the sink, and run `spanner-cdc dead-letters replay`, or repair again"
            )
        if self.repair is not None and (repeated := self.total - self.repair.total):
            notes.append(
                f"{repeated} keys have several rows, which a repair cannot tell apart: delete all rows of such a key at"
                " the destination, and repair again"
            )
        return notes

    def to_text(self, *, show_keys: bool) -> str:
        """The differences as text, with a summary as the last line."""
        lines = [
            f"{kind.value}: {table}: {count} rows{' in ' + ', '.join(columns) if columns else ''}"
            for (table, kind, columns), count in sorted(self.counts.items())
        ]
        if show_keys:
            lines += [
                f"  {one.table} {one.key}: {one.kind.value} {', '.join(one.columns)}".rstrip() for one in self.first
            ]
        lines += self.repair.lines() if self.repair is not None else []
        lines += [f"note: {note}" for note in self.notes()]
        rows = f"{self.source_rows.total()} rows in Spanner, {self.replica_rows.total()} in the destination"
        lines.append(
            f"verified {self.destination} as of {format_rfc3339(self.timestamp)}: {len(self.tables)} tables, {rows};"
            f" {f'{self.total} rows differ' if self.total else 'no differences'}{self._repaired()}"
        )
        return "\n".join(lines)

    def _repaired(self) -> str:
        """The end of the summary: when the differing rows were repaired."""
        if self.repair is None or not self.repair.total:
            return ""
        if not self.repair.is_delivered:
            return f", {self.repair.total} of them to repair"
        repaired, rejected = self.repair.total - self.repair.dead_letters, self.repair.dead_letters
        left = f", {rejected} among the dead letters" if rejected else ""
        return f", {repaired} of them repaired as of {format_rfc3339(self.repair.timestamp)}{left}"
