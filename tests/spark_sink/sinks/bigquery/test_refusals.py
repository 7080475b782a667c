"""BigQuery's refusals: each is named as itself, with what cures it."""

import pytest
from google.api_core import exceptions
from google.cloud.bigquery_storage_v1 import types
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo

from connector.errors import TRANSIENT
from spark_sink.errors import DestinationUnavailableError, PermanentError, SinkError
from spark_sink.failures import code_of
from spark_sink.sinks.bigquery.client import BigQueryClient, reason_of
from spark_sink.sinks.bigquery.jobs import is_transient
from spark_sink.sinks.bigquery.tables.table import BigQueryTarget
from spark_sink.sinks.bigquery.writing.writer import _rejected, _storage_code

PERIMETER = (
    "VPC Service Controls: Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: abc."
)
PERMISSION = "Access Denied: Table p:d.t: Permission bigquery.tables.updateData denied on table p:d.t"
BUFFER = "UPDATE or DELETE statement over table p.d.t would affect rows in the streaming buffer, which is not supported"


def answered(status: int, reason: str, message: str) -> exceptions.GoogleAPICallError:
    found = exceptions.from_http_status(status, message, errors=[{"reason": reason, "message": message}])
    assert isinstance(found, exceptions.GoogleAPICallError)
    return found


@pytest.mark.parametrize(
    ("status", "reason", "message", "why", "hint"),
    [
        (403, "accessDenied", PERIMETER, "organization's policy (VPC Service Controls)", "service perimeter"),
        (403, "accessDenied", PERMISSION, "permission denied (bigquery.tables.updateData)", "bigquery.dataEditor"),
        (403, "accessDenied", "Permission denied on Cloud KMS key x", "Cloud KMS key cannot be used", "EncrypterDecry"),
        (400, "kmsKeyRevoked", "Cloud KMS key x is disabled.", "Cloud KMS key cannot be used", "key is enabled"),
        (403, "billingNotEnabled", "x", "billing of the project is not enabled", "billing account"),
        (
            403,
            "accessDenied",
            "DML queries are not allowed in the free tier.",
            "billing of the project",
            "sink.project",
        ),
        (400, "billingTierLimitExceeded", "x", "limit of billed bytes", "sink.partition_by"),
        (400, "resourcesExceeded", "x", "more resources", "sink.partition_by"),
        (403, "responseTooLarge", "x", "more resources", "slots"),
        (403, "quotaExceeded", "x", "a quota is used up", "raise the quota"),
        (403, "quotaExceeded", "Custom quota exceeded: x", "a custom quota", "midnight"),
        (403, "rateLimitExceeded", "x", "a rate limit", "later"),
        (400, "jobRateLimitExceeded", "x", "a rate limit", "later"),
        (403, "accessNotConfigured", "x", "API is disabled", "bigquerystorage.googleapis.com"),
        (
            403,
            "insufficientPermissions",
            "Request had insufficient authentication scopes.",
            "no scope",
            "cloud-platform",
        ),
        (403, "forbidden", "Caller needs serviceusage.services.use", "billed for its calls", "serviceUsageConsumer"),
        (403, "blocked", "x", "has blocked", "support"),
        (403, "accessDenied", "User has no access to policy tag x", "policy tag", "categoryFineGrainedReader"),
        (400, "invalidQuery", BUFFER, "streaming buffer", "90 minutes"),
        (404, "notFound", "Not found: Dataset p:d was not found in location EU", "dataset does not", "sink.location"),
        (404, "notFound", "Not found: Table p:d.t was not found in location EU", "table does not exist", "Restore it"),
        (
            400,
            "invalidQuery",
            "Too many partitions produced by query, allowed 4000, query produces at least 4001 partitions",
            "more partitions than BigQuery allows",
            "sink.partition_by",
        ),
        (404, "notFound", "Not found: Table p:d.t", "table does not exist", "Restore it"),
        (404, "notFound", "Not found: Project p", "project does not exist", "sink.project"),
        (400, "invalid", "Cannot read and write in different locations: EU, US", "another region", "new one"),
    ],
)
def test_each_reason_is_named_as_itself_with_what_cures_it(
    status: int, reason: str, message: str, why: str, hint: str
) -> None:
    found = reason_of(answered(status, reason, message))
    assert why in found.why
    assert hint in found.hint
    assert found.hint.endswith(".")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("SERVICE_DISABLED", "the BigQuery API is disabled in the project"),
        ("BILLING_DISABLED", "billing of the project is not enabled"),
        ("USER_PROJECT_DENIED", "this account may not use the project that is billed for its calls"),
        ("ACCESS_TOKEN_SCOPE_INSUFFICIENT", "the credentials have no scope for BigQuery"),
        ("IAM_PERMISSION_DENIED", "permission denied"),
    ],
)
def test_the_reason_of_a_grpc_error_is_that_of_its_details(reason: str, expected: str) -> None:
    error = exceptions.PermissionDenied("x", error_info=ErrorInfo(reason=reason))
    assert reason_of(error).why == expected


@pytest.mark.parametrize("code", ["KMS_PERMISSION_DENIED", "CMEK_ENCRYPTION_ERROR", "INVALID_CMEK_PROVIDED"])
def test_a_key_that_rows_cannot_be_written_with_is_named_whether_a_response_or_the_call_says_so(code: str) -> None:
    detail = Any()
    detail.Pack(types.StorageError.pb(types.StorageError(code=code)))
    response = types.AppendRowsResponse(error={"code": 9, "message": "x", "details": [detail]})
    with pytest.raises(exceptions.FailedPrecondition) as caught:
        _rejected(response)
    for error in (caught.value, exceptions.FailedPrecondition("x", details=[detail])):
        assert reason_of(error, code=_storage_code(error)).why == "its Cloud KMS key cannot be used"


def test_a_value_in_the_message_of_a_statement_does_not_decide() -> None:
    error = answered(400, "invalidQuery", "Bad int64 value: Cloud KMS, streaming buffer, policy tag")
    assert reason_of(error, "its message").why == "it rejects the request (its message)"


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (403, "quotaExceeded", True),
        (403, "rateLimitExceeded", True),
        (400, "jobRateLimitExceeded", True),
        (400, "tableUnavailable", True),
        (403, "accessDenied", False),
        (403, "billingNotEnabled", False),
        (400, "resourcesExceeded", False),
        (404, "notFound", False),
    ],
)
def test_limits_and_broken_servers_are_retried_and_nothing_else(status: int, reason: str, *, expected: bool) -> None:
    assert is_transient(answered(status, reason, "x")) is expected


def test_a_statement_that_will_always_be_too_large_ends_the_sink_for_good() -> None:
    client = BigQueryClient(BigQueryTarget("p", "http://127.0.0.1:9"), patience=0.1)
    for reason, kind in (("resourcesExceeded", PermanentError), ("accessDenied", SinkError)):
        with pytest.raises(SinkError) as caught, client._errors("table d.t"):
            raise answered(400 if kind is PermanentError else 403, reason, "x")
        assert type(caught.value) is kind


def test_a_bigquery_that_does_not_answer_for_long_ends_the_sink_so_that_it_starts_again() -> None:
    client = BigQueryClient(BigQueryTarget("p", "http://127.0.0.1:9"), patience=0.1)
    lasting = exceptions.RetryError("Timeout of 0.1s exceeded", answered(503, "backendError", "x"))
    for error in (lasting, answered(403, "rateLimitExceeded", "x")):
        with pytest.raises(DestinationUnavailableError) as caught, client._errors("table d.t"):
            raise error
        assert code_of(caught.value) == TRANSIENT
