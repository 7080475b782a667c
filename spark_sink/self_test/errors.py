"""Errors of Google's clients, as a self-test prints them."""

from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError
from google.auth.exceptions import GoogleAuthError

SPANNER_ERRORS = (GoogleAPIError, GoogleAuthError)


def words_of(error: Exception) -> str:
    """An error of Google's clients on one line."""
    if isinstance(error, GoogleAPICallError):
        code = error.grpc_status_code
        return " ".join(f"{code.name if code else error.code}: {error.message}".split())
    return " ".join(str(error).split()) or type(error).__name__
