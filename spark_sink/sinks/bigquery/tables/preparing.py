"""Prepares BigQuery's tables for the source's rows: creates them, adds columns, or stops them with a reason.

:mod:`spark_sink.sinks.bigquery.tables.states` has a table's states and what is done in each. A table whose columns
changed in a way that BigQuery cannot follow is stopped: its rows become dead letters until it has been repaired and had
them replayed. Only the sink's own process prepares tables, before any task writes, or a replay while the sink does not
run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from connector import log
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.spool.reading import Spool
from spark_sink.errors import SinkError, TableError
from spark_sink.sinks.bigquery.client import BigQueryClient, ExistingTable
from spark_sink.sinks.bigquery.merging.lengths import too_long
from spark_sink.sinks.bigquery.tables.mismatches import mismatches
from spark_sink.sinks.bigquery.tables.records import TableRecord, TableRecords
from spark_sink.sinks.bigquery.tables.states import By, TableAction, TableFinding, is_examined, transition
from spark_sink.sinks.bigquery.tables.table import (
    IS_DELETED,
    MERGE,
    MERGE_LOAD,
    SEPARATE_NAMES,
    BigQueryTable,
    BigQueryTableOptions,
    BigQueryTarget,
    bigquery_table,
    table_errors,
)

_INTERVAL = re.compile(r"0-0 (\d+) (\d+):(\d+):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table, and why it must not be written; None where it may be."""

    table: BigQueryTable
    stopped: str | None


@dataclass(frozen=True, slots=True)
class _Found:
    """An event, with the reasons for dead letters, the error for a failure, and the table as it exists."""

    event: TableFinding
    reasons: tuple[str, ...] = ()
    error: TableError | None = None
    existing: ExistingTable | None = None


class BigQueryTables:
    """The tables of a sink.

    Args:
        spool: records what was created.
        target: where they are.
        location: the region in which missing datasets are created; empty where they are not.
        max_staleness: nanoseconds, for tables into which BigQuery merges changes.
        name: the sink's.
    """

    def __init__(self, spool: Spool, target: BigQueryTarget, *, location: str, max_staleness: int, name: str) -> None:
        self.target = target
        self._client = BigQueryClient(target)
        self._location = location
        self._max_staleness = max_staleness
        self._records = TableRecords(spool, name)
        self._prepared: dict[str, tuple[str, BigQueryTableOptions, Prepared]] = {}

    def prepared(
        self, schemas: Mapping[str, TableSchema], table_options: BigQueryTableOptions, *, by: By = By.SINK
    ) -> dict[str, Prepared]:
        """Prepares tables; returns them by name in the source. ``schemas`` are by schema key.

        Those that are stopped stay so. A replay examines whether they are repaired, and they stay stopped for the sink
        until :meth:`resume`.

        Raises:
            TableError: a table or column that was created has been dropped, or it was created for another mode.
            SinkError: BigQuery rejects a request.
        """
        out: dict[str, Prepared] = {}
        before = dict(self._records.all())
        for key, schema in schemas.items():
            found = self._prepared.get(schema.table)
            if found is None or found[:2] != (key, table_options):
                prepared = self._prepare(bigquery_table(schema, table_options), table_options, key, by)
                found = self._prepared[schema.table] = (key, table_options, prepared)
            out[schema.table] = found[2]
        if self._records.all() != before:
            self._records.save()
        return out

    def resume(self, source: str) -> None:
        """Lets the sink write a table again that was stopped and is repaired."""
        records = self._records.all()
        for name, record in list(records.items()):
            if record.source == source and record.stopped:
                state = transition(By.REPLAY, record.state, TableFinding.RESUMED).state
                records[name] = record.moved(state, schema_key=record.schema_key, mode=record.mode)
                self._records.save()

    def stopped(self) -> Mapping[str, str]:
        """The schema keys of the newest rows of stopped tables, by their names in the source; those that are known."""
        return {one.source: one.schema_key for one in self._records.all().values() if one.stopped and one.schema_key}

    def is_stopped(self, table: BigQueryTable) -> bool:
        """True if a table is stopped."""
        record = self._records.all().get(self._name(table))
        return record is not None and record.source == table.source and record.stopped is not None

    def schema_key(self, table: BigQueryTable) -> str:
        """The key of the schema of a table's newest row; empty where that is not known."""
        record = self._records.all().get(self._name(table))
        return record.schema_key if record is not None and record.source == table.source else ""

    def _name(self, table: BigQueryTable) -> str:
        return f"{self.target.project}.{table.dataset}.{table.name}"

    def _prepare(self, table: BigQueryTable, table_options: BigQueryTableOptions, key: str, by: By) -> Prepared:
        """Examines a table and does what its state demands."""
        name = self._name(table)
        record = self._records.all().get(name)
        if record is None or record.source != table.source:
            record = TableRecord(source=table.source, columns={})
        found = self._examine(table, table_options, record, by)
        step = transition(by, record.state, found.event)
        reason = f"table {table.source} is stopped: {'; '.join(found.reasons)}"
        columns: dict[str, str] = {}
        mode, stopped = record.mode, None
        match step.action:
            case TableAction.FAIL:
                assert found.error is not None
                raise found.error
            case TableAction.SET_ASIDE:
                return Prepared(table, reason)
            case TableAction.HOLD:
                self._records.all()[name] = record.model_copy(update={"schema_key": key})
                return Prepared(table, record.stopped)
            case TableAction.STOP:
                stopped = reason
            case TableAction.CREATE:
                create_table(self._client, self.target, table, self._location)
            case TableAction.ADD_COLUMNS:
                assert found.existing is not None
                self._client.add_columns(table, found.existing.lacks(table))
        if step.action is not TableAction.STOP:
            self._set_staleness(table, table_options, found.existing)
            columns, mode = {field.name: field.type_text for field in table.fields}, table_options.mode
        # A replay meets rows of older schemas than the sink has.
        newest = key if by is By.SINK else record.schema_key
        self._records.all()[name] = record.moved(
            step.state, schema_key=newest, mode=mode, columns=columns, reason=reason
        )
        return Prepared(table, stopped)

    def _examine(
        self, table: BigQueryTable, table_options: BigQueryTableOptions, record: TableRecord, by: By
    ) -> _Found:
        """Finds out about a table; BigQuery is called only if no earlier finding decides."""
        name = self._name(table)
        other = self._other_table(table, name)
        if other is not None:
            why = f"the tables {other} and {table.source} would both be {name} in BigQuery: {SEPARATE_NAMES}"
            return _Found(TableFinding.NAME_TAKEN, (why,))
        if record.mode not in ("", table_options.mode):
            return _Found(TableFinding.OTHER_MODE, error=_other_mode(name, f"for mode {record.mode}"))
        if not is_examined(by, record.state):
            return _Found(TableFinding.SKIPPED)
        faults = tuple(self._faults(table, table_options))
        if faults:
            return _Found(TableFinding.UNFIT, faults)
        existing = self._client.find(table.dataset, table.name)
        dropped = _drop(name, record, existing, table.primary_key)
        if dropped is not None:
            return _Found(TableFinding.DROPPED, error=dropped)
        if existing is None:
            return _Found(TableFinding.UNFIT, table.unfit) if table.unfit else _Found(TableFinding.ABSENT)
        return _compared(name, table, existing)

    def _faults(self, table: BigQueryTable, table_options: BigQueryTableOptions) -> Iterator[str]:
        """The reasons why a table cannot be in BigQuery, whatever exists there."""
        found = list(table_errors(table, table_options))
        yield from found
        if table_options.mode == MERGE_LOAD and not found and (long := too_long(table, self.target.project)):
            yield long

    def _other_table(self, table: BigQueryTable, name: str) -> str | None:
        """Another table of the source that is written under this name; datasets may ignore case."""
        others = {made: record.source for made, record in self._records.all().items() if record.source != table.source}
        if name in others:
            return others[name]
        alike = [source for made, source in others.items() if made.lower() == name.lower()]
        return alike[0] if alike and self._client.ignores_case(table.dataset) else None

    def _set_staleness(
        self, table: BigQueryTable, table_options: BigQueryTableOptions, existing: ExistingTable | None
    ) -> None:
        wanted = self._max_staleness // SECOND
        there = existing.max_staleness if existing is not None else None
        before = _seconds(there) if there else 0.0  # BigQuery's default, which it need not show
        if table_options.mode == MERGE and before != wanted:
            self._client.set_max_staleness(table, self._max_staleness)
            if existing is not None:
                was = "none" if not there or before is None else f"{before:g} s"
                line = f"max_staleness of table {self._name(table)} is changed from {was} to {wanted} s"
                log.say("spark_sink", line, action="table_changed")


def create_table(client: BigQueryClient, target: BigQueryTarget, table: BigQueryTable, location: str) -> None:
    """Creates a table, and its dataset, unless they exist.

    Args:
        client: of the target.
        target: the project.
        table: the table.
        location: the region of a missing dataset; empty where none is created.

    Raises:
        SinkError: there is no dataset, or BigQuery refuses.
    """
    if not client.dataset_exists(table.dataset):
        if not location:
            raise SinkError(
                f"there is no dataset {table.dataset} in BigQuery",
                hint=f"Create it (bq mk --location=LOCATION --dataset {target.project}:{table.dataset}), or set"
                " sink.location.",
            )
        client.create_dataset(table.dataset, location)
    client.create(table)


def _compared(name: str, table: BigQueryTable, existing: ExistingTable) -> _Found:
    """Compares an existing table with what it should be."""
    for field in table.metadata:
        there = existing.fields.get(field.name.lower())
        inner = {each.name for each in there.fields} if there is not None else set()
        if there is not None and ({each.name for each in field.fields} ^ inner) - {IS_DELETED}:
            error = _other_mode(name, f"in another mode: its {field.name} has other fields")
            return _Found(TableFinding.OTHER_MODE, error=error)
    reasons = tuple(mismatches(name, table, existing))
    if reasons:
        return _Found(TableFinding.UNFIT, reasons)
    return _Found(TableFinding.BEHIND if existing.lacks(table) else TableFinding.FITS, existing=existing)


def _drop(name: str, record: TableRecord, existing: ExistingTable | None, key: Iterable[str]) -> TableError | None:
    """The error for a table that was dropped after its creation, or a column of it."""
    if not record.columns:
        return None
    if existing is None:
        return TableError(
            f"table {name} was dropped in BigQuery, and with it what was written",
            hint="Restore it (bq cp TABLE@TIME TABLE), or create an empty one like it to continue without its rows."
            " Later changes are not lost.",
        )
    gone = [column for column in record.columns if column.lower() not in existing.fields]
    if not gone:
        return None
    return TableError(f"column {gone[0]} of table {name} was dropped in BigQuery", hint=_way_back(gone[0], record, key))


def _way_back(column: str, record: TableRecord, key: Iterable[str]) -> str:
    if column in key:
        return (
            "A key's column cannot be added: restore the table (bq cp TABLE@TIME TABLE), or create an empty one like"
            " it. Later changes are not lost."
        )
    return (
        f"Add it again (ALTER TABLE ... ADD COLUMN {column} {record.columns[column]}). Later changes are not lost;"
        " earlier rows have NULL in it until they are written again."
    )


def _other_mode(name: str, how: str) -> TableError:
    return TableError(
        f"table {name} was made {how}",
        hint="Choose another sink.dataset or sink.prefix for this mode, or use the earlier mode again.",
    )


def _seconds(interval: str | None) -> float | None:
    """An interval of the API, ``0-0 DAYS HOURS:MINUTES:SECONDS``, in seconds; None where it is not one."""
    match = _INTERVAL.fullmatch(interval or "")
    if match is None:
        return None
    days, hours, minutes, seconds = map(float, match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
