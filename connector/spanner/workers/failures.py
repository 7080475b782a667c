"""Sends errors from a worker to its coordinator, where they are raised as they would be in one process."""

import grpc

from connector.errors import ConfigurationError, SpannerCdcError, StreamError
from connector.log import Log, whereabouts
from connector.spanner.decoding.row_fields import UnknownRecordError
from connector.spanner.errors import NO_DETAILS, ErrorDetails, details_of
from connector.spanner.partition_query import SilentStreamError
from connector.spanner.workers.frames import FailureFrame

_log = Log(__name__)


class RemoteCallError(grpc.RpcError):  # type: ignore[misc]  # the library ships no types
    """A call of a worker that has failed, or that has ended with its worker."""

    def __init__(self, code: grpc.StatusCode, details: str, named: ErrorDetails = NO_DETAILS) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details
        self.named = named
        """The names in its details; see :func:`connector.spanner.errors.details_of`."""

    def code(self) -> grpc.StatusCode:
        """The status code."""
        return self._code

    def details(self) -> str:
        """The server's message."""
        return self._details


class WorkerEndedError(RemoteCallError):
    """A worker has ended, and its queries with it."""

    def __init__(self, details: str) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, details)


class WorkerBugError(StreamError):
    """An internal error in a worker."""


def failure_of(error: Exception) -> FailureFrame:
    """Describes an error. Of an internal error only the type is described: its text may hold a row's values."""
    match error:
        case ExceptionGroup():
            return failure_of(error.exceptions[0])
        case grpc.RpcError():
            return FailureFrame("call", error.details() or "", code=error.code().name, details=details_of(error))
        case SilentStreamError():
            return FailureFrame("silence", str(error))
        case UnknownRecordError():
            return FailureFrame("record", str(error))
        case ConfigurationError():
            return FailureFrame("configuration", str(error))
        case SpannerCdcError():
            return FailureFrame("known", str(error.args[0]), hint=error.hint)
    _log.debug("internal error", where=whereabouts(error))
    return FailureFrame("internal", type(error).__name__)


def error_of(failure: FailureFrame) -> Exception:
    """The error that a worker has described."""
    match failure.kind:
        case "call":
            return RemoteCallError(grpc.StatusCode[failure.code], failure.message, failure.details)
        case "worker":
            return WorkerEndedError(failure.message)
        case "silence":
            return SilentStreamError(failure.message)
        case "record":
            return UnknownRecordError(failure.message)
        case "configuration":
            return ConfigurationError([failure.message])
        case "known":
            return StreamError(failure.message, hint=failure.hint)
        case "internal":
            return WorkerBugError(f"internal error in a worker: {failure.message}", hint="--verbose logs where.")
