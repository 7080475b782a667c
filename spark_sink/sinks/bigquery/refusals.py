"""The meanings of BigQuery's refusals, by their reasons. Pure.

https://cloud.google.com/bigquery/docs/error-messages
"""

from collections.abc import Collection
from typing import NamedTuple

from connector.refusals import Refusals


class BigQueryRefusal(NamedTuple):
    """The reason why BigQuery refuses, as a clause, and a hint.

    ``is_final`` says that only another configuration or another table cures it. A restart that waits for a person to
    grant or to enable something would ask for the same again, and may be billed for it.
    """

    why: str
    hint: str
    is_final: bool = False


_AGAIN = "and run it again: nothing is lost."

QUOTA = BigQueryRefusal(
    "a quota is used up",
    "Run it again later, or raise the quota: nothing is lost. The sink itself uses half of it at most.",
)
_CUSTOM_QUOTA = BigQueryRefusal(
    "a custom quota of the project is used up",
    "Raise it, or wait until it is reset at midnight Pacific time, and run it again: nothing is lost.",
)
_RATE = BigQueryRefusal(
    "requests come faster than a rate limit allows",
    "Let fewer programs use the table. Run it again later: nothing is lost.",
)
_PERIMETER = BigQueryRefusal(
    "the organization's policy (VPC Service Controls) prohibits it",
    f"Allow this account, project or network in the service perimeter, {_AGAIN}",
)
_BILLING = BigQueryRefusal(
    "billing of the project is not enabled", f"Enable a billing account for the project of sink.project, {_AGAIN}"
)
_TIER = BigQueryRefusal(
    "the query exceeds the project's limit of billed bytes",
    f"Raise the limit, or partition the table by its key (sink.partition_by), {_AGAIN}",
    is_final=True,
)
_RESOURCES = BigQueryRefusal(
    "the query needs more resources than BigQuery gives it",
    f"Partition the table by its key (sink.partition_by), or give the project more slots, {_AGAIN}",
    is_final=True,
)
_PARTITIONS = BigQueryRefusal(
    "the statement changes more partitions than BigQuery allows, which are 4,000",
    f"Choose longer partitions (sink.partition_by) for a table in another dataset, or another mode there, {_AGAIN}",
    is_final=True,
)
_KEY = BigQueryRefusal(
    "its Cloud KMS key cannot be used",
    "Give BigQuery's service account roles/cloudkms.cryptoKeyEncrypterDecrypter on the key, and check that the key is"
    f" enabled, {_AGAIN}",
)
_KEY_SERVICE = BigQueryRefusal("Cloud KMS does not answer for its key", "Run it again later: nothing is lost.")
_API = BigQueryRefusal(
    "the BigQuery API is disabled in the project",
    f"Enable bigquery.googleapis.com and bigquerystorage.googleapis.com there, {_AGAIN}",
)
_SCOPES = BigQueryRefusal(
    "the credentials have no scope for BigQuery",
    f"Give the machine or the credentials the scope https://www.googleapis.com/auth/cloud-platform, {_AGAIN}",
)
_QUOTA_PROJECT = BigQueryRefusal(
    "this account may not use the project that is billed for its calls",
    "Give it roles/serviceusage.serviceUsageConsumer there, or choose another quota project of the credentials,"
    f" {_AGAIN}",
)
_BUFFER = BigQueryRefusal(
    "rows are in the streaming buffer, where no statement can change them",
    "Somebody else streams into the table: let only the sink write it, and run it again after 90 minutes: nothing is"
    " lost.",
)
_BLOCKED = BigQueryRefusal("BigQuery has blocked the project's operation", f"Contact Google Cloud's support, {_AGAIN}")
_CANCELLED = BigQueryRefusal("its job was cancelled", "Run it again: nothing is lost.")
_POLICY_TAG = BigQueryRefusal(
    "a policy tag protects a column",
    f"Give this account roles/datacatalog.categoryFineGrainedReader on the tag, {_AGAIN}",
)
_DATASET = BigQueryRefusal(
    "the dataset does not exist",
    "Create it, or set sink.location so that the sink creates it; if it is in another region, name the right dataset."
    " Run it again: nothing is lost.",
)
_PROJECT = BigQueryRefusal("the project does not exist", f"Correct sink.project, {_AGAIN}")
_TABLE = BigQueryRefusal("the table does not exist", f"Restore it {_AGAIN}")
_REGION = BigQueryRefusal(
    "the dataset is in another region than its job",
    f"Do not create a dataset again in another region: name a new one, {_AGAIN}",
)

_BY_REASON = {
    "vpcServiceControls": _PERIMETER,
    "SECURITY_POLICY_VIOLATED": _PERIMETER,
    "billingNotEnabled": _BILLING,
    "BILLING_DISABLED": _BILLING,
    "billingTierLimitExceeded": _TIER,
    "bytesBilledLimitExceeded": _TIER,
    "resourcesExceeded": _RESOURCES,
    "responseTooLarge": _RESOURCES,
    "accessNotConfigured": _API,
    "SERVICE_DISABLED": _API,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": _SCOPES,
    "USER_PROJECT_DENIED": _QUOTA_PROJECT,
    "blocked": _BLOCKED,
    "stopped": _CANCELLED,
    "CMEK_NOT_PROVIDED": _KEY,
    "INVALID_CMEK_PROVIDED": _KEY,
    "CMEK_ENCRYPTION_ERROR": _KEY,
    "KMS_PERMISSION_DENIED": _KEY,
    "KMS_SERVICE_ERROR": _KEY_SERVICE,
    "TABLE_NOT_FOUND": _TABLE,
}
_BY_BEGINNING = (
    (
        r"(UPDATE|DELETE|MERGE)\b[^\n]{0,200}? statement over table \S+ would affect rows in the streaming buffer",
        _BUFFER,
    ),
    (r"resources exceeded during query execution|not enough resources for query planning", _RESOURCES),
    (r"query exceeded limit for bytes billed", _TIER),
    (r"too many partitions produced by query", _PARTITIONS),
    (r"(the |permission denied on )?cloud KMS", _KEY),
    (r"billing has not been enabled for this project", _BILLING),
    (r"cannot (read and write|query) [^\n]{0,40}different locations", _REGION),
)
"""Match the beginning of any message."""
_BY_MESSAGE = (
    (r"vpcServiceControls|VPC Service Controls|prohibited by organization's policy", _PERIMETER),
    (r"insufficient authentication scopes", _SCOPES),
    (r"serviceusage\.services\.use", _QUOTA_PROJECT),
    (r"has not been used in project .* before or it is disabled", _API),
    (r"billing (has not been|is not|must be) enabled|in the free tier|billing account .*(disabled|closed)", _BILLING),
    (r"\b(Cloud )?KMS\b|cryptoKeys?\b|\bCMEK\b", _KEY),
    (r"policy tag", _POLICY_TAG),
    (r"custom quota", _CUSTOM_QUOTA),
    (r"not found: table|entity: projects/[^/]+/datasets/[^/]+/tables/", _TABLE),
    (r"not found: dataset|was not found in location", _DATASET),
    (r"not found: project|unknown project", _PROJECT),
)
"""Match anywhere in a message without values of rows."""
_LIMITS = {"quotaExceeded": QUOTA, "rateLimitExceeded": _RATE, "jobRateLimitExceeded": _RATE}
_KNOWN = Refusals(_BY_REASON, [(rf"\A(?:{pattern})", found) for pattern, found in _BY_BEGINNING])
_ANYWHERE = Refusals({}, _BY_MESSAGE)
_LIMITED = Refusals(_LIMITS)


def refusal(reasons: Collection[str], message: str, *, has_values: bool = False) -> BigQueryRefusal | None:
    """The meaning of a refusal, or None for a missing role and everything else.

    Args:
        reasons: the words of the response's ``errors``, of an ErrorInfo, or the name of a StorageErrorCode.
        message: the response's text. Nothing of it is returned.
        has_values: whether the message may hold values of rows, so that only its beginning is looked at.
    """
    return (
        _KNOWN.find(reasons, message)
        or (None if has_values else _ANYWHERE.find((), message))
        or _LIMITED.find(reasons, message)
    )
