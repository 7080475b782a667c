"""Loads a table's rows of a micro-batch into staging tables, which are merged afterwards: as few as memory allows.

Each load costs a job, and each MERGE of one reads the target. So a table's rows are folded for as long as they fit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

import orjson
import pyarrow as pa

from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.row_merger import Fold
from spark_sink.bigquery.table import BigQueryTable, Field
from spark_sink.bigquery.type_changes import Refusals
from spark_sink.files.writer import size_of

FOLDED = 32 * 1024 * 1024
"""Bytes of a table's rows that are folded into one load: they are in memory as Python's objects."""


@dataclass(frozen=True, slots=True)
class Load:
    """A staging table that was loaded, and what of the target's rows its lines can meet, as SQL."""

    staging: str
    bounds: str


def to_text(loads: Sequence[Load]) -> str:
    """Loads as a task tells of them; empty where there are none."""
    return orjson.dumps([asdict(load) for load in loads]).decode() if loads else ""


def from_text(text: str) -> list[Load]:
    """What :func:`to_text` wrote."""
    return [Load(**each) for each in orjson.loads(text)] if text else []


class Loading:
    """Folds rows, and loads what they come to into tables of its own: one, unless it would be too large.

    Args:
        client: runs the jobs.
        table: the table that they are of.
        name: of these rows and these options alone.
    """

    def __init__(self, client: BigQueryClient, table: BigQueryTable, name: str) -> None:
        self._client = client
        self._table = table
        self._name = name
        self._fold = Fold(table)
        self._folded = 0
        self._loads: list[Load] = []

    def take(self, rows: pa.RecordBatch) -> Refusals:
        """Folds rows in; returns the index of each that is refused, and why."""
        self._folded += size_of(rows)
        return self._fold.add(rows)

    @property
    def full(self) -> bool:
        """Whether the rows that are folded should be loaded."""
        return self._folded > FOLDED

    def rest(self) -> None:
        """Loads them: whole epochs, so that no transaction is seen in part when they are merged."""
        self._load()

    def end(self) -> str:
        """Loads what is left; returns all loads as text."""
        self._load()
        return to_text(self._loads)

    def _load(self) -> None:
        if not len(self._fold):
            return
        lines, fields = self._fold.lines(), self._fold.fields
        staging = staging_name(self._name, self._table, lines, fields)
        self._client.load(self._table.dataset, staging, fields, lines, job_id=f"{staging}_load")
        self._loads.append(Load(staging, self._fold.bounds()))
        self._fold, self._folded = Fold(self._table), 0


def staging_name(name: str, table: BigQueryTable, lines: bytes, fields: Sequence[Field]) -> str:
    """The table that lines are loaded into, in the dataset of the table that they are of: the same for the same.

    Other rows, or other columns, are another job's: one that is done is not run again.
    """
    digest = blake2b(f"{table.dataset}.{table.name} {fields}\n".encode(), digest_size=12)
    digest.update(lines)
    return f"spanner_cdc_{name}_{digest.hexdigest()}"
