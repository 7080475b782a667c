"""Compares a destination with Spanner's rows: counts and checksums by bucket first, then the rows that may differ."""

import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from connector.config import SourceConfig
from connector.config.replicas import Digest, Replica, Selection
from connector.core.changes import integers, sequence_numbers
from connector.core.dialects import Dialect
from connector.core.schemas import TableSchema
from connector.errors import NoSuchTableError, SpannerCdcError
from connector.log import Log, terminal
from connector.progress import Progress
from connector.proof.verify.buckets import Buckets, buckets_for, parts_of
from connector.proof.verify.differing_keys import DifferingKeys
from connector.proof.verify.digests import RowDigester, is_digested
from connector.proof.verify.report import VerifyReport
from connector.proof.verify.rows import (
    INSERT,
    LATER,
    OMITTED,
    Columns,
    Key,
    MergedRows,
    RowChange,
    RowDifference,
    RowKind,
    Unsure,
    differences,
    parsed,
)
from connector.proof.verify.source_rows import SourceRows, rows_by_key
from connector.proof.verify.values import TableValues
from connector.spanner.snapshot.queries import all_of, any_of, none_of

_SHOWN_ROWS = 1000
"""Rows after which progress may be shown."""

MOST_LOOKED_UP = 200_000
"""Rows that are looked up in Spanner again, because they may have changed meanwhile."""

_log = Log(__name__)


class Comparison:
    """One comparison; its methods are called in their order. It has files on disk until it is left.

    Args:
        replica: the destination.
        tables: the tables to compare, each with a key.
        timestamp: of Spanner's rows, nanoseconds since 1970.
        keys: gets the keys of rows that differ; None if they are only counted.
        filled: the timestamps of backfills and repairs. A row that one has delivered as of a later timestamp has
            changed since, whether or not the destination keeps its history.
        filters: the conditions in SQL of the rows that backfills have delivered, for tables of which they have not
            delivered all; none if they have delivered no row. Other rows may be missing.
        bounds: in SQL, by the names of tables, the conditions of the rows that may be read; all, of other tables.
        captures_whole_rows: whether a change has all columns, so that a row which has changed since the timestamp is
            right whatever it was before.
    """

    def __init__(
        self,
        replica: Replica,
        tables: Sequence[TableSchema],
        timestamp: int,
        *,
        keys: DifferingKeys | None = None,
        filled: Collection[int] = (),
        filters: Mapping[str, Sequence[str]] = MappingProxyType({}),
        bounds: Mapping[str, str] = MappingProxyType({}),
        captures_whole_rows: bool = True,
    ) -> None:
        self._replica = replica
        self._tables = {table.table: table for table in sorted(tables, key=attrgetter("table"))}
        self._timestamp = timestamp
        self._values = {table.table: TableValues(table, replica.precision) for table in tables}
        self._count = buckets_for(replica.size(self._tables))
        self._folder = tempfile.TemporaryDirectory(prefix="spanner-cdc-verify-")
        self._held = Buckets(Path(self._folder.name, "destination"), self._count)
        self._wanted = Buckets(Path(self._folder.name, "spanner"), self._count)
        self._digesters: dict[str, RowDigester] = {}
        self._differing: dict[str, frozenset[int]] = {}
        self._looked_up = 0
        self._keys = keys
        self._filled = filled
        self._filters = filters
        self._bounds = bounds
        self._is_sure_of_later = captures_whole_rows or replica.keeps_history
        self.report = VerifyReport(replica.name, timestamp, tuple(self._tables), missing_note=replica.missing_note)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def read_source(self, source: SourceConfig, dialect: Dialect) -> None:
        """Reads Spanner's rows, and compares counts and checksums with those of the destination.

        Raises:
            SpannerCdcError: one side cannot be read.
        """
        with closing(SourceRows(source, dialect, self._timestamp)) as rows:
            for table in [*self._tables.values()]:
                try:
                    rows.columns(table)
                except NoSuchTableError:
                    self._leave_out(table.table)
                    continue
                digests = self._digests_of(table)
                self._read_table(rows, table)
                if digests is not None:
                    self._compare_digests(table.table, digests)
        self._wanted.flush()

    def read_destination(self) -> None:
        """Reads the destination's rows that may differ.

        Raises:
            SpannerCdcError: it cannot be read, or holds what is not valid.
        """
        tables = {name: table for name, table in self._tables.items() if self._differing.get(name) != frozenset()}
        wanted = Selection(self._count, self._differing)
        with Progress(_log, "reading the destination", terminal()) as progress:
            for number, (change, bucket) in enumerate(self._changes(tables, wanted), 1):
                if self._is_wanted(change.table, bucket):
                    self._held.add(change, bucket)
                if number % _SHOWN_ROWS == 0:
                    progress.show(number, changes=number)
        self._held.flush()

    def compare(self, source: SourceConfig, now: int) -> VerifyReport:
        """Compares row by row.

        Args:
            source: the database, to look up rows that may have changed meanwhile.
            now: a timestamp after the destination was read, nanoseconds since 1970.

        Raises:
            SpannerCdcError: Spanner cannot be read.
        """
        for number in range(self._count):
            for held, wanted in parts_of(self._held, self._wanted, number, Path(self._folder.name)):
                rows, omitted = MergedRows(), set[Key]()
                for row in wanted():
                    if self._is_wanted(row.table, number):
                        rows.add(row)
                        if row.change == OMITTED:
                            omitted.add((row.table, row.key))
                self._compare_part(held(), rows.rows(), omitted, source, now)
        if not self._is_sure_of_later:  # a change that has some columns leaves the others as they were
            self.report.unsure_tables.update(table for table, count in self.report.later.items() if count)
        self.report.note = self._replica.note()
        return self.report

    def _compare_part(
        self,
        changes: Iterator[RowChange],
        wanted: Mapping[Key, Columns],
        omitted: Collection[Key],
        source: SourceConfig,
        now: int,
    ) -> None:
        merged, later, counts = MergedRows(), set[Key](), Counter[Key]()
        for change in changes:
            row = change.table, change.key
            merged.add(change)
            if change.change == LATER:
                later.add(row)
            if not self._replica.keeps_history:
                counts[row] += 1
        for (table, key), count in counts.items():
            if count > 1:
                self.report.add(RowDifference(RowKind.REPEATED, table, (), key))
        held = merged.rows()
        self.report.later.update(table for table, _ in later)
        self.report.replica_rows.update(table for table, _ in held)
        for row in omitted:
            if row not in held and row not in later:
                self.report.omitted[row[0]] += 1
        found = [
            one
            for one in differences(wanted, held, self._equal)
            if (row := (one.table, one.key)) not in later and not (one.kind is RowKind.MISSING and row in omitted)
        ]
        changed = self._changed_since(source, found, wanted, held, now)
        self.report.later.update(table for table, _ in changed)
        for one in found:
            row = one.table, one.key
            if row not in changed:
                self.report.add(one)
                if self._keys is not None:
                    self._keys.add(one.kind, self._tables[one.table], wanted.get(row) or held[row])

    def _leave_out(self, table: str) -> None:
        """Leaves out a table that was created after the timestamp."""
        del self._tables[table]
        self.report.tables = tuple(self._tables)
        self.report.created_since = (*self.report.created_since, table)
        _log.warning("a table that was created after the timestamp is not compared", table=table)

    def _digests_of(self, table: TableSchema) -> Mapping[int, Digest] | None:
        if not is_digested(table):
            return None
        digests = self._replica.digests(table, self._timestamp, self._count)
        if digests is not None:
            self._digesters[table.table] = RowDigester(table, self._count)
        return digests

    def _read_table(self, rows: SourceRows, table: TableSchema) -> None:
        order, name = (self._timestamp, 0, 0), table.table
        digester, values = self._digesters.get(name), self._values[name]
        with Progress(_log, "reading Spanner", terminal()) as progress:
            for change, payload, columns in self._source_rows(rows, table):
                number = None if digester is None else digester.add(columns)
                self._wanted.add(RowChange(name, values.key(columns), order, change, payload), number)
                self.report.source_rows[name] += 1
                if self.report.source_rows[name] % _SHOWN_ROWS == 0:
                    progress.show(self.report.source_rows[name], table=name, rows=self.report.source_rows[name])
        _log.info("table read", table=name, rows=self.report.source_rows[name])

    def _source_rows(self, rows: SourceRows, table: TableSchema) -> Iterator[tuple[str, bytes, Columns]]:
        """Spanner's rows of a table: INSERT, or OMITTED if no backfill has delivered them, with their columns."""
        conditions, bound = self._filters.get(table.table), self._bounds.get(table.table, "")
        parts = [(INSERT, "")]
        if conditions is not None:
            parts = [(INSERT, any_of(*conditions)), (OMITTED, none_of(*conditions))] if conditions else [(OMITTED, "")]
        for change, condition in parts:
            for payload in rows.payloads(table, all_of(bound, condition)):
                yield change, payload, parsed(payload)

    def _compare_digests(self, table: str, digests: Mapping[int, Digest]) -> None:
        differing = self._differing[table] = self._digesters[table].differing(digests)
        self.report.replica_rows[table] += sum(
            digest.rows for number, digest in digests.items() if number not in differing
        )
        _log.info("counts and checksums compared", table=table, buckets=self._count, differing=len(differing))

    def _is_wanted(self, table: str, number: int | None) -> bool:
        differing = self._differing.get(table)
        return differing is None or number in differing

    def _equal(self, table: str, column: str, one: object, other: object) -> bool:
        if isinstance(other, Unsure):
            if one is None:
                self.report.unsure_values += 1
                self.report.unsure_tables.add(table)
                return True
            other = other.value
        return self._values[table].equal(column, one, other)

    def _changed_since(
        self,
        source: SourceConfig,
        found: Sequence[RowDifference],
        wanted: Mapping[Key, Columns],
        held: Mapping[Key, Columns],
        now: int,
    ) -> set[Key]:
        """Those of the differing rows that have changed in Spanner since the timestamp, as far as a look shows.

        Where the destination's rows name their last change, only those that it lacks are looked up. Those of a table
        whose key is hashed cannot be.
        """
        if self._replica.keeps_history:
            return set()
        only_missing = self._replica.names_changes
        rows = [(one.table, one.key) for one in found if not only_missing or one.kind is RowKind.MISSING]
        if (rules := source.columns.rules) is not None:
            differing = {table for table, _ in rows}
            hashed = {one for one in differing if rules.hashed_key(one, self._tables[one].primary_keys)}
            self.report.unsure += sum(table in hashed for table, _ in rows)
            rows = [row for row in rows if row[0] not in hashed]
        if self._looked_up + len(rows) > MOST_LOOKED_UP:
            self.report.unsure += len(rows)
            return set()
        self._looked_up += len(rows)
        by_table: defaultdict[str, list[Key]] = defaultdict(list)
        for row in rows:
            by_table[row[0]].append(row)
        changed: set[Key] = set()
        for table, of_table in by_table.items():
            values, schema = self._values[table], self._tables[table]
            keys = [wanted.get(row) or held[row] for row in of_table]
            existing = {
                (table, values.key(columns)): columns
                for columns in rows_by_key(source, schema, keys, now, only_keys=only_missing)
            }
            for row in of_table:
                before, after = wanted.get(row), existing.get(row)
                if after is None or before is None or only_missing:
                    has_changed = (before is None) != (after is None)
                else:
                    has_changed = any(not values.equal(name, before.get(name), after[name]) for name in after)
                if has_changed:
                    changed.add(row)
        return changed

    def _changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[tuple[RowChange, int | None]]:
        """The changes of the rows up to the timestamp, with the bucket of those that have digests."""
        replica = self._replica
        for batch in replica.changes(tables, wanted) if tables else ():
            times = integers(pc.list_element(batch.column("sort_keys"), 1).cast(pa.int64())).tolist()
            sequences = sequence_numbers(pc.list_element(batch.column("sort_keys"), 2)).tolist()
            indexes = pc.list_element(batch.column("sort_keys"), 3).cast(pa.int64()).to_pylist()
            kinds = pc.struct_field(batch.column("source_metadata"), "mod_type").to_pylist()
            texts = batch.column("payload").cast(pa.binary()).to_pylist()
            names = batch.column("object").to_pylist()
            for time, sequence, index, kind, text, name in zip(
                times, sequences, indexes, kinds, texts, names, strict=True
            ):
                is_later = time > self._timestamp
                if is_later and replica.keeps_history and time not in self._filled:
                    continue
                digester = self._digesters.get(name)
                try:
                    columns = parsed(text)
                    key = self._values[name].key(columns)
                    number = None if digester is None else digester.number(columns)
                except (ValueError, TypeError, KeyError):  # the message may contain a value
                    raise SpannerCdcError(f"{replica.name}: table {name}: a row is not valid") from None
                yield RowChange(name, key, (time, sequence, index), LATER if is_later else kind, text), number
