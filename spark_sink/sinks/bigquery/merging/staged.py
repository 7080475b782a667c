"""Merges staging tables: each once, in turn with other merges into its table, and correctly beside a backfill.

While a backfill of a table is not done, its merged changes are first noted in a table beside it
(:mod:`spark_sink.sinks.bigquery.merging.changed_keys`). A backfill's rows are merged with these notes. The table of the
notes is recorded in the change stream's spool before it is created, and dropped when the backfill is done. Changes
merged before the backfill was recorded have no notes. If one of them was committed after the backfill's timestamp, the
backfill ends with one line, and its unfinished tables are read at a new timestamp.
"""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from connector.spool.backfill.records import backfills, mark_lost
from connector.spool.manifest import Document
from connector.spool.reading import Spool, to_json
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.merging.changed_keys import backfill_statement, changed_keys, keep_statement
from spark_sink.sinks.bigquery.merging.loads import MergeLoad, merge_job
from spark_sink.sinks.bigquery.merging.statements import merge_statement
from spark_sink.sinks.bigquery.merging.turns import Turns
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTarget

_FOLDER = "bigquery/changed"
_COMMIT = 16
"""Characters of a change sequence number that are its commit timestamp."""


class _Notes(Document):
    """A table of notes: where it is, and of which table of the source."""

    source: str
    project: str
    dataset: str
    name: str


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Merges the staging tables of a micro-batch, or of a replay of dead letters.

    Attributes:
        spool: the change stream's.
        target: the project and its endpoints.
        unfinished: the tables of which a backfill is not done, read after the rows were sealed.
        of_backfill: whether the rows are a backfill's.
        prunes: whether a statement names keys of its rows.
    """

    spool: Spool
    target: BigQueryTarget
    unfinished: Collection[str]
    of_backfill: bool
    prunes: bool

    def merge(self, table: BigQueryTable, load: MergeLoad) -> None:
        """Merges a staging table once, and deletes it.

        Raises:
            SinkError: BigQuery refuses, or cannot be reached.
            SpoolError: the spool cannot be read or written.
        """
        client = BigQueryClient(self.target)
        path = f"{self.target.project}.{table.dataset}"
        into, staging, bounds = f"{path}.{table.name}", f"{path}.{load.staging}", load.bounds if self.prunes else ""
        sql = merge_statement(table, into, staging, bounds)
        noted = self.of_backfill or table.source in self.unfinished
        # A staging table that is gone was merged by an earlier attempt.
        if noted and client.find(table.dataset, load.staging):
            notes = self._notes(client, table)
            if self.of_backfill:
                sql = backfill_statement(table, into, staging, f"{path}.{notes}", bounds)
            else:
                noting = keep_statement(table, f"{path}.{notes}", staging)
                client.query(noting, table.dataset, notes, job_id=f"{load.staging}_keep")
        turns = Turns(self.spool, client, self.target.project, table)

        def take(job_id: str) -> None:
            unnoted = turns.take(job_id, "" if noted else load.last)
            if self.of_backfill:
                self._check_noted(table, load, unnoted)

        client.query(sql, table.dataset, table.name, job_id=merge_job(load.staging), before=take)
        client.delete(table.dataset, load.staging)

    def is_merged(self, table: BigQueryTable, load: MergeLoad) -> bool:
        """True if a staging table was merged, by whomever.

        Raises:
            SinkError: BigQuery refuses, or cannot be reached.
        """
        client = BigQueryClient(self.target)
        return client.has_succeeded(merge_job(load.staging), table.dataset, table.name)

    def _notes(self, client: BigQueryClient, table: BigQueryTable) -> str:
        """The name of the table of notes, which exists."""
        made = changed_keys(table)
        project = self.target.project
        record = _Notes(source=table.source, project=project, dataset=made.dataset, name=made.name)
        name = blake2b(f"{project}.{made.dataset}.{made.name}".encode(), digest_size=10).hexdigest()
        self.spool.storage.put(f"{_FOLDER}/{name}.json", to_json(record))
        client.create(made)
        return made.name

    def _check_noted(self, table: BigQueryTable, load: MergeLoad, unnoted: str) -> None:
        """Checks that all changes after the timestamp of a backfill's rows were noted when they were merged.

        Raises:
            SinkError: one was not: it was merged before the backfill was recorded, and committed after its timestamp.
                The backfill is recorded as lost.
        """
        if unnoted[:_COMMIT] <= load.last[:_COMMIT]:
            return
        why = (
            "changes from after its timestamp were merged before it was recorded, and its rows could restore what they"
            " deleted"
        )
        at = int(load.last[:_COMMIT], 16)
        for one in backfills(self.spool):
            if one.document.timestamp == at and table.source in one.progress.unfinished:
                mark_lost(one.spool, why, now=time.time_ns())
        raise SinkError(
            f"the backfill of table {table.source} cannot be merged: {why}",
            hint="Run it again: the tables that are not done are read at a new timestamp.",
        )


def has_notes(spool: Spool, unfinished: Collection[str]) -> bool:
    """True if there are tables of notes of which no backfill is under way.

    Args:
        spool: the change stream's.
        unfinished: the tables of which a backfill is not done.
    """
    return any(True for _ in _left_over(spool, unfinished))


def drop_notes(spool: Spool, target: BigQueryTarget, unfinished: Collection[str]) -> None:
    """Drops the tables of notes that no running backfill needs. The caller holds the sink's lock.

    Args:
        spool: the change stream's.
        target: the sink's, whose project may be another by now.
        unfinished: the tables of which a backfill is not done.

    Raises:
        SinkError: BigQuery refuses, or cannot be reached.
    """
    for path, notes in _left_over(spool, unfinished):
        at = replace(target, project=notes.project)
        BigQueryClient(at).delete(notes.dataset, notes.name)
        spool.storage.delete(path)


def _left_over(spool: Spool, unfinished: Collection[str]) -> Iterator[tuple[str, _Notes]]:
    for file in spool.storage.list(_FOLDER):
        path = f"{_FOLDER}/{file}"
        notes = spool.document(path, _Notes, "it names no table")
        if notes.source not in unfinished:
            yield path, notes
