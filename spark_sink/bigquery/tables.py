"""Makes BigQuery's tables fit the source's: created, widened, or stopped with a reason.

The spool remembers which tables and columns were made (``consumers/bigquery.tables``), so that one which somebody
dropped is told from one that is new: a table that is made anew would lack what was written before. A table whose
columns changed in a way that BigQuery cannot follow is stopped: its events go to the dead-letter place until somebody
has repaired it and had them replayed. Only the sink's own process prepares tables, before any task writes.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.spool.manifest import VERSION
from connector.spool.reading import Spool, to_json
from spark_sink.bigquery.client import BigQueryClient, ExistingTable
from spark_sink.bigquery.config import CONSUMER
from spark_sink.bigquery.rejections import misfits
from spark_sink.bigquery.row_merger import too_long
from spark_sink.bigquery.table import (
    MERGE,
    MERGE_LOAD,
    WAYS_APART,
    BigQueryTable,
    BigQueryTarget,
    Shape,
    bigquery_table,
    table_faults,
)
from spark_sink.errors import SinkError, TableError

_INTERVAL = re.compile(r"0-0 (\d+) (\d+):(\d+):(\d+(?:\.\d+)?)")
_PATH = f"consumers/{CONSUMER}.tables"


class _Known(BaseModel):
    """What was made of a table: the types of its columns by name, and why it is stopped, if it is.

    ``schema_key`` names the schema that the sink met last, ``mode`` is what the table was made for; either is empty
    where that is not known.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: str
    columns: dict[str, str]
    stopped: str | None = None
    schema_key: str = ""
    mode: str = ""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int = VERSION
    tables: dict[str, _Known]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table that may be written, or why it may not."""

    table: BigQueryTable
    stopped: str | None


class BigQueryTables:
    """The tables of a sink.

    Args:
        spool: remembers what was made.
        target: where they are.
        location: where datasets that are missing are made; empty where they are not.
        max_staleness: nanoseconds, for tables that are merged into by CDC.
    """

    def __init__(self, spool: Spool, target: BigQueryTarget, *, location: str, max_staleness: int) -> None:
        self.target = target
        self._spool = spool
        self._client = BigQueryClient(target, failure=SinkError)
        self._location = location
        self._max_staleness = max_staleness
        self._known: dict[str, _Known] | None = None
        self._prepared: dict[str, tuple[str, Shape, Prepared]] = {}

    def prepared(
        self, schemas: Mapping[str, TableSchema], shape: Shape, *, replaying: bool = False
    ) -> dict[str, Prepared]:
        """Makes these tables ready, by name in the source; ``schemas`` are by schema key.

        Those that are stopped stay so, unless dead letters are ``replaying``: then it is looked whether they are
        repaired, and they stay stopped for the sink until :meth:`resume`.

        Raises:
            TableError: somebody dropped what was made, or it was made for another mode.
            SinkError: BigQuery refuses.
        """
        out: dict[str, Prepared] = {}
        before = dict(self._tables())
        for key, schema in schemas.items():
            found = self._prepared.get(schema.table)
            if found is None or found[:2] != (key, shape):
                prepared = self._prepare(bigquery_table(schema, shape), shape, key, replaying=replaying)
                found = self._prepared[schema.table] = (key, shape, prepared)
            out[schema.table] = found[2]
        if self._tables() != before:
            self._note()
        return out

    def resume(self, source: str) -> None:
        """Lets a table go on that was stopped and is repaired."""
        tables = self._tables()
        for name, known in list(tables.items()):
            if known.source == source and known.stopped:
                tables[name] = known.model_copy(update={"stopped": None})
                self._note()

    def schema_key(self, table: BigQueryTable) -> str:
        """The key of a table's schema as the sink met it last; empty where that is not known."""
        known = self._tables().get(self._name(table))
        return known.schema_key if known is not None and known.source == table.source else ""

    def _name(self, table: BigQueryTable) -> str:
        return f"{self.target.project}.{table.dataset}.{table.name}"

    def _prepare(self, table: BigQueryTable, shape: Shape, key: str, *, replaying: bool) -> Prepared:
        name = self._name(table)
        known = self._tables().get(name)
        other = self._of_that_name(table, name)
        if other is not None:
            why = f"the tables {other} and {table.source} would both be {name} in BigQuery: {WAYS_APART}"
            return Prepared(table, f"table {table.source} is stopped: {why}")
        if known is not None and known.mode not in ("", shape.mode):
            raise _other_mode(name, f"for mode {known.mode}")
        if known is not None and known.stopped and not replaying:
            self._tables()[name] = known.model_copy(update={"schema_key": key})
            return Prepared(table, known.stopped)
        met = key if not replaying else known.schema_key if known else ""
        faults = list(table_faults(table, shape))
        long = too_long(table, self.target.project) if shape.mode == MERGE_LOAD and not faults else None
        faults += [long] if long else []
        if not faults:
            existing = self._client.find(table.dataset, table.name)
            _check_drops(name, known, existing, table.primary_key)
            if existing is not None:
                _check_mode(name, table, existing)
                faults += misfits(name, table, existing)
            elif table.unpartitioned:
                faults.append(f"{table.unpartitioned}: change sink.partition_by")
        if faults:
            stopped = f"table {table.source} is stopped: {'; '.join(faults)}"
            still = stopped if not replaying else known.stopped if known else None
            # What it had counts no more: somebody has to change it.
            mode = known.mode if known else ""
            self._tables()[name] = _Known(source=table.source, columns={}, stopped=still, schema_key=met, mode=mode)
            return Prepared(table, stopped)
        self._make(table, existing, shape)
        columns = {**(known.columns if known else {}), **{field.name: field.type_text for field in table.fields}}
        still = known.stopped if known else None
        self._tables()[name] = _Known(
            source=table.source, columns=columns, stopped=still, schema_key=met, mode=shape.mode
        )
        return Prepared(table, None)

    def _of_that_name(self, table: BigQueryTable, name: str) -> str | None:
        """Another table of the source that has a table's name already; datasets may be made to ignore case."""
        others = {made: known.source for made, known in self._tables().items() if known.source != table.source}
        if name in others:
            return others[name]
        alike = [source for made, source in others.items() if made.lower() == name.lower()]
        return alike[0] if alike and self._client.ignores_case(table.dataset) else None

    def _make(self, table: BigQueryTable, existing: ExistingTable | None, shape: Shape) -> None:
        if existing is None:
            if not self._client.dataset_exists(table.dataset):
                self._make_dataset(table.dataset)
            self._client.create(table)
        else:
            missing = existing.lacks(table)
            if missing:
                self._client.add_columns(table, missing)
        wanted = self._max_staleness // SECOND
        before = _seconds(existing.max_staleness) if existing is not None else None
        if shape.mode == MERGE and before != wanted:
            self._client.set_max_staleness(table, self._max_staleness)
            if existing is not None:
                was = "none" if before is None else f"{before:g} s"
                _tell(f"max_staleness of table {self._name(table)} is changed from {was} to {wanted} s")

    def _make_dataset(self, dataset: str) -> None:
        if not self._location:
            raise SinkError(
                f"there is no dataset {dataset} in BigQuery",
                hint=f"Make it (bq mk --location=LOCATION --dataset {self.target.project}:{dataset}), or set"
                " sink.location.",
            )
        self._client.create_dataset(dataset, self._location)

    def _tables(self) -> dict[str, _Known]:
        if self._known is None:
            try:
                self._known = dict(self._spool.document(_PATH, _Document, "it names no tables").tables)
            except FileNotFoundError:
                self._known = {}
        return self._known

    def _note(self) -> None:
        self._spool.storage.replace(_PATH, to_json(_Document(tables=self._tables())))


def _tell(line: str) -> None:
    """Where Spark keeps what its sources say; their processes have no log of their own."""
    sys.stderr.write(f"spark_sink: {line}\n")
    sys.stderr.flush()


def _check_drops(name: str, known: _Known | None, existing: ExistingTable | None, key: Iterable[str]) -> None:
    if known is None or not known.columns:
        return
    if existing is None:
        raise TableError(
            f"table {name} was dropped in BigQuery, and with it what was written",
            hint="Restore it (bq cp TABLE@TIME TABLE), or make an empty one like it to go on without. Nothing is lost"
            " of what came since.",
        )
    gone = [column for column in known.columns if column.lower() not in existing.fields]
    if gone:
        raise TableError(
            f"column {gone[0]} of table {name} was dropped in BigQuery", hint=_way_back(gone[0], known, key)
        )


def _way_back(column: str, known: _Known, key: Iterable[str]) -> str:
    if column in key:
        return (
            "A key's column cannot be added: restore the table (bq cp TABLE@TIME TABLE), or make an empty one like it."
            " Nothing is lost of what came since."
        )
    return (
        f"Add it again (ALTER TABLE ... ADD COLUMN {column} {known.columns[column]}): nothing is lost of what came"
        " since; rows from before have NULL in it until they are written again."
    )


def _check_mode(name: str, table: BigQueryTable, existing: ExistingTable) -> None:
    for field in table.metadata:
        there = existing.fields.get(field.name.lower())
        inner = {each.name for each in there.fields} if there is not None else set()
        if there is not None and {each.name for each in field.fields} != inner:
            raise _other_mode(name, f"in another mode: its {field.name} has other fields")


def _other_mode(name: str, how: str) -> TableError:
    return TableError(
        f"table {name} was made {how}", hint="Choose another sink.dataset or sink.prefix for this mode, or go back."
    )


def _seconds(interval: str | None) -> float | None:
    """Of an interval as the API tells it, ``0-0 DAYS HOURS:MINUTES:SECONDS``."""
    match = _INTERVAL.fullmatch(interval or "")
    if match is None:
        return None
    days, hours, minutes, seconds = map(float, match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
