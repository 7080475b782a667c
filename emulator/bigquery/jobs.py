"""The jobs of the BigQuery double, which run the statements that it supports (`emulator.bigquery.statements`).

On request it counts load jobs and MERGE statements, for which it only creates the tables. A job is done when it is
created. Its id cannot be used again, whether it succeeded or failed.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from emulator.bigquery.catalog import Catalog
from emulator.bigquery.meter import LEAST_SCANNED, LOADS, MERGES, SCANNED, Meter
from emulator.bigquery.refusals import Reason, RefusedError, invalid
from emulator.bigquery.schema import Json
from emulator.bigquery.statements import read
from emulator.bigquery.table_resources import TableResources

_MERGE = re.compile(r"MERGE `([^`]+)` \w+ USING (?:\(SELECT .*? FROM )?`([^`]+)`", re.DOTALL)
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,1024}")
_EVERYWHERE = ("US", "EU")  # a job there is found without its location


@dataclass(frozen=True, slots=True)
class _Job:
    resource: Json
    location: str
    refusal: RefusedError | None


class Jobs:
    """All jobs so far; may be called from many threads."""

    def __init__(self, catalog: Catalog, meter: Meter | None = None) -> None:
        self._catalog = catalog
        self._meter = meter
        self._jobs: dict[str, _Job] = {}
        self._numbers = itertools.count(1)

    def insert(self, resource: Json) -> Json:
        """Runs a job.

        Raises:
            RefusedError: the statement is not supported, or the id is invalid or was used before.
        """
        reference = resource.get("jobReference") or {}
        job_id = reference.get("jobId")
        if job_id is not None and not _JOB_ID.fullmatch(str(job_id)):
            raise invalid(
                "Job IDs must be alphanumeric (plus underscores and dashes) and at most 1024 characters long."
            )
        configuration = resource.get("configuration") or {}
        query = configuration.get("query")
        if self._meter is not None and "load" in configuration:
            return self._load(resource, configuration)
        if query is None or configuration.get("dryRun"):
            raise RefusedError(Reason.NOT_IMPLEMENTED, "The double supports only query jobs, and no dry runs")
        return self._run(query, configuration, job_id, reference.get("location")).resource

    def query(self, request: Json) -> Json:
        """Runs a query and waits for it."""
        configuration = {"query": {"query": request.get("query"), "useLegacySql": request.get("useLegacySql", True)}}
        job = self._run(configuration["query"], configuration, None, request.get("location"))
        return self._results(job, "bigquery#queryResponse")

    def get(self, job_id: str, location: str | None) -> Json:
        """Returns a job's resource."""
        return self._find(job_id, location).resource

    def results(self, job_id: str, location: str | None) -> Json:
        """Returns a query's results; raises the RefusedError of a query that failed."""
        return self._results(self._find(job_id, location), "bigquery#getQueryResultsResponse")

    def _results(self, job: _Job, kind: str) -> Json:
        if job.refusal is not None:
            raise job.refusal
        reference = job.resource["jobReference"]
        return {"kind": kind, "jobReference": reference, "jobComplete": True, "totalRows": "0", "cacheHit": False}

    def _find(self, job_id: str, location: str | None) -> _Job:
        found = self._jobs.get(job_id)
        if found is not None:
            place = found.location.upper()
            if place in _EVERYWHERE if location is None else place == location.upper():
                return found
        raise RefusedError(Reason.NOT_FOUND, f"Not found: Job {self._catalog.project}:{job_id}")

    def _run(self, query: Json, configuration: Json, job_id: str | None, location: str | None) -> _Job:
        if query.get("useLegacySql", True):
            raise RefusedError(Reason.INVALID_QUERY, "The double supports only GoogleSQL: set useLegacySql to false")
        text = str(query.get("query") or "")
        statement = read(text)
        merge = _MERGE.match(text) if self._meter is not None else None
        project, dataset = statement.project, statement.dataset
        if project and project != self._catalog.project:
            raise RefusedError(
                Reason.ACCESS_DENIED, f"Access Denied: Project {project}: User does not have permission."
            )
        with self._catalog.lock:
            job_id = job_id or f"job_{next(self._numbers)}"
            if job_id in self._jobs:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Job {project}:{location or 'US'}.{job_id}")
            place = str(self._catalog.datasets.get(dataset, {}).get("location", "US"))
            refusal = None
            try:
                self._check_location(dataset, place, location)
                if merge is not None:
                    self._merge(merge)
                else:
                    statement.run(self._catalog)
            except RefusedError as error:
                refusal = error
            return self._done(job_id, location or place, configuration, refusal)

    def _load(self, resource: Json, configuration: Json) -> Json:
        """Counts a load job, and creates its table."""
        assert self._meter is not None
        destination = configuration["load"]["destinationTable"]
        dataset, name = destination["datasetId"], destination["tableId"]
        with self._catalog.lock:
            place = str(self._catalog.dataset(dataset)["location"])
            job_id = str(resource["jobReference"]["jobId"])
            if job_id in self._jobs:
                raise RefusedError(Reason.DUPLICATE, f"Already Exists: Job {self._catalog.project}:{place}.{job_id}")
            self._meter.count(LOADS)
            reference = {"tableReference": destination, "schema": configuration["load"]["schema"]}
            TableResources(self._catalog).insert(dataset, reference)
            self._catalog.known(dataset, name).bytes = int(resource.get("uploaded", 0))
            return self._done(job_id, place, configuration, None, kind="LOAD").resource

    def _merge(self, match: re.Match[str]) -> None:
        """Counts a MERGE statement and the bytes that it scans, those of both tables."""
        assert self._meter is not None
        self._meter.count(MERGES)
        for path in match.groups():
            _, dataset, table = path.split(".")
            self._meter.count(SCANNED, max(self._catalog.table(dataset, table).bytes, LEAST_SCANNED))

    def _check_location(self, dataset: str, place: str, location: str | None) -> None:
        if location is not None and location.upper() != place.upper():
            label = f"{self._catalog.project}:{dataset}"
            raise RefusedError(Reason.NOT_FOUND, f"Not found: Dataset {label} was not found in location {location}")

    def _done(
        self, job_id: str, location: str, configuration: Json, refusal: RefusedError | None, *, kind: str = "QUERY"
    ) -> _Job:
        status: dict[str, Any] = {"state": "DONE"}
        if refusal is not None:
            error = {"reason": refusal.reason.word, "message": refusal.message}
            status |= {"errorResult": error, "errors": [error]}
        resource = {
            "kind": "bigquery#job",
            "id": f"{self._catalog.project}:{location}.{job_id}",
            "jobReference": {"projectId": self._catalog.project, "jobId": job_id, "location": location},
            "configuration": {**configuration, "jobType": kind},
            "status": status,
            "statistics": {"query": {"statementType": "ALTER_TABLE"}},
        }
        self._jobs[job_id] = _Job(resource, location, refusal)
        return self._jobs[job_id]
