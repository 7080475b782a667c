"""A strict test double of BigQuery in this process: tables over REST, rows over the Storage Write API, on loopback.

It accepts less than BigQuery does, and rejects requests with BigQuery's codes. It keeps rows in memory as Python
values, which a test can read. It supports no queries, only statements that alter, copy and drop a table. It follows
BigQuery's documentation and clients, and has not yet been compared with the service.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection

from emulator.bigquery.catalog import Catalog, Now
from emulator.bigquery.contents import Row
from emulator.bigquery.meter import Meter
from emulator.bigquery.refusals import StorageCode
from emulator.bigquery.rest import BigQueryRest, serving_rest
from emulator.bigquery.schema import ColumnDefinition, Definition
from emulator.bigquery.statements import retype
from emulator.bigquery.streams import Streams
from emulator.bigquery.traffic import Counts, Failure, RefusedValue, Traffic
from emulator.bigquery.write import BigQueryWrite, serving_write

__all__ = ["BigQueryDouble", "ColumnDefinition", "Counts", "Definition", "Failure", "StorageCode", "serve"]


def _now() -> datetime:
    return datetime.now(UTC)


class BigQueryDouble:
    """A BigQuery with one project; may be called while clients use it.

    A test can inject faults: failing requests, denied access, invalid rows, and changes by another client.

    Attributes:
        project: the project's id.
        endpoint: the address of the REST interface, for a client's `api_endpoint`.
        grpc_endpoint: the address of the Write API, for an insecure channel.
        counts: the totals of requests and rows so far.
        meter: counts requests by kind and hour, and enforces quotas.
    """

    def __init__(self, catalog: Catalog, streams: Streams, traffic: Traffic, ports: tuple[int, int]) -> None:
        rest_port, grpc_port = ports
        self.project = catalog.project
        self.endpoint = f"http://127.0.0.1:{rest_port}"
        self.grpc_endpoint = f"127.0.0.1:{grpc_port}"
        self.counts = traffic.counts
        self.meter = traffic.meter
        self._catalog = catalog
        self._streams = streams
        self._traffic = traffic

    @classmethod
    @contextmanager
    def started(
        cls,
        project: str = "double",
        *,
        keep_rows: bool = True,
        check: bool = True,
        count_jobs: bool = False,
        now: Now = _now,
    ) -> Iterator[BigQueryDouble]:
        """Serves in threads of this process while the context is open.

        Args:
            project: the only project.
            keep_rows: whether rows are kept; if not, they are checked and counted.
            check: whether rows are checked; if not, they are only counted, for a benchmark of their writer.
            count_jobs: whether load jobs and MERGE statements are counted, but not run; if not, they are refused.
            now: returns the time.
        """
        catalog, traffic = Catalog(project, now), Traffic(Meter(now))
        streams = Streams(catalog)
        write = BigQueryWrite(catalog, streams, traffic, keep_rows=keep_rows, check=check)
        rest = BigQueryRest(catalog, traffic, count_jobs=count_jobs)
        with serving_rest(rest) as rest_port, serving_write(write) as grpc_port:
            yield cls(catalog, streams, traffic, (rest_port, grpc_port))

    def fail_next(
        self, kind: str | int, times: int = 1, *, method: str | None = None, after: bool = False, in_band: bool = False
    ) -> None:
        """Makes the next requests fail.

        Args:
            kind: a gRPC code, such as UNAVAILABLE, RESOURCE_EXHAUSTED or INTERNAL; or a code of StorageError, such as
                SCHEMA_MISMATCH_EXTRA_FIELDS, which an AppendRowsResponse then carries; or an HTTP status: 429, 500,
                502 or 503.
            times: how many requests.
            method: the method that fails. Of gRPC: AppendRows (the default), CreateWriteStream and so on. Of REST:
                tables.insert and so on; any method by default.
            after: whether the request is carried out first, so that only the response is lost.
            in_band: whether an AppendRowsResponse has the code, and the call continues; if not, the call ends with it.
        """
        self._traffic.fail_next(kind, times, method=method, after=after, in_band=in_band)

    def failures_left(self) -> int:
        """The number of failures that have not been injected yet."""
        return len(self._traffic.failures)

    def forget_failures(self) -> None:
        """Removes all failures that have not been injected yet."""
        self._traffic.forget()

    def deny(self, dataset: str, table: str = "") -> None:
        """Deny access to a table, which need not exist, or to a dataset with all its tables: 403, PERMISSION_DENIED."""
        self._catalog.denied.add((dataset, table))

    def allow(self, dataset: str, table: str = "") -> None:
        """Allow access again after `deny`."""
        self._catalog.denied.discard((dataset, table))

    def drop(self, dataset: str, table: str) -> None:
        """Deletes a table and its rows, as another client would."""
        self._catalog.drop(dataset, table)

    def refuse(self, column: str, value: object, message: str) -> None:
        """Reject each row that has that value in a top-level column."""
        self._traffic.refused.append(RefusedValue(column, value, message))

    def take_all(self) -> None:
        """Accepts all rows again after `refuse`."""
        self._traffic.refused.clear()

    def retype(self, dataset: str, table: str, column: str, kind: str) -> None:
        """Drops a column and adds it again with another type, as another client would."""
        retype(self._catalog, dataset, table, column, kind)

    def expire(self, stream: str, *, forgotten: bool = False) -> None:
        """Expire a pending stream: it is not found any more, and cannot be committed.

        With `forgotten` the commit fails with STREAM_NOT_FOUND, as for a stream that never existed; otherwise with
        INVALID_STREAM_STATE.
        """
        self._streams.expire(stream, forgotten=forgotten)

    @property
    def largest_request(self) -> int:
        """The most bytes of an AppendRows request."""
        return self._traffic.largest_request

    @largest_request.setter
    def largest_request(self, size: int) -> None:
        self._traffic.largest_request = size

    def set_size(self, dataset: str, table: str, size: int) -> None:
        """Sets a table's size in bytes, whatever was written; KeyError without the table."""
        self._catalog.known(dataset, table).bytes = size

    def datasets(self) -> list[str]:
        """The datasets, by name."""
        return sorted(self._catalog.datasets)

    def tables(self, dataset: str) -> list[str]:
        """The tables of a dataset, by name, denied ones among them."""
        return self._catalog.names(dataset)

    def table(self, dataset: str, table: str) -> Definition:
        """A table's columns, key, clustering and max_staleness; KeyError without the table."""
        return self._catalog.known(dataset, table).definition

    def rows(self, dataset: str, table: str) -> list[Row]:
        """The rows that a query would see, with all columns, as Python values; KeyError without the table.

        A STRUCT is a dict, a REPEATED column a list, NUMERIC a Decimal, DATE a date, TIMESTAMP a datetime in UTC; JSON
        is the text that was written.
        """
        with self._catalog.lock:
            found = self._catalog.known(dataset, table)
            return found.contents.rows(found.schema)

    def conflicts(self, dataset: str, table: str) -> int:
        """The number of changes that differ from another of the same key and number; BigQuery keeps either."""
        return self._catalog.known(dataset, table).contents.conflicts

    def pending_streams(self) -> list[str]:
        """The names of the streams that are neither committed nor expired."""
        return self._streams.names()


def serve(pipe: Connection, *, keep_rows: bool = False, check: bool = False) -> None:
    """Serves in a separate process, for a benchmark.

    It sends `(endpoint, grpc_endpoint)` when it is ready, and `Counts` for each "counts" that it receives. It ends when
    the pipe is closed, or at any other message.
    """
    with BigQueryDouble.started(keep_rows=keep_rows, check=check) as double:
        pipe.send((double.endpoint, double.grpc_endpoint))
        try:
            while pipe.recv() == "counts":
                pipe.send(double.counts)
        except EOFError:
            return
