"""Classifies Spanner's errors: the one place that reads their codes and messages.

A transient error is retried without limit, with backoff, from the last progress: nothing may be lost, and an outage of
Spanner ends. Everything else stops the stream with one clear line. A code alone is not enough: NOT_FOUND is an expired
session or a deleted database, INTERNAL a broken transport or a bug, and OUT_OF_RANGE has several meanings, of which
"too far in the past" is data that is lost to the reader.
"""

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

import grpc
from google.api_core.exceptions import GoogleAPICallError, RetryError
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from connector.core.health.retries import Cause
from connector.core.records import function_of, is_initial, partition_name, token_of
from connector.core.timestamps import format_rfc3339, parse
from connector.errors import (
    ConfigurationError,
    DataLostError,
    NoSuchTableError,
    SnapshotLostError,
    SpannerCdcError,
    StreamError,
    StreamGoneError,
    UnreachableError,
    VersionRetentionError,
)
from connector.proxies import hint as proxy_hint
from connector.spanner.omni.texts import handshake_hint, token_hint
from connector.spanner.refusals import permission_in, refusal


class CallAction(Enum):
    """The action that follows an error."""

    RETRY = "retry"
    NEW_SESSION = "retry with a new session"
    WAIT = "retry for a while"
    """The credentials are refused, which Spanner sometimes does briefly to valid ones."""
    STOP = "stop"


class ErrorDetails(NamedTuple):
    """The resource, reason and permission in the details of an error.

    Attributes:
        resource: the type of the resource that is not found, such as google.spanner.v1.Session.
        reason: of an ErrorInfo, such as SERVICE_DISABLED.
        permission: the permission that is missing.
    """

    resource: str = ""
    reason: str = ""
    permission: str = ""


NO_DETAILS = ErrorDetails()


@dataclass(frozen=True, slots=True)
class CallError:
    """An error of a call: its code, its message as the server gave it, and what to do."""

    code: grpc.StatusCode
    message: str
    action: CallAction
    details: ErrorDetails = NO_DETAILS
    proxy: str = ""
    """The environment variable with the proxy that the call went through."""

    def __str__(self) -> str:
        return f"{self.code.name}: {' '.join(self.message.split())}"


_RETRIED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_BROKEN_TRANSPORT = re.compile(
    r"RST_STREAM|stream (terminated|removed|error)|connection (error|reset|closed)|unexpected EO[SF]|HTTP/?2 error|"
    r"GOAWAY|Authentication backend internal server error|^\s*400:\s*Bad Request|"
    r"http2 (:status )?header with (status: 5|non-200)|no status received|half-closed without a status|"
    r"content-type: text/html|^\s*(HTTP status code |50[0234]:)",
    re.IGNORECASE,
)
_NO_TOKEN = "metadata from plugin failed"  # noqa: S105 - a text of gRPC
_TOO_LARGE = re.compile(r"message larger than max", re.IGNORECASE)
_SESSION_TYPE = "google.spanner.v1.Session"
_SESSION = re.compile(
    r"\s*session\b(?s:.{0,300}?)\b(not found|not exist|deleted|expired|invalid|no longer)|[^\n]*/sessions/[^/\s]+\s*$",
    re.IGNORECASE,
)
"""Matches the beginning of the message: what comes later may be a row's key."""
_DETAILS = "grpc-status-details-bin"
_CONTAINER = re.compile(
    r"(?:the )?(?:requested |specified )?(database|instance|project)(?! role)( \S+)? (not found|does not exist)",
    re.IGNORECASE,
)
_TOO_OLD = re.compile(r"too far in the past|no longer valid|have expired", re.IGNORECASE)
_OF_BOUNDS = (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.INVALID_ARGUMENT)
_TOO_STALE = re.compile(r"maximum timestamp staleness|garbage.?collected|version.?retention", re.IGNORECASE)
_SNAPSHOT_GONE = re.compile(
    r"session not found|partition.?token|(read-only )?transaction\b.*\b(not found|not exist|expired|invalid|closed)|"
    r"invalid transaction",
    re.IGNORECASE | re.DOTALL,
)
_NO_SUCH_TABLE = re.compile(
    r"\b(table|column|relation)\b.*(not found|does not exist)|unrecognized name", re.IGNORECASE | re.DOTALL
)
_EARLIEST = re.compile(r"earliest read timestamp:?\s*([0-9-]+T[0-9:.]+(?:Z|[+-][0-9:]+))")


def classify(error: grpc.RpcError) -> CallError:
    """Classifies the error of a call. A CANCELLED is the server's: a call cancelled here never raises an RpcError."""
    return classified(error.code(), error.details() or "", details_of(error))


def classify_library(error: GoogleAPICallError | RetryError) -> CallError:
    """Classifies an error that Google's library raises for a call; without a code it has given up retrying."""
    code = getattr(error, "grpc_status_code", None)
    for call in getattr(error, "errors", ()):
        if isinstance(call, grpc.RpcError) and call.code() is code:
            return classify(call)
    return classified(code or grpc.StatusCode.DEADLINE_EXCEEDED, str(error.message))


def details_of(error: grpc.RpcError) -> ErrorDetails:
    """The resource, reason and permission in the details of an error."""
    known = getattr(error, "named", None)
    if isinstance(known, ErrorDetails):
        return known
    found = getattr(error, "trailing_metadata", None)
    metadata = found() if callable(found) else None
    for key, value in metadata or ():
        if key == _DETAILS:
            return _details_in(value)
    return NO_DETAILS


def _details_in(details: bytes) -> ErrorDetails:
    resource, info = error_details_pb2.ResourceInfo(), error_details_pb2.ErrorInfo()
    found = NO_DETAILS
    try:
        for detail in status_pb2.Status.FromString(details).details:
            if detail.Unpack(resource):
                found = found._replace(resource=str(resource.resource_type).removeprefix("type.googleapis.com/"))
            elif detail.Unpack(info):
                found = found._replace(reason=str(info.reason), permission=str(info.metadata.get("permission", "")))
    except DecodeError:
        pass  # the code and the message say enough
    return found


def is_lost_session(found: CallError) -> bool:
    """True if a session is gone, by the resource that the server names, or else by its message."""
    if found.code is not grpc.StatusCode.NOT_FOUND:
        return False
    resource = found.details.resource
    return resource == _SESSION_TYPE if resource else _SESSION.match(found.message) is not None


def classified(code: grpc.StatusCode, message: str, details: ErrorDetails = NO_DETAILS) -> CallError:
    """Classifies an error by its code, its message and its details."""
    found = CallError(code, message, CallAction.STOP, details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE.search(message):
        action = CallAction.STOP  # this client's own limit: a retry would exceed it again
    elif code in _RETRIED or (code is grpc.StatusCode.INTERNAL and _BROKEN_TRANSPORT.search(message)):
        action = CallAction.RETRY
    elif code is grpc.StatusCode.CANCELLED or is_lost_session(found):
        action = CallAction.NEW_SESSION
    elif code is grpc.StatusCode.UNAUTHENTICATED:
        action = CallAction.WAIT
    elif code is grpc.StatusCode.UNKNOWN and _BROKEN_TRANSPORT.search(message):
        action = CallAction.RETRY
    else:
        action = CallAction.STOP
    return replace(found, action=action)


def _rejected(what: str, hint: str) -> ConfigurationError:
    return ConfigurationError([f"{what}. {hint}"])


@dataclass(frozen=True, slots=True)
class Access:
    """Hints about the access to a database.

    Attributes:
        section: of the configuration that names the database.
        needs: what its user needs.
    """

    section: str
    needs: str


READER = Access(
    "source",
    "The reader needs roles/spanner.databaseReader, or a database_role with SELECT on the change stream and EXECUTE on"
    " its read function.",
)


def no_answer_hint(section: str, proxy: str = "", message: str = "") -> str:
    """A hint for a database that does not answer.

    Args:
        section: of the configuration that has its address.
        proxy: the environment variable with the proxy that calls go through.
        message: of the call's error.
    """
    return (
        handshake_hint(message, section)
        or proxy_hint(proxy)
        or f"Check the network, {section}.endpoint, or the emulator's address."
    )


def setup_error(found: CallError, database: str, access: Access = READER) -> SpannerCdcError:
    """The error to report for a call that was made before reading started."""
    names = [f"{access.section}.{name}" for name in ("project", "instance", "database")]
    if found.code is grpc.StatusCode.UNAUTHENTICATED:
        return unauthenticated(found, database)
    if found.action is not CallAction.STOP:
        has_token = _NO_TOKEN not in found.message
        return UnreachableError(
            f"Spanner does not answer for {database} ({found})",
            hint=no_answer_hint(access.section, found.proxy, found.message)
            if has_token
            else token_hint(found.message)
            or "Google gave no access token: check the network; if the credentials have expired or were revoked, run"
            " `gcloud auth application-default login`.",
        )
    match found.code:
        case grpc.StatusCode.NOT_FOUND:
            kind = gone_container(found) or "database"
            return _rejected(
                f"{kind} not found: {database} ({found})",
                f"Check {names[0]} and {names[1]}"
                if kind != "database"
                else f"Check {names[0]}, {names[1]} and {names[2]}",
            )
        case grpc.StatusCode.PERMISSION_DENIED:
            return denied(found, database, access.needs)
        case _:
            return StreamError(f"Spanner refused a call for {database} ({found})")


def retried(found: CallError, host: str, access: Access = READER) -> Cause:
    """The cause of retried calls to the Spanner at ``host``, for people."""
    code = found.code
    hint = no_answer_hint(access.section, found.proxy, found.message)
    match code:
        case grpc.StatusCode.UNAVAILABLE if _NO_TOKEN in found.message and (of_file := token_hint(found.message)):
            text, hint = "there is no token for Spanner", of_file
        case grpc.StatusCode.UNAVAILABLE if _NO_TOKEN in found.message:
            text = "Google gives no access token for Spanner"
            hint = "Check the network and the credentials: `gcloud auth application-default login` renews a user's."
        case grpc.StatusCode.UNAVAILABLE:
            text = f"Spanner does not answer at {host}"
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            text = f"Spanner at {host} refuses calls because a quota is exhausted"
            hint = "Look at the project's quotas and the instance's load: raise them, or add nodes."
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            text, hint = f"Spanner at {host} is too slow", SLOW_HINT
        case grpc.StatusCode.UNAUTHENTICATED:
            text = f"Spanner at {host} does not accept the credentials"
            hint = token_hint(found.message) or f"{_CREDENTIALS_HINT}."
        case grpc.StatusCode.PERMISSION_DENIED:
            text, hint = f"Spanner at {host} denies permission", _denied_hint(found, access.needs)
            if known := refusal(found.details.reason, found.message):
                text = f"Spanner at {host} refuses calls: {known.why}"
        case grpc.StatusCode.NOT_FOUND:
            text = f"Spanner at {host} no longer knows what is asked for"
            hint = (
                "Spanner answers, and a new session is made each time. Look whether the database was dropped, restored"
                " or moved."
            )
        case _:
            text = f"calls to Spanner at {host} break"
    return Cause(text, code.name, found.message, hint)


_CREDENTIALS_HINT = "Check that the credentials are valid and not revoked, and that this machine's clock is right"
SLOW_HINT = "Look at the instance's load and latencies, and at the network."
"""The hint for a slow server."""


def denied(found: CallError, what: str, needs: str = READER.needs) -> StreamError:
    """The error for a PERMISSION_DENIED."""
    known = refusal(found.details.reason, found.message)
    text = f"permission denied on {what}" if known is None else f"Spanner refuses {what}: {known.why}"
    return StreamError(f"{text} ({found})", hint=_denied_hint(found, needs))


def _denied_hint(found: CallError, needs: str) -> str:
    if known := refusal(found.details.reason, found.message):
        return known.hint
    missing = permission_in(found.details.permission, found.message)
    return f"This account lacks {missing}. {needs}" if missing else needs


def unauthenticated(found: CallError, what: str) -> StreamError:
    """The error for credentials that Spanner refuses."""
    if known := refusal(found.details.reason, ""):
        return StreamError(f"Spanner refuses {what}: {known.why} ({found})", hint=known.hint)
    return StreamError(
        f"Spanner does not accept the credentials for {what} ({found})",
        hint=token_hint(found.message) or f"{_CREDENTIALS_HINT}; then start it again: nothing is lost.",
    )


def gone_container(found: CallError) -> str:
    """The missing resource: ``database``, ``instance`` or ``project``; empty if the error is about something else."""
    if found.code is not grpc.StatusCode.NOT_FOUND:
        return ""
    kind = found.details.resource.rpartition(".")[2].lower()
    if kind in ("database", "instance", "project"):
        return kind
    match = _CONTAINER.match(found.message.strip())
    return match[1].lower() if match else ""


def query_error(found: CallError, *, stream: str, token: str, start: int) -> SpannerCdcError:
    """The error to report for a change stream query that cannot be retried.

    Args:
        found: the classified error.
        stream: the change stream's name.
        token: the partition's id.
        start: the timestamp at which the query started, Unix nanoseconds.
    """
    function = function_of(token)
    where = f"change stream {stream}, {partition_name(token)}, from {format_rfc3339(start)}"
    message = found.message
    if found.code is grpc.StatusCode.OUT_OF_RANGE and _TOO_OLD.search(message):
        return DataLostError(
            f"the data is no longer retained: {where} ({found})",
            hint="Nothing was skipped. Choose a later source.start.",
            earliest=_earliest(message),
        )
    if found.code is grpc.StatusCode.OUT_OF_RANGE and "too far in the future" in message:
        return _rejected(f"the start is in the future: {where} ({found})", "Choose a source.start that has passed")
    if found.code in _OF_BOUNDS and "heartbeat" in message and not _stream_is_gone(found):  # it may have the statement
        return _rejected(
            f"the heartbeat is refused: {where} ({found})", "Set source.heartbeat: 1s; up to 300s is taken"
        )
    if found.code is grpc.StatusCode.UNAUTHENTICATED:
        return unauthenticated(found, where)
    if found.code is grpc.StatusCode.PERMISSION_DENIED:
        return denied(found, where)
    if container := gone_container(found):
        return StreamGoneError(f"the {container} is gone: {where} ({found})", hint="Nothing that was sealed is lost.")
    if function is not None and (error := _function_error(found, token, function, where)):
        return error
    if _stream_is_gone(found):
        return StreamGoneError(
            f"the change stream is gone: {where} ({found})",
            hint="What was sealed is kept. A new change stream needs a new spool and a new source.start.",
        )
    return StreamError(f"cannot read {where} ({found})")


def _function_error(found: CallError, token: str, function: str, where: str) -> SpannerCdcError | None:
    """The error of a query of a placement's read function, where it has another meaning than of a stream's only one."""
    if _OTHER_FUNCTION in found.message:
        return StreamError(
            f"partition token {token_of(token)} was sent to read function {function}, to which it does not belong:"
            f" {where} ({found})",
            hint="Nothing was skipped. Report this line, which has no value of a row.",
        )
    if _stream_is_gone(found):
        return StreamGoneError(
            f"read function {function} is gone, and not all of it was read: {where} ({found})",
            hint="What was sealed is kept. Its placement was dropped before its records were read, or the change stream"
            " was: the rest of it cannot be read. To continue without it, leaving a record of the gap:"
            " spanner-cdc spool SPOOL --restart-at TIMESTAMP, later than that.",
        )
    if is_initial(token) and found.code in _OF_BOUNDS and "start_timestamp" in found.message:
        return DataLostError(
            f"read function {function} refuses the start: {where} ({found})",
            hint="Nothing was skipped. Choose a later source.start.",
            earliest=_earliest(found.message),
        )
    return None


_OTHER_FUNCTION = "does not belong to the placement TVF"
"""In the message about a token that was sent to the function of another placement."""

_TABLES_NEED = (
    "Reading tables needs roles/spanner.databaseReader, or a database_role with SELECT on them; Data Boost needs"
    " spanner.databases.useDataBoost, too."
)


def snapshot_error(found: CallError, *, what: str) -> SpannerCdcError:
    """The error to report for rows as of a timestamp that cannot be read.

    Args:
        found: the classified error.
        what: what was read: the database or the table, and the timestamp.
    """
    codes = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
    if found.code is grpc.StatusCode.FAILED_PRECONDITION and _TOO_STALE.search(found.message):
        return VersionRetentionError(
            f"the database no longer keeps the rows of {what} ({found})",
            hint="Read as of a later timestamp, or raise the database's version_retention_period before the next one.",
        )
    if found.code is grpc.StatusCode.UNAUTHENTICATED:
        return unauthenticated(found, what)
    if container := gone_container(found):
        return StreamGoneError(f"the {container} is gone: {what} ({found})", hint="Check the source's configuration.")
    is_gone = found.code in codes and _SNAPSHOT_GONE.search(found.message)
    if is_gone or (found.action is CallAction.NEW_SESSION and found.code is grpc.StatusCode.NOT_FOUND):
        return SnapshotLostError(
            f"{what} can no longer be read: the transaction is gone ({found})",
            hint="Divide the table into partitions again.",
        )
    if found.action is not CallAction.STOP:
        return UnreachableError(
            f"Spanner does not return the rows of {what} ({found})",
            hint=no_answer_hint(READER.section, found.proxy, found.message),
        )
    if found.code is grpc.StatusCode.PERMISSION_DENIED:
        return denied(found, what, _TABLES_NEED)
    if found.code in codes and _NO_SUCH_TABLE.search(found.message):
        return NoSuchTableError(f"cannot read {what} ({found})")
    return StreamError(f"cannot read {what} ({found})")


def _earliest(message: str) -> int | None:
    found = _EARLIEST.search(message)
    try:
        return parse(found[1]) if found else None
    except ValueError:
        return None


def _stream_is_gone(found: CallError) -> bool:
    gone = ("not found", "does not exist", "does not belong to the Change Stream", "unrecognized", "Unrecognized")
    codes = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
    return found.code in codes and any(text in found.message for text in gone)
