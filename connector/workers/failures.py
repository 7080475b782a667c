"""Errors on their way from a worker to its coordinator, where they mean what they would without a process between."""

import grpc

from connector.decoding.row_fields import UnknownRecordError
from connector.errors import SpannerCdcError, StreamError
from connector.log import Log, whereabouts
from connector.spanner.partition_query import SilentStreamError
from connector.workers.frames import Failure

_log = Log(__name__)


class RemoteCallError(grpc.RpcError):  # type: ignore[misc]  # the library ships no types
    """A call of a worker's that has ended with an error, or that has ended with its worker."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        """The status code."""
        return self._code

    def details(self) -> str:
        """What the server said."""
        return self._details


class WorkerFaultError(StreamError):
    """A fault of this program that a worker has met."""


def failure_of(error: Exception) -> Failure:
    """What is told of an error. Of one that is a fault of this program it is the type: its text may hold a row."""
    match error:
        case ExceptionGroup():
            return failure_of(error.exceptions[0])
        case grpc.RpcError():
            return Failure("call", error.details() or "", code=error.code().name)
        case SilentStreamError():
            return Failure("silence", str(error))
        case UnknownRecordError():
            return Failure("record", str(error))
        case SpannerCdcError():
            return Failure("ours", str(error.args[0]), hint=error.hint)
    _log.debug("a fault of this program", where=whereabouts(error))
    return Failure("fault", type(error).__name__)


def error_of(failure: Failure) -> Exception:
    """The error that a worker has told of."""
    match failure.kind:
        case "call":
            return RemoteCallError(grpc.StatusCode[failure.code], failure.message)
        case "silence":
            return SilentStreamError(failure.message)
        case "record":
            return UnknownRecordError(failure.message)
        case "ours":
            return StreamError(failure.message, hint=failure.hint)
        case "fault":
            return WorkerFaultError(
                f"a fault of this program, among its workers: {failure.message}", hint="--verbose tells where."
            )
