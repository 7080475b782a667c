"""What Cloud Storage's refusals mean that no role and no retry cures. Pure."""

import re
from collections.abc import Collection
from typing import NamedTuple


class Refusal(NamedTuple):
    """Why Cloud Storage refuses a request, as a clause, and what to do."""

    why: str
    hint: str


_AGAIN = "then run it again: nothing is lost."

_RETENTION = Refusal(
    "a retention policy keeps its objects from being replaced or deleted",
    "Use a bucket without a retention policy and without retention of objects: a spool and the files of a sink are"
    " replaced and deleted.",
)
_HOLD = Refusal(
    "an object is under a hold, which keeps it from being replaced or deleted",
    f"Release the hold, and switch off the bucket's default event-based hold; {_AGAIN}",
)
_KEY = Refusal(
    "its Cloud KMS key cannot be used",
    "Give Cloud Storage's service agent roles/cloudkms.cryptoKeyEncrypterDecrypter on the bucket's key, and check that"
    f" the key is enabled; {_AGAIN}",
)
_BILLING = Refusal(
    "billing of the bucket's project is disabled", f"Enable the billing account of that project; {_AGAIN}"
)
_PERIMETER = Refusal(
    "the organization's policy (VPC Service Controls) prohibits it",
    f"Allow this account, project or network in the service perimeter; {_AGAIN}",
)
_REQUESTER = Refusal(
    "the requester pays for this bucket, and no project to bill is named",
    "Name the project to bill with user_project, beside the option that names the bucket.",
)
_BILLED = Refusal(
    "the project of user_project cannot be billed",
    "Give this account roles/serviceusage.serviceUsageConsumer on that project, or name one that exists and has billing"
    f" enabled; {_AGAIN}",
)

_BY_REASON = {
    "retentionPolicyNotMet": _RETENTION,
    "objectUnderActiveHold": _HOLD,
    "accountDisabled": _BILLING,
    "billingDisabled": _BILLING,
    "billingNotEnabled": _BILLING,
    "vpcServiceControls": _PERIMETER,
    "userProjectMissing": _REQUESTER,
    "userProjectAccessDenied": _BILLED,
    "userProjectInvalid": _BILLED,
    "userProjectInconsistent": _BILLED,
    "userProjectAccountProblem": _BILLED,
}
_BY_MESSAGE = (
    (re.compile(r"serviceusage\.services\.use|user project specified|unknown project", re.IGNORECASE), _BILLED),
    (re.compile(r"requester pays", re.IGNORECASE), _REQUESTER),
    (re.compile(r"vpcServiceControls|prohibited by organization's policy", re.IGNORECASE), _PERIMETER),
    (re.compile(r"retention policy|object retention", re.IGNORECASE), _RETENTION),
    (re.compile(r"active (event-based|temporary) hold", re.IGNORECASE), _HOLD),
    (re.compile(r"\bKMS\b|cryptoKey", re.IGNORECASE), _KEY),
    (re.compile(r"billing account|billing (is )?(disabled|not enabled)", re.IGNORECASE), _BILLING),
)


def refusal(reasons: Collection[str], message: str) -> Refusal | None:
    """What a refusal means, or None for a missing role and everything else.

    Args:
        reasons: the words of the response's ``errors``.
        message: the response's text. Nothing of it is returned.
    """
    for reason in reasons:
        if found := _BY_REASON.get(reason):
            return found
    return next((found for pattern, found in _BY_MESSAGE if pattern.search(message)), None)
