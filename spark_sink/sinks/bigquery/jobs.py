"""Runs BigQuery's jobs: once for an id, again after a transient error, and never before a job that must precede it.

A job's id is taken permanently, whether the job succeeded or failed. So a job that has succeeded is not run again,
whoever asks, unless what it wrote is lost; and a job that failed is run again under its id with a suffix.
"""

import time
from collections.abc import Callable

import requests
import tenacity
from google.api_core import exceptions, retry
from google.auth import exceptions as auth_exceptions
from google.cloud import bigquery

from connector.log import Log
from spark_sink.errors import SinkError

TIMEOUT = 60.0
"""Seconds for a request."""

PREVENTED_AFTER = 10.0
"""Seconds for which a job that does not exist is waited for, because its process may be about to start it."""

_PREVENTING = "SELECT ERROR('its process was taken for ended before it had started this job')"
_POLL = 0.5

LONGEST_JOB = 7 * 3600.0
"""Seconds for which a running job is waited for; BigQuery ends one after six hours."""

_REPORTED_AFTER = 10.0
"""Seconds of waiting after which a line says so."""

_log = Log(__name__)

QUOTA_REASONS = {"quotaExceeded", "rateLimitExceeded", "jobRateLimitExceeded"}
_TRANSIENT = {"backendError", "internalError", "badGateway", "jobBackendError", "jobInternalError", "tableUnavailable"}
_TRANSIENT_ERRORS = (
    ConnectionError,
    auth_exceptions.TransportError,
    exceptions.BadGateway,
    exceptions.GatewayTimeout,
    exceptions.InternalServerError,
    exceptions.ServiceUnavailable,
    exceptions.TooManyRequests,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
)

_Job = bigquery.LoadJob | bigquery.QueryJob | bigquery.CopyJob | bigquery.ExtractJob | bigquery.UnknownJob
Start = Callable[[str | None], bigquery.LoadJob | bigquery.QueryJob]
Before = Callable[[str], object]


class BigQueryJobs:
    """Runs jobs.

    Args:
        client: BigQuery's client of this process.
        patience: seconds for which transient errors are retried.
        note: takes each error after which something is tried again.
    """

    def __init__(
        self,
        client: Callable[[], bigquery.Client],
        *,
        patience: float,
        note: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._patience = patience
        self._retry = retry.Retry(predicate=is_transient, timeout=patience, on_error=note)
        self._note = note

    def run(
        self,
        job_id: str | None,
        location: str,
        start: Start,
        before: Before | None = None,
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        """Runs a job to its end, again after a transient error. A failed job's id is taken, so it gets a suffix.

        ``before`` is called with each id before a job is started under it. ``is_lost`` is called for a job that has
        succeeded earlier; if what it wrote is lost, it runs again likewise.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_transient),
            wait=tenacity.wait_random_exponential(multiplier=0.5, max=60),
            stop=tenacity.stop_after_delay(self._patience),
            before_sleep=self._failed,
            reraise=True,
        )

        def once() -> None:
            number = 0
            while True:
                name = _attempt(job_id, number) if job_id else None
                if before is not None and name is not None:
                    before(name)
                try:
                    job = start(name)
                except exceptions.Conflict:
                    assert job_id is not None
                    known = self._get(_attempt(job_id, number), location)
                    number, known = self._ended(job_id, number, known, location)
                    if known.error_result or is_lost():
                        number += 1
                        continue
                else:
                    job.result(retry=self._retry)
                return

        retrying(once)

    def _failed(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Exception):
            self._note(error)

    def has_succeeded(self, job_id: str, location: str) -> bool:
        """True if a job has succeeded, under its id or with a suffix; one that runs is waited for."""
        job = self._found(job_id, location)
        if job is None:
            return False
        return not self._ended(job_id, 0, job, location)[1].error_result

    def _ended(self, job_id: str, number: int, job: _Job, location: str) -> tuple[int, _Job]:
        """Waits until an attempt has ended, and if it failed, the newest one: its number, and its job.

        An attempt exists only after the one before it has failed. So the newest is found in steps that double, because
        a job that fails at each start of the sink has many.
        """
        self._wait(job)
        if not job.error_result:
            return number, job
        step = 1
        while (later := self._found(_attempt(job_id, number + step), location)) is not None:
            number, job, step = number + step, later, step * 2
        while step > 1:
            step //= 2
            later = self._found(_attempt(job_id, number + step), location)
            if later is not None:
                number, job = number + step, later
        self._wait(job)
        return number, job

    def _found(self, name: str, location: str) -> _Job | None:
        """A job, or None where it does not exist."""
        try:
            return self._get(name, location)
        except exceptions.NotFound:
            return None

    def _get(self, name: str, location: str) -> _Job:
        return self._client().get_job(name, location=location, retry=self._retry, timeout=TIMEOUT)

    def settle(self, job_id: str, location: str) -> None:
        """Waits until a job has ended. One that does not exist is prevented: it can never run under this id.

        Preventing it takes its id with a job that fails. A process that is slow to start it finds a failed job, and
        continues under the next id.
        """
        deadline = time.monotonic() + PREVENTED_AFTER
        while (job := self._found(job_id, location)) is None:
            if time.monotonic() >= deadline:
                self._prevent(job_id, location)
            else:
                time.sleep(_POLL)
        self._wait(job)

    def _prevent(self, job_id: str, location: str) -> None:
        """Takes a job's id with a job that fails, unless the job exists by now."""
        try:
            job = self._client().query(
                _PREVENTING, job_id=job_id, location=location, retry=self._retry, job_retry=None, timeout=TIMEOUT
            )
        except exceptions.Conflict:
            return
        self._wait(job)
        if not job.error_result:  # it would be taken for the other process's work
            raise SinkError(
                f"BigQuery ran job {job_id}, which had to fail",
                hint="Report this, and compare the table that the job's name holds with its source.",
            )

    def _wait(self, job: _Job) -> None:
        """Waits until a job has ended, whether it succeeded or failed."""
        started, is_reported = time.monotonic(), False
        while not job.done(retry=self._retry, timeout=TIMEOUT):
            waited = time.monotonic() - started
            if waited > LONGEST_JOB:
                raise SinkError(
                    f"job {job.job_id} of BigQuery has not ended for {waited / 3600:.0f} hours",
                    hint=f"Cancel it with `bq cancel {job.job_id}`, and run it again: nothing is lost.",
                )
            if waited > _REPORTED_AFTER and not is_reported:
                is_reported = True
                _log.info("waiting for a job of BigQuery to end", job=job.job_id)
            time.sleep(_POLL)


def _attempt(job_id: str, number: int) -> str:
    """The id of a job's attempt with that number, from 0 on."""
    return f"{job_id}_{number}" if number else job_id


def is_transient(error: BaseException) -> bool:
    """True if the error is transient."""
    if isinstance(error, exceptions.GoogleAPICallError) and reasons_in(error):
        return bool(reasons_in(error) & (_TRANSIENT | QUOTA_REASONS))
    return isinstance(error, _TRANSIENT_ERRORS)


def reasons_in(error: exceptions.GoogleAPICallError) -> set[str]:
    """BigQuery's words for what an error means."""
    return {str(each.get("reason")) for each in error.errors if isinstance(each, dict)}
