"""A client of BigQuery's REST API, for datasets, tables and jobs. Needs the extra ``bigquery``.

Transient errors are retried with backoff, for :data:`PATIENCE` seconds; any other error becomes one line. Rows are
written by :mod:`spark_sink.sinks.bigquery.writing.writer`.
"""

import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from uuid import uuid4

import requests
from google.api_core import exceptions, retry
from google.auth import exceptions as auth_exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from connector.core.health.retries import Cause
from connector.core.timestamps import SECOND
from connector.credentials import why_unusable
from connector.proxies import direct_session, https_proxy, is_of_proxy
from connector.proxies import hint as proxy_hint
from connector.telemetry.retrying import Attempts, attempts
from spark_sink.errors import DestinationUnavailableError, PermanentError, SinkError
from spark_sink.sinks.bigquery.jobs import TIMEOUT, Before, BigQueryJobs, is_transient, reasons_in
from spark_sink.sinks.bigquery.refusals import QUOTA, BigQueryRefusal, refusal
from spark_sink.sinks.bigquery.resources import (
    dataset_resource,
    load_defaults,
    query_defaults,
    schema_field,
    staged_field,
    table_resource,
)
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTarget, Field

PATIENCE = 600.0
"""Seconds for which transient errors are retried."""

_HOST = "bigquery.googleapis.com"
_BROKEN = 500
"""HTTP codes from here on are of a server that fails, whatever it says."""
_PERMISSION = re.compile(r"\bbigquery\.[a-zA-Z]+\.[a-zA-Z]+")
_RETRIED = "Look at BigQuery's quotas and status page, and at the network. It is retried, and nothing is lost."
_ATTEMPTS = 5
_ERRORS = (exceptions.GoogleAPIError, auth_exceptions.GoogleAuthError, requests.exceptions.RequestException)
_STANDARD = {"INTEGER": "INT64", "FLOAT": "FLOAT64", "BOOLEAN": "BOOL", "RECORD": "STRUCT"}
"""GoogleSQL's names of types that the REST API calls something else."""


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """A table that exists: its columns by name in small letters, its key, and its max_staleness.

    ``clustering`` holds the columns that it is clustered by; ``bytes`` is its size, None where it is not known.
    ``collated`` holds the columns, in small letters, whose texts are compared without regard to case.
    ``expires`` and ``requires_filter`` say whether BigQuery deletes old partitions, and refuses queries of all.
    ``with_default`` holds the columns, in small letters, that a statement need not name though they are NOT NULL.
    """

    fields: dict[str, Field]
    primary_key: tuple[str, ...]
    max_staleness: str | None
    clustering: tuple[str, ...] = ()
    bytes: int | None = None
    collated: frozenset[str] = frozenset()
    expires: bool = False
    requires_filter: bool = False
    with_default: frozenset[str] = frozenset()

    def lacks(self, table: BigQueryTable) -> list[Field]:
        """The columns of a table that this one does not have."""
        return [field for field in table.fields if field.name.lower() not in self.fields]


class BigQueryClient:
    """Calls BigQuery.

    Args:
        target: the project and its endpoint.
        patience: seconds for which transient errors are retried.

    Raises:
        SinkError: from every method, if BigQuery refuses or cannot be reached.
    """

    def __init__(self, target: BigQueryTarget, *, patience: float = PATIENCE) -> None:
        self._target = target
        self._retry = retry.Retry(predicate=is_transient, timeout=patience, on_error=_note)
        self._jobs = BigQueryJobs(self._client, patience=patience, note=_note)
        self._locations: dict[str, str] = {}

    def dataset_exists(self, dataset: str) -> bool:
        """True if a dataset exists."""
        with self._errors(f"dataset {dataset}"):
            try:
                self._client().get_dataset(self._dataset(dataset), retry=self._retry, timeout=TIMEOUT)
            except exceptions.NotFound:
                return False
        return True

    def ignores_case(self, dataset: str) -> bool:
        """True if the names of tables in a dataset are case-insensitive. The dataset exists."""
        with self._errors(f"dataset {dataset}"):
            found = self._client().get_dataset(self._dataset(dataset), retry=self._retry, timeout=TIMEOUT)
        return bool(found.is_case_insensitive)

    def create_dataset(self, dataset: str, location: str) -> None:
        """Creates a dataset, unless it exists."""
        made = dataset_resource(self._target, dataset, location)
        with self._errors(f"dataset {dataset}"):
            self._client().create_dataset(made, exists_ok=True, retry=self._retry, timeout=TIMEOUT)

    def find(self, dataset: str, name: str) -> ExistingTable | None:
        """A table, or None where it does not exist."""
        with self._errors(f"table {dataset}.{name}"):
            try:
                found = self._client().get_table(self._table(dataset, name), retry=self._retry, timeout=TIMEOUT)
            except exceptions.NotFound:
                return None
        constraints = found.table_constraints
        key = constraints.primary_key.columns if constraints and constraints.primary_key else []
        return ExistingTable(
            {field.name.lower(): _field(field) for field in found.schema},
            tuple(key),
            found.max_staleness,
            tuple(found.clustering_fields or ()),
            found.num_bytes,
            frozenset(field.name.lower() for field in found.schema if field.to_api_repr().get("collation")),
            expires=found.time_partitioning is not None and bool(found.time_partitioning.expiration_ms),
            requires_filter=bool(found.require_partition_filter),
            with_default=frozenset(field.name.lower() for field in found.schema if field.default_value_expression),
        )

    def names(self, dataset: str) -> list[str]:
        """The names of the tables and views of a dataset, sorted; none if it does not exist."""
        with self._errors(f"dataset {dataset}"):
            listed = self._client().list_tables(self._dataset(dataset), retry=self._retry, timeout=TIMEOUT)
            try:
                return sorted(str(table.table_id) for table in listed)
            except exceptions.NotFound:
                return []

    def create(self, table: BigQueryTable) -> None:
        """Creates a table with its key, clustering and partitioning, unless it exists."""
        made = table_resource(self._target, table)
        with self._errors(f"table {table.dataset}.{table.name}"):
            self._client().create_table(made, exists_ok=True, retry=self._retry, timeout=TIMEOUT)

    def add_columns(self, table: BigQueryTable, fields: list[Field]) -> None:
        """Adds nullable columns to a table, which another client may change at the same time."""
        with self._errors(f"table {table.dataset}.{table.name}"):
            client = self._client()
            for attempt in range(_ATTEMPTS):
                found = client.get_table(self._table(table.dataset, table.name), retry=self._retry, timeout=TIMEOUT)
                there = {field.name.lower() for field in found.schema}
                new = [schema_field(field) for field in fields if field.name.lower() not in there]
                if not new:
                    return
                found.schema = [*found.schema, *new]
                try:
                    client.update_table(found, ["schema"], retry=self._retry, timeout=TIMEOUT)
                except exceptions.PreconditionFailed:
                    if attempt + 1 == _ATTEMPTS:
                        raise

    def set_max_staleness(self, table: BigQueryTable, staleness: int) -> None:
        """Sets how old, in nanoseconds, the result of a query may be; only DDL can do that."""
        self.query(
            f"ALTER TABLE `{self._table(table.dataset, table.name)}`"
            f" SET OPTIONS (max_staleness = INTERVAL {staleness // SECOND} SECOND)",
            table.dataset,
            table.name,
        )

    def query(
        self, sql: str, dataset: str, name: str, *, job_id: str | None = None, before: Before | None = None
    ) -> None:
        """Runs a statement on a table to its end; its errors never hold values of rows.

        One that reads rows has a ``job_id``: it is not run again if a job with that id succeeded. ``before`` is called
        with each id before a job is started under it: ``job_id``, with a suffix after a failure.
        """
        with self._errors(f"table {dataset}.{name}", job_id):
            location = self._location(dataset)
            self._jobs.run(
                job_id,
                location,
                lambda job: self._client().query(
                    sql, job_id=job, location=location, retry=self._retry, job_retry=None, timeout=TIMEOUT
                ),
                before,
            )

    def settle(self, job_id: str, dataset: str, name: str) -> None:
        """Waits until a job on a table has ended; prevents it if it was never started (:meth:`BigQueryJobs.settle`)."""
        with self._errors(f"table {dataset}.{name}", job_id):
            self._jobs.settle(job_id, self._location(dataset))

    def has_succeeded(self, job_id: str, dataset: str, name: str) -> bool:
        """True if a job on a table has succeeded, under that id or with a suffix; one that runs is waited for."""
        with self._errors(f"table {dataset}.{name}", job_id):
            return self._jobs.has_succeeded(job_id, self._location(dataset))

    def texts(self, sql: str, dataset: str, name: str) -> list[str]:
        """The result of a statement with one column of texts."""
        with self._errors(f"table {dataset}.{name}"):
            location = self._location(dataset)
            job = self._client().query(sql, location=location, retry=self._retry, timeout=TIMEOUT)
            return [str(row[0]) for row in job.result(retry=self._retry)]

    def rows(self, sql: str, dataset: str, name: str) -> Iterator[tuple[Any, ...]]:
        """The result of a statement that reads rows, a page in memory at a time; errors never hold their values."""
        job_id = f"spanner-cdc-verify-{uuid4()}"
        with self._errors(f"table {dataset}.{name}", job_id):
            location = self._location(dataset)
            job = self._client().query(
                sql, job_id=job_id, location=location, retry=self._retry, job_retry=None, timeout=TIMEOUT
            )
            for row in job.result(retry=self._retry):
                yield row.values()

    def load(
        self, dataset: str, name: str, fields: list[Field], rows: bytes, *, job_id: str, read_by: str = ""
    ) -> None:
        """Creates a table of these rows, lines of JSON, or replaces it; likewise once for a job's id.

        A table that is gone is loaded again, unless the job ``read_by`` has succeeded, which is the last to read it.
        """
        config = bigquery.LoadJobConfig(
            schema=[staged_field(field) for field in fields],
            source_format=bigquery.SourceFormat.NEWLINE_DELIMITED_JSON,
            write_disposition=bigquery.WriteDisposition.WRITE_TRUNCATE,
        )
        table = self._table(dataset, name)

        def is_lost() -> bool:
            if not read_by or self.find(dataset, name) is not None:
                return False
            return not self._jobs.has_succeeded(read_by, self._location(dataset))

        with self._errors(f"table {dataset}.{name}", job_id):
            location = self._location(dataset)
            self._jobs.run(
                job_id,
                location,
                lambda job: self._client().load_table_from_file(
                    BytesIO(rows),
                    table,
                    size=len(rows),
                    job_id=job,
                    location=location,
                    job_config=config,
                    timeout=TIMEOUT,
                ),
                is_lost=is_lost,
            )

    def delete(self, dataset: str, name: str) -> None:
        """Deletes a table, if it exists."""
        with self._errors(f"table {dataset}.{name}"):
            self._client().delete_table(
                self._table(dataset, name), not_found_ok=True, retry=self._retry, timeout=TIMEOUT
            )

    def _location(self, dataset: str) -> str:
        """The region of a dataset: its jobs are found only there."""
        if dataset not in self._locations:
            found = self._client().get_dataset(self._dataset(dataset), retry=self._retry, timeout=TIMEOUT)
            self._locations[dataset] = found.location
        return self._locations[dataset]

    def _dataset(self, dataset: str) -> str:
        return f"{self._target.project}.{dataset}"

    def _table(self, dataset: str, name: str) -> str:
        return f"{self._target.project}.{dataset}.{name}"

    def _client(self) -> bigquery.Client:
        return _client(self._target, os.getpid())

    @contextmanager
    def _errors(self, what: str, job_of_rows: str | None = None) -> Iterator[None]:
        # The message of a job that reads rows may hold their values.
        words = None if job_of_rows is None else f"bq show --job {job_of_rows} shows why"
        line = f"cannot use BigQuery's {what}"
        with attempts(lambda error: cause_of(error, line, words), what) as tried:
            before = _TRIED.set(tried)
            try:
                yield
            except _ERRORS as error:
                why, hint, is_final = reason_of(error, words)
                raise _kind(error, is_final=is_final)(f"{line}: {why}", hint=hint) from None
            finally:
                _TRIED.reset(before)


_TRIED: ContextVar[Attempts | None] = ContextVar("what this thread asks of BigQuery", default=None)


def _note(error: Exception) -> None:
    """A call of Google's library has failed, and is sent again by it."""
    if (tried := _TRIED.get()) is not None:
        tried.failed(error)


def _kind(error: Exception, *, is_final: bool) -> type[SinkError]:
    """The error to raise: a sink starts again after transient ones, and never after final ones."""
    if is_final:
        return PermanentError
    is_unanswered = isinstance(error, exceptions.RetryError) or is_transient(error)
    return DestinationUnavailableError if is_unanswered else SinkError


def cause_of(error: BaseException, what: str, words: str | None = None) -> Cause:
    """The cause of a retry: ``what`` fails, for the reason of :func:`reason_of`."""
    return Cause(what, detail=reason_of(error, words).why, hint=_RETRIED)


def reason_of(error: BaseException, words: str | None = None, *, code: str = "") -> BigQueryRefusal:
    """The meaning of an exception of Google's clients.

    Args:
        error: the exception.
        words: replace its message, which may hold values.
        code: the name of a StorageErrorCode, of rows that were written.
    """
    if isinstance(error, exceptions.RetryError) and error.cause is not None:
        error = error.cause
    if is_of_proxy(error) and (proxy := https_proxy(_HOST)):
        return BigQueryRefusal("it cannot be reached", f"{proxy_hint(proxy)} Nothing is lost.")
    if isinstance(error, exceptions.GoogleAPICallError) and (error.code or 0) < _BROKEN:
        known = {*reasons_in(error), str(error.reason or ""), code}
        found = refusal(known, str(error.message or ""), has_values=isinstance(error, exceptions.BadRequest))
        if found is not None:
            return found
    return BigQueryRefusal(*_meaning(error, words))


def _meaning(error: BaseException, words: str | None) -> tuple[str, str]:
    match error:
        case auth_exceptions.DefaultCredentialsError() | auth_exceptions.MalformedError():
            why, hint = why_unusable()
            return why, f"{hint}."
        case auth_exceptions.TransportError():
            return "Google's credentials cannot be fetched", "Check the network and run it again: nothing is lost."
        case auth_exceptions.GoogleAuthError() | exceptions.Unauthorized():
            return "the Google credentials are not accepted", "Renew them and run it again: nothing is lost."
        case exceptions.Forbidden():
            denied = _PERMISSION.search(str(error.message or ""))
            return f"permission denied{f' ({denied[0]})' if denied else ''}", (
                "Give this account roles/bigquery.dataEditor on the dataset and roles/bigquery.jobUser on the project,"
                " and run it again: nothing is lost."
            )
        case exceptions.TooManyRequests():
            return QUOTA.why, QUOTA.hint
        case exceptions.NotFound():
            return "it does not exist", "Restore it and run it again: nothing is lost."
        case exceptions.BadRequest():
            return (
                f"it rejects the request ({words or _first_line(error)})",
                "Correct that and run it again: nothing is lost.",
            )
        case exceptions.GoogleAPICallError():
            return f"it answers {error.code}", "Run it again later: nothing is lost."
        case _:
            return "it cannot be reached", "Check the network and sink.endpoint, and run it again: nothing is lost."


def _first_line(error: exceptions.GoogleAPICallError) -> str:
    lines = (error.message or "").splitlines()
    return lines[0][:300] if lines else "without a message"


def _field(field: bigquery.SchemaField) -> Field:
    kind = _STANDARD.get(field.field_type, field.field_type)
    return Field(
        field.name,
        kind,
        field.mode == "REPEATED",
        field.mode == "REQUIRED",
        tuple(_field(inner) for inner in field.fields),
        tuple(int(each) for each in (field.max_length, field.precision, field.scale) if each is not None),
    )


@functools.cache
def _client(target: BigQueryTarget, process: int) -> bigquery.Client:
    """A client of this process; a forked child needs its own connections."""
    assert process
    return connected(target)


def connected(target: BigQueryTarget) -> bigquery.Client:
    """A new client, whose jobs the billed project runs; one of an emulator sends no credentials and uses no proxy."""
    return bigquery.Client(
        project=target.billing_project or target.project,
        default_query_job_config=query_defaults(target),
        default_load_job_config=load_defaults(target),
        credentials=AnonymousCredentials() if target.is_emulated else None,
        client_options={"api_endpoint": target.endpoint.rstrip("/")} if target.endpoint else None,
        _http=direct_session() if target.is_emulated else None,
    )
