"""An error that crosses from a worker means what it meant there, and holds no row."""

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import SpannerCdcError, StreamError
from connector.spanner.decoding.row_fields import UnknownRecordError
from connector.spanner.errors import CallAction, ErrorDetails, classify, query_error
from connector.spanner.partition_query import SilentStreamError
from connector.spanner.workers.failures import error_of, failure_of
from connector.spanner.workers.frames import FailureFrame

NO_METADATA = grpc.aio.Metadata()
MESSAGES = (
    "Session not found: projects/p/instances/i/databases/d/sessions/s",
    "Database not found: d",
    "Specified start_timestamp is too far in the past. The earliest read timestamp: 2026-01-01T00:00:00Z",
    "Received RST_STREAM with error code 2",
    "Received message larger than max",
    "",
)


@given(st.sampled_from([code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]), st.sampled_from(MESSAGES))
def test_an_error_of_spanner_is_reported_and_handled_as_in_one_process(code: grpc.StatusCode, message: str) -> None:
    there = grpc.aio.AioRpcError(code, NO_METADATA, NO_METADATA, message)
    here = error_of(failure_of(there))
    assert isinstance(here, grpc.RpcError)
    assert classify(here) == classify(there)
    reported, expected = (query_error(classify(one), stream="S", token="x", start=0) for one in (here, there))
    assert (type(reported), str(reported)) == (type(expected), str(expected))


def test_the_resource_that_an_error_names_crosses_too() -> None:
    here = error_of(FailureFrame("call", "Gone.", code="NOT_FOUND", details=ErrorDetails("google.spanner.v1.Session")))
    assert isinstance(here, grpc.RpcError)
    assert classify(here).action is CallAction.NEW_SESSION
    assert failure_of(here).details.resource == "google.spanner.v1.Session"


def test_the_reason_and_the_permission_that_an_error_names_cross_too() -> None:
    details = ErrorDetails(reason="IAM_PERMISSION_DENIED", permission="spanner.x.y")
    sent = FailureFrame("call", "No.", code="PERMISSION_DENIED", details=details)
    here = error_of(sent)
    assert isinstance(here, grpc.RpcError)
    assert classify(here).details.permission == "spanner.x.y"
    assert failure_of(here) == sent


@pytest.mark.parametrize("error", [SilentStreamError("no message for 30 s"), UnknownRecordError("of no known kind")])
def test_other_errors_of_the_reader_are_raised_unchanged(error: Exception) -> None:
    here = error_of(failure_of(error))
    assert (type(here), str(here)) == (type(error), str(error))


def test_an_error_of_the_connector_keeps_its_message() -> None:
    here = error_of(failure_of(SpannerCdcError("no credentials were found", hint="Run `gcloud`.")))
    assert isinstance(here, StreamError)
    assert str(here) == "no credentials were found. Run `gcloud`."


def test_of_an_exception_group_the_first_error_is_described() -> None:
    assert "KeyError" in str(error_of(failure_of(ExceptionGroup("several", [KeyError(), ValueError()]))))


def test_of_an_internal_error_only_the_type_is_described() -> None:
    here = error_of(failure_of(KeyError("a row's value")))
    assert "KeyError" in str(here)
    assert "value" not in str(here)
