"""Spanner's refusals: each is named as itself, with what cures it."""

import grpc
import pytest
from google.api_core import exceptions
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import AioRpcError, Metadata

from connector.errors import SnapshotLostError
from connector.spanner.errors import (
    CallError,
    classify,
    classify_library,
    query_error,
    retried,
    setup_error,
    snapshot_error,
)

Code = grpc.StatusCode
PERIMETER = "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: abc."
MISSING = "Caller is missing IAM permission spanner.databases.partitionQuery on resource projects/p/instances/i."


def trailers(code: int, message: str, *details: object) -> Metadata:
    packed = []
    for detail in details:
        one = Any()
        one.Pack(detail)
        packed.append(one)
    return Metadata(
        ("grpc-status-details-bin", status_pb2.Status(code=code, message=message, details=packed).SerializeToString())
    )


def denied(
    reason: str = "", message: str = "x", permission: str = "", code: grpc.StatusCode = Code.PERMISSION_DENIED
) -> CallError:
    info = error_details_pb2.ErrorInfo(reason=reason, domain="googleapis.com", metadata={"permission": permission})
    return classify(AioRpcError(code, Metadata(), trailers(code.value[0], message, info), details=message))


REFUSALS = [
    (denied("SERVICE_DISABLED"), "API is disabled", "Enable spanner.googleapis.com"),
    (denied("BILLING_DISABLED"), "billing of the project is disabled", "billing account"),
    (denied("USER_PROJECT_DENIED"), "billed for its calls", "roles/serviceusage.serviceUsageConsumer"),
    (denied("CONSUMER_INVALID"), "no such project", "quota project"),
    (denied("SECURITY_POLICY_VIOLATED"), "VPC Service Controls", "service perimeter"),
    (denied("", PERIMETER), "VPC Service Controls", "service perimeter"),
    (denied("ACCESS_TOKEN_SCOPE_INSUFFICIENT"), "no scope for Spanner", "cloud-platform"),
    (denied("", "Request had insufficient authentication scopes."), "no scope for Spanner", "cloud-platform"),
    (denied("API_KEY_SERVICE_BLOCKED"), "API key", "service account"),
    (denied("IAM_PERMISSION_DENIED", permission="spanner.databases.select"), "permission", "spanner.databases.select"),
    (denied("", MISSING), "permission", "This account lacks spanner.databases.partitionQuery."),
    (denied("", "The role R does not have SELECT on T."), "permission", "roles/spanner.databaseReader"),
]


@pytest.mark.parametrize(("found", "why", "hint"), REFUSALS)
def test_each_refusal_is_named_as_itself_wherever_a_call_is_refused(found: CallError, why: str, hint: str) -> None:
    for error in (
        setup_error(found, "projects/p"),
        query_error(found, stream="S", token="x", start=0),
        snapshot_error(found, what="table T"),
    ):
        assert why in error.message
        assert hint in error.hint
    cause = retried(found, "h:1")
    assert why in cause.text
    assert hint in cause.hint


def test_a_disabled_account_is_no_wrong_clock() -> None:
    error = setup_error(denied("ACCOUNT_STATE_INVALID", code=Code.UNAUTHENTICATED), "projects/p")
    assert "the account is disabled or deleted" in str(error)
    assert "clock" not in str(error)


def test_an_error_of_googles_library_means_what_its_call_says() -> None:
    info = error_details_pb2.ResourceInfo(resource_type="type.googleapis.com/google.spanner.v1.Session")
    call = AioRpcError(Code.NOT_FOUND, Metadata(), trailers(5, "Gone.", info), details="Gone.")
    found = classify_library(exceptions.from_grpc_error(call))
    assert found == classify(call)
    assert isinstance(snapshot_error(found, what="table T"), SnapshotLostError)


def test_an_error_of_googles_library_without_a_call_has_its_code_and_message() -> None:
    found = classify_library(exceptions.NotFound("Database not found: d"))
    assert (found.code, found.message) == (Code.NOT_FOUND, "Database not found: d")
    assert classify_library(exceptions.RetryError("given up", cause=None)).code is Code.DEADLINE_EXCEEDED
