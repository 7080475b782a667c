"""The meanings of those refusals of Cloud Storage that neither a role nor a retry cures. Pure."""

from collections.abc import Collection

from connector.refusals import Refusal, Refusals

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
    (r"serviceusage\.services\.use|user project specified|unknown project", _BILLED),
    (r"requester pays", _REQUESTER),
    (r"vpcServiceControls|prohibited by organization's policy", _PERIMETER),
    (r"retention policy|object retention", _RETENTION),
    (r"active (event-based|temporary) hold", _HOLD),
    (r"\bKMS\b|cryptoKey", _KEY),
    (r"billing account|billing (is )?(disabled|not enabled)", _BILLING),
)
_REFUSALS = Refusals(_BY_REASON, _BY_MESSAGE)


def refusal(reasons: Collection[str], message: str) -> Refusal | None:
    """The meaning of a refusal, or None for a missing role and everything else.

    Args:
        reasons: the words of the response's ``errors``.
        message: the response's text. Nothing of it is returned.
    """
    return _REFUSALS.find(reasons, message)
