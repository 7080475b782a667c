"""Turns of a table: of all processes that merge rows into it, one MERGE runs at a time.

The sink and a backfill merge into the same tables. Two MERGE statements that only insert rows do not conflict in
BigQuery: run together, both could insert the same row. So each job is named in the spool before it is started, under
the next number of its table, and not before the job that was named last has ended. A job whose process was killed may
still run in BigQuery; one that was named and never started is prevented.
"""

from hashlib import blake2b

from connector.spool.manifest import Document
from connector.spool.reading import Spool, to_json
from spark_sink.sinks.bigquery.client import BigQueryClient
from spark_sink.sinks.bigquery.tables.table import BigQueryTable

_FOLDER = "bigquery/turns"


class _Turn(Document):
    """The job whose turn it is, and the largest number merged so far without a note."""

    job: str = ""
    unnoted: str = ""


class Turns:
    """The turns of a table.

    Args:
        spool: the change stream's; a backfill takes its turns there, too.
        client: finds the jobs of others.
        project: of the table.
        table: the table.

    Raises:
        SpoolError: from every method, if the spool cannot be read or written.
    """

    def __init__(self, spool: Spool, client: BigQueryClient, project: str, table: BigQueryTable) -> None:
        self._spool = spool
        self._storage = spool.storage
        self._client = client
        self._table = table
        name = f"{project}.{table.dataset}.{table.name}"
        self._folder = f"{_FOLDER}/{blake2b(name.encode(), digest_size=10).hexdigest()}"

    def take(self, job_id: str, unnoted: str = "") -> str:
        """Returns when this job may be started: every job that was named before it has ended.

        It may be started again later, until another job is named.

        Args:
            job_id: of the job.
            unnoted: the largest change sequence number that it merges, if its changes were not noted beside a backfill.

        Returns:
            The largest number that was merged without a note by now; empty where there is none.

        Raises:
            SinkError: BigQuery does not say whether the job before has ended.
        """
        while True:
            newest = self._newest()
            before = self._turn(newest)
            if before is not None and before.job == job_id:
                return before.unnoted
            if before is not None and before.job:
                self._client.settle(before.job, self._table.dataset, self._table.name)
            turn = _Turn(job=job_id, unnoted=max(unnoted, before.unnoted if before else ""))
            if before is not None and self._named(newest + 1, turn):
                return turn.unnoted

    def _named(self, number: int, turn: _Turn) -> bool:
        """Names a job under a number; returns whether it is the newest, because no other process was faster."""
        try:
            self._storage.create(self._path(number), to_json(turn))
        except FileExistsError:
            return False
        if self._newest() != number:
            self._storage.delete(self._path(number))  # an old number that others had passed and removed
            return False
        older = [name for name in self._storage.list(self._folder) if _number(name) < number]
        self._storage.delete(*(f"{self._folder}/{name}" for name in older))
        return True

    def _newest(self) -> int:
        """The newest number; 0 before the first. It is never removed."""
        return max(map(_number, self._storage.list(self._folder)), default=0)

    def _turn(self, number: int) -> _Turn | None:
        """The turn with a number, an empty one before the first; None where others have passed it meanwhile."""
        return self._spool.find(self._path(number), _Turn, "it names no job") if number else _Turn()

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


def _number(name: str) -> int:
    text = name.partition(".")[0]
    return int(text) if text.isdecimal() else 0
