"""Turns of a table: of all processes that merge rows into it, one MERGE runs at a time.

The sink and a backfill merge into the same tables. Two MERGE statements that only insert rows do not conflict in
BigQuery: run together, both could insert the same row. So each job is named in the spool before it is started, under
the next number of its table, and not before the job that was named last has ended. A job whose process was killed may
still run in BigQuery; one that was named and never started is prevented.
"""

from hashlib import blake2b

import orjson

from connector.spool.manifest import VERSION
from connector.spool.reading import Spool
from spark_sink.bigquery.client import BigQueryClient
from spark_sink.bigquery.tables.table import BigQueryTable

_FOLDER = "bigquery/turns"


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
        self._storage = spool.storage
        self._client = client
        self._table = table
        name = f"{project}.{table.dataset}.{table.name}"
        self._folder = f"{_FOLDER}/{blake2b(name.encode(), digest_size=10).hexdigest()}"

    def take(self, job_id: str) -> None:
        """Returns when this job may be started: every job that was named before it has ended.

        It may be started again later, until another job is named.

        Raises:
            SinkError: BigQuery does not say whether the job before has ended.
        """
        while True:
            newest = self._newest()
            before = self._job(newest)
            if before == job_id:
                return
            if before:
                self._client.settle(before, self._table.dataset, self._table.name)
            if self._named(newest + 1, job_id):
                return

    def _named(self, number: int, job_id: str) -> bool:
        """Names a job under a number; returns whether it is the newest, because no other process was faster."""
        data = orjson.dumps({"version": VERSION, "job": job_id})
        try:
            self._storage.create(self._path(number), data)
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

    def _job(self, number: int) -> str:
        """The job with a number; empty where there is none, or others have passed that number meanwhile."""
        if not number:
            return ""
        try:
            return str(orjson.loads(self._storage.read(self._path(number)).to_pybytes())["job"])
        except FileNotFoundError:
            return ""

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


def _number(name: str) -> int:
    text = name.partition(".")[0]
    return int(text) if text.isdecimal() else 0
