"""Errors of BigQuery that concern more than a row: permissions, datasets, an unavailable server. Without Spark.

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
from spark_sink.errors import SinkError
from spark_sink.sinks.bigquery.client import BigQueryClient, reason_of
from spark_sink.sinks.bigquery.commit_log import StreamsEntry
from spark_sink.sinks.bigquery.writing import writer
from spark_sink.sinks.bigquery.writing.writer import BigQueryWriter
from tests.retried import noted_causes, still_retried
from tests.spark_sink.sinks.bigquery.deliveries.scenarios import (
    Delivered,
    MakeScenario,
    Sealing,
    at,
    ids_of,
    line_of,
    sized,
)
from tests.spark_sink.spools import KEY, NAME

STREAMED = ("append-only", "changelog", "merge")
BORN = ColumnType("Born", '{"code":"INT64"}', False, 3)


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries do not wait."""
    at_once = SimpleNamespace(sleep=lambda _: None, monotonic=time.monotonic)
    monkeypatch.setattr("tenacity.nap.time", at_once)
    monkeypatch.setattr("google.api_core.retry.retry_unary.time", at_once)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transient errors are not retried for long."""
    for owner in (BigQueryWriter, BigQueryClient):
        defaults = owner.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "patience", 0.0)


# Datasets and permissions


@pytest.mark.parametrize("mode", STREAMED)
def test_a_dataset_that_is_missing_is_reported_or_made_where_a_location_is_given(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str
) -> None:
    scenario = make_scenario(bigquery_double, mode, location=None)
    seal = Sealing(scenario)
    seal([1])
    for _ in range(2):
        line = line_of(scenario)
        assert line.startswith(f"there is no dataset {scenario.dataset} in BigQuery")
        assert f"bq mk --location=LOCATION --dataset {scenario.server.project}:{scenario.dataset}" in line
    scenario.options["location"] = "EU"
    scenario.run()
    assert ids_of(scenario) == [1]
    assert scenario.client.get_dataset(scenario.dataset).location == "EU"


@pytest.mark.parametrize("mode", STREAMED)
def test_a_permission_that_is_revoked_is_one_line_and_once_it_is_given_again_every_row_comes_once(
    bigquery_double: BigQueryDouble, delivered: Delivered, mode: str
) -> None:
    scenario, seal = delivered(bigquery_double, mode, [1])
    seal([2])
    name = scenario.place("Singers")[1]
    bigquery_double.deny(scenario.dataset)  # before it begins
    line = line_of(scenario)
    assert line.startswith(
        f"cannot use BigQuery's table {scenario.dataset}.{name}: permission denied. Give this account"
    )
    bigquery_double.allow(scenario.dataset)
    for commits in {False, mode != "merge"}:  # while it writes, and before it commits
        with scenario.sink() as sink:
            assert sink.plan()
            tasks = sink.tasks()
            reports = [row for task in tasks for row in sink.reports(task)] if commits else []
            bigquery_double.deny(scenario.dataset, name)
            with pytest.raises(SinkError) as raised:
                sink.deliver(reports) if commits else list(sink.reports(tasks[0]))
        assert str(raised.value).startswith(
            f"cannot write table {scenario.dataset}.{name} of BigQuery: permission denied"
        )
        bigquery_double.allow(scenario.dataset, name)
    scenario.run()
    assert ids_of(scenario) == [1, 2]


# What may pass


FAILURES = [
    *((kind, "AppendRows") for kind in ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "ABORTED", "UNKNOWN")),
    ("DEADLINE_EXCEEDED", "AppendRows"),
    ("CANCELLED", "AppendRows"),
    *(("UNAVAILABLE", method) for method in ("CreateWriteStream", "FinalizeWriteStream", "BatchCommitWriteStreams")),
]


@pytest.mark.long(but=6)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("kind", "method"), FAILURES)
def test_a_transient_error_is_retried_whether_or_not_the_work_was_done_and_rows_come_once(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, kind: str, method: str, after: bool
) -> None:
    modes = ("append-only", "merge") if method == "AppendRows" else ("append-only",)
    for mode in modes:
        scenario = make_scenario(bigquery_double, mode)
        seal = Sealing(scenario)
        seal(range(3))
        seal(range(3, 6))
        bigquery_double.fail_next(kind, 2, method=method, after=after)
        with sized(slice_bytes=1):
            scenario.run()
        assert (ids_of(scenario), bigquery_double.failures_left()) == (list(range(6)), 0)


def test_what_is_retried_is_noted_with_its_table_and_without_a_value_until_it_succeeds(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    Sealing(scenario)([1])
    causes = noted_causes(monkeypatch)
    bigquery_double.fail_next("UNAVAILABLE", 2)
    bigquery_double.fail_next(503, 1, method="tables.get")
    scenario.run()
    name = f"{scenario.dataset}.{scenario.place('Singers')[1]}"
    assert causes == [
        f"cannot use BigQuery's table {name} (it answers 503)",
        *[f"cannot write table {name} of BigQuery (it answers 503)"] * 2,
    ]
    assert (ids_of(scenario), still_retried()) == ([1], [])


@pytest.mark.parametrize("kind", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "INTERNAL", "SCHEMA_MISMATCH_EXTRA_FIELDS"])
@pytest.mark.parametrize("mode", STREAMED)
def test_a_transient_error_in_a_response_is_retried(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, mode: str, kind: str
) -> None:
    """For minutes the Storage Write API does not know a column that was just added."""
    scenario = make_scenario(bigquery_double, mode)
    Sealing(scenario)(range(3))
    bigquery_double.fail_next(kind, 2, in_band=True)
    scenario.run()
    assert (ids_of(scenario), bigquery_double.failures_left()) == ([0, 1, 2], 0)


def extra_fields() -> Any:
    """The detail of an error for a column that the table lacks."""
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
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    Sealing(scenario)([1])
    errors = [error]
    answer = writer._Responses.__next__

    def ending(answers: writer._Responses) -> types.AppendRowsResponse:
        if errors:
            raise errors.pop()
        return answer(answers)

    monkeypatch.setattr(writer._Responses, "__next__", ending)
    scenario.run()
    assert (ids_of(scenario), errors) == ([1], [])


@pytest.mark.parametrize(
    ("status", "method"),
    [
        *((status, "tables.get") for status in (429, 500, 502)),
        *((503, f"tables.{verb}") for verb in ("get", "insert", "patch")),
        *((503, f"datasets.{verb}") for verb in ("get", "insert")),
    ],
)
def test_a_rest_call_is_retried_after_a_transient_error(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, status: int, method: str
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    seal = Sealing(scenario)
    if method != "tables.patch":
        bigquery_double.fail_next(status, 2, method=method)
    seal([1])
    scenario.run()
    if method == "tables.patch":
        bigquery_double.fail_next(status, 2, method=method)
    seal([2], columns=(KEY, NAME, BORN), values={"Name": "n", "Born": "1"})
    scenario.run()
    assert bigquery_double.failures_left() == 0
    assert {row["Id"]: row["Born"] for row in scenario.rows("Singers")} == {1: None, 2: 1}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["jobs.insert", "jobs.query", "jobs.get"])
def test_a_statement_is_retried_after_a_transient_error(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, method: str, after: bool
) -> None:
    scenario = make_scenario(bigquery_double, "merge")
    Sealing(scenario)([1])
    bigquery_double.fail_next(503, method=method, after=after)
    scenario.run()
    assert ids_of(scenario) == [1]
    assert bigquery_double.table(*scenario.place("Singers")).max_staleness is not None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (exceptions.ServiceUnavailable, "backendError"),
        (exceptions.InternalServerError, "internalError"),
        (exceptions.Forbidden, "jobRateLimitExceeded"),
        (exceptions.Forbidden, "quotaExceeded"),
    ],
)
def test_a_job_that_failed_with_a_transient_error_is_run_again(
    bigquery_double: BigQueryDouble,
    make_scenario: MakeScenario,
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
    scenario = make_scenario(bigquery_double, "merge")
    Sealing(scenario)([1])
    scenario.run()
    assert (ids_of(scenario), failures) == ([1], [])


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("UNAVAILABLE", "it answers 503. Run it again later"),
        ("RESOURCE_EXHAUSTED", "a quota is used up. Run it again later, or raise the quota"),
        (503, "it answers 503. Run it again later"),
        (429, "requests come faster than a rate limit allows. Let fewer programs use the table. Run it again later"),
    ],
)
def test_an_error_that_persists_is_one_line_after_a_while_and_nothing_is_lost(
    bigquery_double: BigQueryDouble, delivered: Delivered, kind: str | int, told: str
) -> None:
    scenario, seal = delivered(bigquery_double, "append-only", [1])
    seal([2])
    bigquery_double.fail_next(kind, 1000, method=None if isinstance(kind, str) else "tables.get")
    line = line_of(scenario)
    assert line.startswith("cannot ")
    assert "Singers" in line
    assert f"{told}: nothing is lost." in line
    bigquery_double.forget_failures()
    scenario.run()
    assert ids_of(scenario) == [1, 2]


def test_a_server_that_is_not_there_is_one_line(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario, impatient: None
) -> None:
    scenario = make_scenario(bigquery_double, "append-only", endpoint="http://127.0.0.1:9")
    Sealing(scenario)([1])
    line = line_of(scenario)
    assert "it cannot be reached. Check the network and sink.endpoint, and run it again: nothing is lost." in line


@pytest.mark.parametrize("forgotten", [False, True])
def test_streams_that_expired_before_they_were_committed_are_reported_and_written_again_as_the_line_says(
    bigquery_double: BigQueryDouble, delivered: Delivered, forgotten: bool
) -> None:
    scenario, seal = delivered(bigquery_double, "append-only", [1])
    seal([2, 3])
    with scenario.sink() as sink:
        at(BigQueryWriter, "commit")(sink)
    (expired,) = bigquery_double.pending_streams()
    bigquery_double.expire(expired, forgotten=forgotten)
    line = line_of(scenario)
    assert line.startswith(f"streams of table {scenario.dataset}.Singers cannot be committed")
    found = re.search(r"If it has none, remove (\S+) in the spool, and they are written again", line)
    assert found is not None
    assert ids_of(scenario) == [1]
    Path(scenario.maker.path, found[1]).unlink()
    scenario.run()
    assert ids_of(scenario) == [1, 2, 3]


def test_streams_that_were_committed_and_have_expired_are_not_committed_again(
    bigquery_double: BigQueryDouble, make_scenario: MakeScenario
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    Sealing(scenario)([1])
    with scenario.sink() as sink:
        at(BigQueryWriter, "commit", after=True)(sink)
    assert ids_of(scenario) == [1]
    (document,) = Path(scenario.maker.path, "bigquery").glob("*.json")
    for stream in StreamsEntry.model_validate_json(document.read_bytes()).streams:
        bigquery_double.expire(stream)
    scenario.run()
    assert ids_of(scenario) == [1]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_pending_stream_that_expires_while_it_is_written_is_one_line_and_the_next_run_writes_again(
    bigquery_double: BigQueryDouble,
    make_scenario: MakeScenario,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
    is_written: bool,
) -> None:
    scenario = make_scenario(bigquery_double, "append-only")
    Sealing(scenario)([1, 2])
    create, finalize = BigQueryWriter.create_pending, BigQueryWriter.finalize

    def short_lived(writer: BigQueryWriter) -> str:
        stream = create(writer)
        bigquery_double.expire(stream)
        return stream

    def ended(writer: BigQueryWriter, stream: str) -> int:
        bigquery_double.expire(stream)
        return finalize(writer, stream)

    with monkeypatch.context() as patch:
        patch.setattr(BigQueryWriter, *(("finalize", ended) if is_written else ("create_pending", short_lived)))
        line = line_of(scenario)
    assert "a pending stream of table" in line
    assert line.endswith("has expired. Run it again: none of its rows was visible, and all are written again.")
    scenario.run()
    assert ids_of(scenario) == [1, 2]


# Lines


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (exceptions.Forbidden("x"), "permission denied"),
        (exceptions.PermissionDenied("x"), "permission denied"),
        (exceptions.Forbidden("x", errors=[{"reason": "accessDenied"}]), "permission denied"),
        (exceptions.Forbidden("x", errors=[{"reason": "quotaExceeded"}]), "a quota is used up"),
        (
            exceptions.Forbidden("x", errors=[{"reason": "rateLimitExceeded"}]),
            "requests come faster than a rate limit allows",
        ),
        (exceptions.RetryError("x", cause=exceptions.ServiceUnavailable("y")), "it answers 503"),
        (exceptions.RetryError("x", cause=exceptions.Forbidden("y")), "permission denied"),
        (exceptions.RetryError("x", cause=None), "it cannot be reached"),
        (exceptions.NotFound("x"), "it does not exist"),
        (exceptions.Unauthorized("x"), "the Google credentials are not accepted"),
        (exceptions.BadRequest("a\nb"), "it rejects the request (a)"),
        (exceptions.BadRequest(""), "it rejects the request (without a message)"),
        (exceptions.InternalServerError("x"), "it answers 500"),
        (exceptions.ResourceExhausted("x"), "a quota is used up"),
        (auth_exceptions.DefaultCredentialsError("x"), "no valid Google Cloud credentials were found"),
        (auth_exceptions.RefreshError("x"), "the Google credentials are not accepted"),
        (auth_exceptions.TransportError("x"), "Google's credentials cannot be fetched"),
        (requests.exceptions.ConnectionError("x"), "it cannot be reached"),
    ],
)
def test_an_error_is_reported_with_what_to_do(error: Exception, why: str) -> None:
    told, hint, _ = reason_of(error)
    assert (told, hint.endswith(".")) == (why, True)
    assert "(a)" not in reason_of(error, "words")[0]
