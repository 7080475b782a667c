"""A job whose id another process has taken runs under the next one, once that job has ended."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from google.api_core import exceptions
from google.cloud import bigquery

from connector.log import Log
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery import jobs
from spark_sink.sinks.bigquery.jobs import BigQueryJobs


@dataclass
class Job:
    """A job of BigQuery that is done after so many requests."""

    job_id: str
    polls: int = 0
    error_result: dict[str, str] | None = None

    def done(self, **_: Any) -> bool:
        self.polls -= 1
        return self.polls < 0

    def result(self, **_: Any) -> None:
        self.polls = 0
        if self.error_result:
            raise exceptions.BadRequest("its process was taken for ended before it had started this job")


@dataclass
class Taken:
    """BigQuery's client, for which some ids are taken; ``started`` are those that were not."""

    known: dict[str, Job]
    started: list[str] = field(default_factory=list)
    requests: int = 0

    def get_job(self, job_id: str, **_: Any) -> Job:
        self.requests += 1
        if job_id not in self.known:
            raise exceptions.NotFound("Not found: Job")
        return self.known[job_id]

    def start(self, job_id: str | None) -> bigquery.QueryJob:
        self.requests += 1
        assert job_id is not None
        if job_id in self.known:
            raise exceptions.Conflict("Already Exists")
        self.started.append(job_id)
        return cast("bigquery.QueryJob", Job(job_id))

    def run(self, *, is_lost: bool = False) -> None:
        BigQueryJobs(lambda: cast("bigquery.Client", self), patience=1.0).run(
            "job", "US", self.start, is_lost=lambda: is_lost
        )


@pytest.fixture(autouse=True)
def polled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_POLL", 0.0)


def preventing(polls: int) -> Job:
    return Job("job", polls, {"reason": "invalidQuery"})


def test_a_job_that_is_being_prevented_runs_under_the_next_id_once_that_has_ended() -> None:
    taken = Taken({"job": preventing(3)})
    taken.run()
    assert taken.started == ["job_1"]
    assert taken.known["job"].polls < 0


def test_a_job_of_an_earlier_attempt_that_still_runs_and_succeeds_is_not_run_again() -> None:
    taken = Taken({"job": Job("job", 3)})
    taken.run()
    assert taken.started == []


def test_a_job_whose_result_is_lost_runs_again() -> None:
    taken = Taken({"job": Job("job")})
    taken.run(is_lost=True)
    assert taken.started == ["job_1"]


@pytest.mark.parametrize("failures", [*range(1, 40), 1000])
def test_a_job_that_has_failed_often_runs_under_the_next_id_after_few_requests(failures: int) -> None:
    """Each start of the sink tried all former ids again, so that its work grew with every failure."""
    failed = {name: preventing(0) for name in ["job", *(f"job_{number}" for number in range(1, failures))]}
    taken, named = Taken(failed), list[str]()
    made = BigQueryJobs(lambda: cast("bigquery.Client", taken), patience=1.0)
    assert not made.has_succeeded("job", "US")
    taken.requests = 0
    made.run("job", "US", taken.start, named.append)
    assert (taken.started, named) == ([f"job_{failures}"], ["job", f"job_{failures}"])
    assert taken.requests <= 3 + 2 * failures.bit_length()
    taken.known[f"job_{failures}"] = Job("job", 2)
    assert made.has_succeeded("job", "US")
    made.run("job", "US", taken.start)
    assert taken.started == [f"job_{failures}"], "it has succeeded"


def test_a_job_that_does_not_end_is_reported_and_then_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(jobs, "_REPORTED_AFTER", 0.0)
    monkeypatch.setattr(jobs, "LONGEST_JOB", 0.02)
    monkeypatch.setattr(Log, "info", lambda _, text, **fields: said.append(f"{text} {fields['job']}"))
    with pytest.raises(SinkError, match=r"job job of BigQuery has not ended for .*Cancel it with `bq cancel job`"):
        Taken({"job": preventing(10**9)}).run()
    assert said == ["waiting for a job of BigQuery to end job"]
