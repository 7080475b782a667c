"""The meaning of Spanner's refusals, except of a missing role on the database. Pure.

https://cloud.google.com/apis/design/errors and google.api.ErrorReason have the reasons.
"""

import re

from connector.refusals import Refusal, Refusals

_AGAIN = "then start it again: nothing is lost."

_API = Refusal("the Spanner API is disabled in the project", f"Enable spanner.googleapis.com for the project, {_AGAIN}")
_BILLING = Refusal(
    "billing of the project is disabled",
    f"Enable the billing account of the project and of the quota project, {_AGAIN}",
)
_QUOTA_PROJECT = Refusal(
    "this account may not use the project that is billed for its calls",
    "Give it roles/serviceusage.serviceUsageConsumer there, or choose another quota project of the credentials (gcloud"
    f" auth application-default set-quota-project), {_AGAIN}",
)
_NO_PROJECT = Refusal(
    "there is no such project, or it is deleted", f"Correct the project, or the credentials' quota project, {_AGAIN}"
)
_PERIMETER = Refusal(
    "the organization's policy (VPC Service Controls) prohibits it",
    f"Allow this account, project or network in the service perimeter, {_AGAIN}",
)
_LOCATION = Refusal(
    "the organization's policy on locations prohibits it", f"Use a location that the policy allows, {_AGAIN}"
)
_SCOPES = Refusal(
    "the credentials have no scope for Spanner",
    "Give the machine or the credentials the scope https://www.googleapis.com/auth/cloud-platform, or"
    f" .../spanner.data, {_AGAIN}",
)
_API_KEY = Refusal(
    "the API key is not accepted, and Spanner takes none", f"Use credentials of a service account or a user, {_AGAIN}"
)
_ACCOUNT = Refusal("the account is disabled or deleted", f"Enable it, or use another one's credentials, {_AGAIN}")
_CONSUMER = Refusal("the project is suspended", f"Contact Google Cloud's support, {_AGAIN}")

_BY_REASON = {
    "SERVICE_DISABLED": _API,
    "BILLING_DISABLED": _BILLING,
    "USER_PROJECT_DENIED": _QUOTA_PROJECT,
    "CONSUMER_INVALID": _NO_PROJECT,
    "RESOURCE_PROJECT_INVALID": _NO_PROJECT,
    "CONSUMER_SUSPENDED": _CONSUMER,
    "SECURITY_POLICY_VIOLATED": _PERIMETER,
    "VPC_SERVICE_CONTROLS": _PERIMETER,
    "LOCATION_POLICY_VIOLATED": _LOCATION,
    "LOCATION_ORG_POLICY_VIOLATED": _LOCATION,
    "ACCESS_TOKEN_SCOPE_INSUFFICIENT": _SCOPES,
    "ACCOUNT_STATE_INVALID": _ACCOUNT,
}
_BY_MESSAGE = (
    (r"vpcServiceControls|prohibited by organization's policy", _PERIMETER),
    (r"insufficient authentication scopes", _SCOPES),
    (r"has not been used in project .{0,80}before or it is disabled", _API),
    (r"requires? billing to be enabled|billing account .{0,80}disabled", _BILLING),
    (r"serviceusage\.services\.use|required permission to use project", _QUOTA_PROJECT),
)
_REFUSALS = Refusals(_BY_REASON, _BY_MESSAGE)
_PERMISSION = re.compile(r"\bspanner\.[a-zA-Z]+\.[a-zA-Z]+\b")


def refusal(reason: str, message: str) -> Refusal | None:
    """The meaning of a refusal, or None for a missing permission.

    Args:
        reason: of the error's ErrorInfo, or empty.
        message: the error's. Nothing of it is returned.
    """
    if reason.startswith("API_KEY_"):
        return _API_KEY
    return _REFUSALS.find((reason,), message)


def permission_in(permission: str, message: str) -> str:
    """The permission that is missing: of the error's details, or else of its message; empty if neither names one."""
    found = _PERMISSION.search(message)
    return permission or (found[0] if found else "")
