"""Google's application default credentials: why there are none that can be used. Nothing of a file's content is shown.

https://cloud.google.com/docs/authentication/application-default-credentials
"""

import json
import os
from pathlib import Path

VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_LOGIN = "`gcloud auth application-default login`"
_TYPES = (
    "authorized_user",
    "service_account",
    "external_account",
    "external_account_authorized_user",
    "gdch_service_account",
    "impersonated_service_account",
)


def why_unusable() -> tuple[str, str]:
    """The problem of credentials that google-auth refuses, as a clause without a full stop, and a hint."""
    named = os.environ.get(VARIABLE)
    if not named:
        return (
            "no valid Google Cloud credentials were found",
            f"Run {_LOGIN}, or set {VARIABLE} to a service account's key file",
        )
    return f"{VARIABLE} names {named}, {_fault(Path(named))}", f"Correct it; or unset it and run {_LOGIN}"


def _fault(path: Path) -> str:
    try:
        node = json.loads(path.read_bytes())
    except FileNotFoundError:
        return "which does not exist"
    except OSError as error:
        return f"which cannot be read ({error.strerror})"
    except ValueError:
        return "which is not JSON"
    kind = node.get("type") if isinstance(node, dict) else None
    if kind is None:
        return "which is not a credentials file: it has no type"
    if kind not in _TYPES:
        return f"which is not a credentials file: its type is not one of {', '.join(_TYPES)}"
    return f"whose credentials of type {kind} are not valid: download them again"
