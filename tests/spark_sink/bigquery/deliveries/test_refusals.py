"""What BigQuery refuses as a whole: a permission, a dataset, a server that is unwell. On the double, without Spark.

One clear line, nothing lost; what may pass is tried again, whether or not the work was done.
"""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud import bigquery
from google.cloud.bigquery_storage_v1 import types
from google.protobuf.any_pb2 import Any as Any_

from connector.core.records import ColumnType
from emulator.bigquery.double import BigQueryDouble
from spark_sink.bigquery import writer as bigquery_writer
from spark_sink.bigquery.client import BigQueryClient, reason_of
from spark_sink.bigquery.commit_log import StreamsEntry
from spark_sink.bigquery.writer import BigQueryWriter
from spark_sink.errors import SinkError
from tests.spark_sink.bigquery.deliveries.trials import MakeTrial, Sealing, at, ids_of, line_of, sized
from tests.spark_sink.bigquery.deliveries.trials import make as make
from tests.spark_sink.spools import KEY, NAME

STREAMED = ("append-only", "changelog", "merge")
BORN = ColumnType("Born", '{"code":"INT64"}', False, 3)


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between attempts."""
    at_once = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr("tenacity.nap.time", at_once)
    monkeypatch.setattr("google.api_core.retry.retry_unary.time", at_once)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is not waited for."""
    for owner in (BigQueryWriter, BigQueryClient):
        defaults = owner.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "patience", 0.0)


# Datasets and permissions


@pytest.mark.parametrize("mode", STREAMED)
def test_a_dataset_that_is_missing_is_told_of_or_made_where_a_location_is_given(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode, location=None)
    seal = Sealing(trial)
    seal([1])
    for _ in range(2):
        line = line_of(trial)
        assert line.startswith(f"there is no dataset {trial.dataset} in BigQuery")
        assert f"bq mk --location=LOCATION --dataset {trial.server.project}:{trial.dataset}" in line
    trial.options["location"] = "EU"
    trial.run()
    assert ids_of(trial) == [1]
    assert trial.client.get_dataset(trial.dataset).location == "EU"


@pytest.mark.parametrize("mode", STREAMED)
def test_a_permission_that_is_revoked_is_one_line_and_once_it_is_given_again_every_row_comes_once(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str
) -> None:
    trial = make(bigquery_double, mode)
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2])
    name = trial.place("Singers")[1]
    bigquery_double.deny(trial.dataset)  # before it begins
    line = line_of(trial)
    assert line.startswith(f"cannot use BigQuery's table {trial.dataset}.{name}: permission denied. Give this account")
    bigquery_double.allow(trial.dataset)
    for commits in {False, mode != "merge"}:  # while it writes, and before it commits
        with trial.life() as life:
            assert life.plan()
            tasks = life.tasks()
            told = [row for task in tasks for row in life.told(task)] if commits else []
            bigquery_double.deny(trial.dataset, name)
            with pytest.raises(SinkError) as raised:
                life.deliver(told) if commits else list(life.told(tasks[0]))
        assert str(raised.value).startswith(f"cannot write table {trial.dataset}.{name} of BigQuery: permission denied")
        bigquery_double.allow(trial.dataset, name)
    trial.run()
    assert ids_of(trial) == [1, 2]


# What may pass


FAILURES = [
    *((kind, "AppendRows") for kind in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "ABORTED", "UNKNOWN")),
    ("DEADLINE_EXCEEDED", "AppendRows"),
    ("CANCELLED", "AppendRows"),
    *(("UNAVAILABLE", method) for method in ("CreateWriteStream", "FinalizeWriteStream", "BatchCommitWriteStreams")),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "method"), FAILURES)
def test_what_may_pass_is_tried_again_whether_or_not_the_work_was_done_and_rows_come_once(
    bigquery_double: BigQueryDouble, make: MakeTrial, kind: str, method: str, after: bool
) -> None:
    modes = ("append-only", "merge") if method == "AppendRows" else ("append-only",)
    for mode in modes:
        trial = make(bigquery_double, mode)
        seal = Sealing(trial)
        seal(range(3))
        seal(range(3, 6))
        bigquery_double.fail_next(kind, 2, method=method, after=after)
        with sized(piece=1):
            trial.run()
        assert (ids_of(trial), bigquery_double.failures_left()) == (list(range(6)), 0)


@pytest.mark.parametrize("kind", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "SCHEMA_MISMATCH_EXTRA_FIELDS"])
@pytest.mark.parametrize("mode", STREAMED)
def test_what_an_answer_tells_that_may_pass_is_tried_again(
    bigquery_double: BigQueryDouble, make: MakeTrial, mode: str, kind: str
) -> None:
    """A column that was just added is not known to the Storage Write API for minutes."""
    trial = make(bigquery_double, mode)
    Sealing(trial)(range(3))
    bigquery_double.fail_next(kind, 2, in_band=True)
    trial.run()
    assert (ids_of(trial), bigquery_double.failures_left()) == ([0, 1, 2], 0)


def extra_fields() -> Any:
    """The detail of an error that tells of a column which the table lacks."""
    told = Any_()
    told.Pack(types.StorageError.pb(types.StorageError(code="SCHEMA_MISMATCH_EXTRA_FIELDS")))
    return told


@pytest.mark.parametrize(
    "error",
    [
        exceptions.InvalidArgument("no", details=[extra_fields()]),
        exceptions.InvalidArgument("Input schema has more fields: extra proto fields"),
    ],
    ids=["details", "words"],
)
def test_a_call_that_ends_for_a_column_that_is_not_known_yet_is_tried_again(
    bigquery_double: BigQueryDouble, make: MakeTrial, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trial = make(bigquery_double, "append-only")
    Sealing(trial)([1])
    errors = [error]
    answer = bigquery_writer._Answers.__next__

    def ending(answers: bigquery_writer._Answers) -> types.AppendRowsResponse:
        if errors:
            raise errors.pop()
        return answer(answers)

    monkeypatch.setattr(bigquery_writer._Answers, "__next__", ending)
    trial.run()
    assert (ids_of(trial), errors) == ([1], [])


@pytest.mark.parametrize(
    ("status", "method"),
    [
        *((status, "tables.get") for status in (429, 500, 502)),
        *((503, f"tables.{verb}") for verb in ("get", "insert", "patch")),
        *((503, f"datasets.{verb}") for verb in ("get", "insert")),
    ],
)
def test_rest_is_asked_again_where_it_may_pass(
    bigquery_double: BigQueryDouble, make: MakeTrial, status: int, method: str
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    if method != "tables.patch":
        bigquery_double.fail_next(status, 2, method=method)
    seal([1])
    trial.run()
    if method == "tables.patch":
        bigquery_double.fail_next(status, 2, method=method)
    seal([2], columns=(KEY, NAME, BORN), values={"Name": "n", "Born": "1"})
    trial.run()
    assert bigquery_double.failures_left() == 0
    assert {row["Id"]: row["Born"] for row in trial.rows("Singers")} == {1: None, 2: 1}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["jobs.insert", "jobs.query", "jobs.get"])
def test_a_statement_is_run_again_where_it_may_pass(
    bigquery_double: BigQueryDouble, make: MakeTrial, method: str, after: bool
) -> None:
    trial = make(bigquery_double, "merge")
    Sealing(trial)([1])
    bigquery_double.fail_next(503, method=method, after=after)
    trial.run()
    assert ids_of(trial) == [1]
    assert bigquery_double.table(*trial.place("Singers")).max_staleness is not None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (exceptions.ServiceUnavailable, "backendError"),
        (exceptions.InternalServerError, "internalError"),
        (exceptions.Forbidden, "jobRateLimitExceeded"),
        (exceptions.Forbidden, "quotaExceeded"),
    ],
)
def test_a_job_that_failed_of_what_may_pass_is_run_again(
    bigquery_double: BigQueryDouble,
    make: MakeTrial,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[exceptions.GoogleAPICallError],
    reason: str,
) -> None:
    failures = [kind("no", errors=[{"reason": reason}]) for _ in range(3)]
    result = bigquery.QueryJob.result

    def failing(job: bigquery.QueryJob, *args: Any, **kwargs: Any) -> object:
        if failures:
            raise failures.pop()
        return result(job, *args, **kwargs)

    monkeypatch.setattr(bigquery.QueryJob, "result", failing)
    trial = make(bigquery_double, "merge")
    Sealing(trial)([1])
    trial.run()
    assert (ids_of(trial), failures) == ([1], [])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("UNAVAILABLE", "it answers 503. Run it again when it is well"),
        ("RESOURCE_EXHAUSTED", "a quota is used up. Run it again later, or raise the quota"),
        (503, "it answers 503. Run it again when it is well"),
        (429, "a quota is used up. Run it again later, or raise the quota"),
    ],
)
def test_what_does_not_pass_is_one_line_after_a_while_and_nothing_is_lost(
    bigquery_double: BigQueryDouble, make: MakeTrial, kind: str | int, told: str
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2])
    bigquery_double.fail_next(kind, 1000, method=None if isinstance(kind, str) else "tables.get")
    line = line_of(trial)
    assert line.startswith("cannot ")
    assert "Singers" in line
    assert f"{told}: nothing is lost." in line
    bigquery_double.forget_failures()
    trial.run()
    assert ids_of(trial) == [1, 2]


def test_a_server_that_is_not_there_is_one_line(
    bigquery_double: BigQueryDouble, make: MakeTrial, impatient: None
) -> None:
    trial = make(bigquery_double, "append-only", endpoint="http://127.0.0.1:9")
    Sealing(trial)([1])
    line = line_of(trial)
    assert "it cannot be reached. Check the network and sink.endpoint, and run it again: nothing is lost." in line


@pytest.mark.parametrize("forgotten", [False, True])
def test_streams_that_expired_before_they_were_committed_are_told_of_and_written_again_as_the_line_says(
    bigquery_double: BigQueryDouble, make: MakeTrial, forgotten: bool
) -> None:
    trial = make(bigquery_double, "append-only")
    seal = Sealing(trial)
    seal([1])
    trial.run()
    seal([2, 3])
    with trial.life() as life:
        at(BigQueryWriter, "commit")(life)
    (expired,) = bigquery_double.pending_streams()
    bigquery_double.expire(expired, forgotten=forgotten)
    line = line_of(trial)
    assert line.startswith(f"streams of table {trial.dataset}.Singers cannot be committed")
    found = re.search(r"If it has none, remove (\S+) in the spool, and they are written again", line)
    assert found is not None
    assert ids_of(trial) == [1]
    Path(trial.maker.path, found[1]).unlink()
    trial.run()
    assert ids_of(trial) == [1, 2, 3]


def test_streams_that_were_committed_and_have_expired_are_not_committed_again(
    bigquery_double: BigQueryDouble, make: MakeTrial
) -> None:
    trial = make(bigquery_double, "append-only")
    Sealing(trial)([1])
    with trial.life() as life:
        at(BigQueryWriter, "commit", after=True)(life)
    assert ids_of(trial) == [1]
    (document,) = Path(trial.maker.path, "bigquery").glob("*.json")
    for stream in StreamsEntry.model_validate_json(document.read_bytes()).streams:
        bigquery_double.expire(stream)
    trial.run()
    assert ids_of(trial) == [1]


def test_a_pending_stream_that_expires_while_it_is_written_is_one_line_and_the_next_run_writes_anew(
    bigquery_double: BigQueryDouble, make: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make(bigquery_double, "append-only")
    Sealing(trial)([1, 2])
    create = BigQueryWriter.create_pending

    def short_lived(writer: BigQueryWriter) -> str:
        stream = create(writer)
        bigquery_double.expire(stream)
        return stream

    with monkeypatch.context() as patch:
        patch.setattr(BigQueryWriter, "create_pending", short_lived)
        line = line_of(trial)
    assert "a pending stream of table" in line
    assert line.endswith("has expired. Run it again: its rows are written anew, and nobody has seen any of them.")
    trial.run()
    assert ids_of(trial) == [1, 2]


# Lines


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (exceptions.Forbidden("x"), "permission denied"),
        (exceptions.PermissionDenied("x"), "permission denied"),
        (exceptions.Forbidden("x", errors=[{"reason": "accessDenied"}]), "permission denied"),
        (exceptions.Forbidden("x", errors=[{"reason": "quotaExceeded"}]), "a quota is used up"),
        (exceptions.Forbidden("x", errors=[{"reason": "rateLimitExceeded"}]), "a quota is used up"),
        (exceptions.RetryError("x", cause=exceptions.ServiceUnavailable("y")), "it answers 503"),
        (exceptions.RetryError("x", cause=exceptions.Forbidden("y")), "permission denied"),
        (exceptions.RetryError("x", cause=None), "it cannot be reached"),
        (exceptions.NotFound("x"), "it is not there"),
        (exceptions.Unauthorized("x"), "the Google credentials are not accepted"),
        (exceptions.BadRequest("a\nb"), "it refuses the request (a)"),
        (exceptions.BadRequest(""), "it refuses the request (it does not say why)"),
        (exceptions.InternalServerError("x"), "it answers 500"),
        (exceptions.ResourceExhausted("x"), "a quota is used up"),
        (auth_exceptions.DefaultCredentialsError("x"), "no Google credentials are found"),
        (auth_exceptions.RefreshError("x"), "the Google credentials are not accepted"),
        (auth_exceptions.TransportError("x"), "Google's credentials cannot be fetched"),
        (requests.exceptions.ConnectionError("x"), "it cannot be reached"),
    ],
)
def test_an_error_is_told_in_words_with_what_to_do(error: Exception, why: str) -> None:
    told, hint = reason_of(error)
    assert (told, hint.endswith(".")) == (why, True)
    assert "(a)" not in reason_of(error, "words")[0]
