"""Loads a table's rows of a micro-batch into staging tables, to be merged afterwards: as few as memory allows.

Each load costs a job, and each MERGE of one reads the target. So a table's rows are merged in memory first, for as long
as they fit.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

import orjson
import pyarrow as pa

from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.merging.row_merger import RowMerger
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, Field
from spark_sink.sinks.shared.known_schemas import Rejections
from spark_sink.sinks.shared.row_slices import size_of

MERGED_BYTES = 32 * 1024 * 1024
"""Bytes of a table's rows that become one load; they are in memory as Python objects."""

MERGED_PARTITIONS = 3_900
"""Partitions of a partitioned table whose rows become one load: a statement changes 4,000 at most
(https://cloud.google.com/bigquery/quotas#partitioned_tables). Where rows change their partition it changes more."""


@dataclass(frozen=True, slots=True)
class MergeLoad:
    """A staging table that was loaded.

    Attributes:
        staging: its name.
        bounds: a condition in SQL that the keys of its lines meet.
        last: the largest change sequence number of its lines.
    """

    staging: str
    bounds: str
    last: str = ""


def to_text(loads: Sequence[MergeLoad]) -> str:
    """Loads as a task reports them; empty where there are none."""
    return orjson.dumps([asdict(load) for load in loads]).decode() if loads else ""


def from_text(text: str) -> list[MergeLoad]:
    """Reads what :func:`to_text` wrote."""
    return [MergeLoad(**each) for each in orjson.loads(text)] if text else []


class Loading:
    """Merges rows, and loads the result into staging tables: one, unless it would be too large.

    Args:
        client: runs the jobs.
        table: the table of the rows.
        name: names these rows and these options, and no others.
    """

    def __init__(self, client: BigQueryClient, table: BigQueryTable, name: str) -> None:
        self._client = client
        self._table = table
        self._name = name
        self._merger = RowMerger(table)
        self._merged = 0
        self._loads: list[MergeLoad] = []

    def write(self, rows: pa.RecordBatch) -> Rejections:
        """Merges rows in; returns the index of each rejected one, and why."""
        self._merged += size_of(rows)
        return self._merger.add(rows)

    @property
    def is_full(self) -> bool:
        """True if there are enough rows to load."""
        return self._merged > MERGED_BYTES

    def end_epoch(self) -> None:
        """Loads whole epochs, so that no transaction is visible in part; one of too many partitions is, for a while."""
        for rows in self._merger.split(MERGED_PARTITIONS):
            lines, fields = rows.lines(), rows.fields
            staging = staging_name(self._name, self._table, lines, fields)
            merge = merge_job(staging)
            self._client.load(self._table.dataset, staging, fields, lines, job_id=f"{staging}_load", read_by=merge)
            self._loads.append(MergeLoad(staging, rows.bounds(), rows.last))
        self._merger, self._merged = RowMerger(self._table), 0

    def finish(self) -> str:
        """Loads the remaining rows; returns all loads as text."""
        self.end_epoch()
        return to_text(self._loads)


def merge_job(staging: str) -> str:
    """The id of the job that merges a staging table."""
    return f"{staging}_merge"


def staging_name(name: str, table: BigQueryTable, lines: bytes, fields: Sequence[Field]) -> str:
    """The name of the staging table of some lines, in the dataset of their table.

    The same lines have the same name, so that a job which is done is not run again; other rows or columns have another.
    """
    digest = blake2b(f"{table.dataset}.{table.name} {fields}\n".encode(), digest_size=12)
    digest.update(lines)
    return f"spanner_cdc_{name}_{digest.hexdigest()}"
