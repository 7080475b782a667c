"""Spanner's errors and what each means."""

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import AioRpcError, Metadata

from connector.core.records import partition_id
from connector.core.timestamps import parse
from connector.errors import ConfigurationError, DataLostError, SpannerCdcError, StreamError, StreamGoneError
from connector.spanner.errors import CallAction, CallError, classify, query_error

Code = grpc.StatusCode


def met(code: grpc.StatusCode, message: str = "", resource: str = "") -> CallError:
    trailers = Metadata(("grpc-status-details-bin", naming(resource))) if resource else Metadata()
    return classify(AioRpcError(code, Metadata(), trailers, details=message))


def naming(resource: str) -> bytes:
    """Details of an error that name the type of a resource, as Spanner sends them."""
    detail = Any()
    detail.Pack(error_details_pb2.ResourceInfo(resource_type=f"type.googleapis.com/{resource}"))
    details: bytes = status_pb2.Status(code=5, details=[detail]).SerializeToString()
    return details


def told(code: grpc.StatusCode, message: str, resource: str = "") -> SpannerCdcError:
    return query_error(met(code, message, resource), stream="S", token="x", start=parse("2026-01-01T00:00:00Z"))


@pytest.mark.parametrize(
    ("code", "message", "action"),
    [
        (Code.UNAVAILABLE, "", CallAction.RETRY),
        (Code.ABORTED, "", CallAction.RETRY),
        (Code.DEADLINE_EXCEEDED, "", CallAction.RETRY),
        (Code.RESOURCE_EXHAUSTED, "", CallAction.RETRY),
        (Code.INTERNAL, "Received RST_STREAM with error code 2", CallAction.RETRY),
        (Code.INTERNAL, "Received unexpected EOS on DATA frame from server", CallAction.RETRY),
        (Code.INTERNAL, "ZETASQL_RET_CHECK failure", CallAction.STOP),
        (Code.NOT_FOUND, "Session not found: projects/p/instances/i/databases/d/sessions/s", CallAction.NEW_SESSION),
        (Code.NOT_FOUND, "Database not found: projects/p/instances/i/databases/d", CallAction.STOP),
        (Code.NOT_FOUND, "Session was concurrently deleted", CallAction.NEW_SESSION),
        (Code.NOT_FOUND, "Session was concurrently deleted: projects/p/sessions/s", CallAction.NEW_SESSION),
        (Code.NOT_FOUND, "Session does not exist.", CallAction.NEW_SESSION),
        (Code.NOT_FOUND, "Instance not found: projects/p/instances/i", CallAction.STOP),
        (Code.NOT_FOUND, "Row [session not found] in table T is missing.", CallAction.STOP),
        (Code.INTERNAL, "400:Bad Request", CallAction.RETRY),
        (Code.INTERNAL, "HTTP/2 error code: INTERNAL_ERROR", CallAction.RETRY),
        (Code.INTERNAL, "Connection closed with unknown cause", CallAction.RETRY),
        (Code.INTERNAL, "Authentication backend internal server error. Please retry.", CallAction.RETRY),
        (Code.UNKNOWN, "Received http2 header with status: 500", CallAction.RETRY),
        (Code.UNKNOWN, "Received http2 :status header with non-200 OK status", CallAction.RETRY),
        (Code.UNKNOWN, "Stream removed", CallAction.RETRY),
        (Code.UNKNOWN, "", CallAction.STOP),
        (Code.UNAUTHENTICATED, "Request had invalid authentication credentials.", CallAction.WAIT),
        (Code.CANCELLED, "", CallAction.NEW_SESSION),
        (Code.PERMISSION_DENIED, "", CallAction.STOP),
        (Code.OUT_OF_RANGE, "Specified start_timestamp is too far in the past.", CallAction.STOP),
        (Code.INVALID_ARGUMENT, "", CallAction.STOP),
    ],
)
def test_what_can_be_retried_is_and_nothing_else(code: grpc.StatusCode, message: str, action: CallAction) -> None:
    assert met(code, message).action is action


@pytest.mark.parametrize(
    "message",
    [
        "Specified start_timestamp is too far in the past. The earliest read timestamp: 2026-11-21T04:12:43Z.",
        "This partition is no longer valid. All Change Stream records associated with this partition have expired",
    ],
)
def test_data_that_is_no_longer_retained_is_an_error_with_exit_code_3(message: str) -> None:
    error = told(Code.OUT_OF_RANGE, message)
    assert isinstance(error, DataLostError)
    assert error.exit_code == 3
    assert "partition x" in str(error)


@pytest.mark.parametrize(
    ("said", "earliest"),
    [
        (
            "a start_timestamp within the earliest read timestamp: 2026-11-21T04:12:43Z. Received",
            "2026-11-21T04:12:43Z",
        ),
        ("the earliest read timestamp: 2026-11-21T04:12:43.123456-08:00.", "2026-11-21T12:12:43.123456Z"),
        ("the earliest read timestamp: 2026-11-21T99:12:43Z.", None),
        ("Received start_timestamp: 2026-11-21T04:12:43Z.", None),
    ],
)
def test_the_earliest_retained_timestamp_is_read_from_the_message(said: str, earliest: str | None) -> None:
    error = told(Code.OUT_OF_RANGE, f"Specified start_timestamp is too far in the past. Please specify {said}")
    assert isinstance(error, DataLostError)
    assert error.earliest == (parse(earliest) if earliest else None)


def test_a_start_in_the_future_is_refused_not_lost() -> None:
    assert isinstance(
        told(Code.OUT_OF_RANGE, "Specified start_timestamp is too far in the future."), ConfigurationError
    )


def test_another_out_of_range_is_neither_loss_nor_skipped() -> None:
    error = told(Code.OUT_OF_RANGE, "Specified start_timestamp is invalid for the partition.")
    assert isinstance(error, StreamError)
    assert error.exit_code == 1


def test_a_missing_permission_says_which_role_helps() -> None:
    assert "databaseReader" in str(told(Code.PERMISSION_DENIED, "no"))


def test_every_message_is_one_line() -> None:
    assert "\n" not in str(told(Code.INTERNAL, "a\nb"))


def test_a_lost_session_is_known_by_the_resource_that_spanner_names_however_it_is_worded() -> None:
    assert met(Code.NOT_FOUND, "Gone.", "google.spanner.v1.Session").action is CallAction.NEW_SESSION
    database = "google.spanner.admin.database.v1.Database"
    assert met(Code.NOT_FOUND, "Session not found", database).action is CallAction.STOP


@pytest.mark.parametrize(
    ("message", "resource", "gone"),
    [
        ("Database not found: projects/p/instances/i/databases/d", "", "the database is gone"),
        ("Instance not found: projects/p/instances/i", "", "the instance is gone"),
        ("The requested instance does not exist.", "", "the instance is gone"),
        ("It is not found.", "google.spanner.admin.instance.v1.Instance", "the instance is gone"),
        ("Change stream not found: S", "", "the change stream is gone"),
    ],
)
def test_what_is_gone_is_named_as_itself(message: str, resource: str, gone: str) -> None:
    error = told(Code.NOT_FOUND, message, resource)
    assert isinstance(error, StreamGoneError)
    assert str(error).startswith(gone)


def test_refused_credentials_are_no_missing_role() -> None:
    line = str(told(Code.UNAUTHENTICATED, "Request had invalid authentication credentials."))
    assert "clock" in line
    assert "credentials" in line
    assert "roles/" not in line


def told_of_function(code: grpc.StatusCode, message: str, token: str) -> SpannerCdcError:
    start = parse("2026-01-01T00:00:00Z")
    return query_error(met(code, message), stream="S", token=partition_id(token, "READ_S_eu"), start=start)


def test_a_token_that_was_sent_to_the_function_of_another_placement_is_named_with_it() -> None:
    error = told_of_function(Code.INVALID_ARGUMENT, "Partition token abc does not belong to the placement TVF", "abc")
    assert "partition token abc was sent to read function READ_S_eu, to which it does not belong" in str(error)
    assert not isinstance(error, StreamGoneError)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (Code.INVALID_ARGUMENT, "Table-valued function not found: READ_S_eu\nSELECT (start_timestamp => @heartbeat)"),
        (Code.NOT_FOUND, "[ERROR] function spanner.read_proto_bytes_s_eu(text) does not exist"),
    ],
)
@pytest.mark.parametrize("token", ["", "abc"])
def test_a_function_that_is_gone_is_not_taken_for_the_change_stream(
    code: grpc.StatusCode, message: str, token: str
) -> None:
    error = told_of_function(code, message, token)
    assert isinstance(error, StreamGoneError)
    assert str(error).startswith("read function READ_S_eu is gone, and not all of it was read: ")


@pytest.mark.parametrize("code", [Code.OUT_OF_RANGE, Code.INVALID_ARGUMENT])
def test_a_start_that_a_function_refuses_may_be_too_early_for_it(code: grpc.StatusCode) -> None:
    message = "start_timestamp is too early. earliest read timestamp: 2026-02-01T00:00:00Z"
    error = told_of_function(code, message, "")
    assert isinstance(error, DataLostError)
    assert error.earliest == parse("2026-02-01T00:00:00Z")
    assert not isinstance(told_of_function(code, message, "abc"), DataLostError)


def test_a_missing_function_is_no_heartbeat_that_is_refused_though_the_statement_names_one() -> None:
    message = "Table-valued function not found: READ_S\nSELECT READ_S(heartbeat_milliseconds => @heartbeat)"
    assert isinstance(told(Code.INVALID_ARGUMENT, message), StreamGoneError)
