"""The errors of the BigQuery double: one for both of its interfaces, and one for the Write API only."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum

import grpc


class StorageCode(IntEnum):
    """The codes of the Write API's StorageError."""

    TABLE_NOT_FOUND = 1
    STREAM_ALREADY_COMMITTED = 2
    STREAM_NOT_FOUND = 3
    INVALID_STREAM_TYPE = 4
    INVALID_STREAM_STATE = 5
    STREAM_FINALIZED = 6
    SCHEMA_MISMATCH_EXTRA_FIELDS = 7
    OFFSET_ALREADY_EXISTS = 8
    OFFSET_OUT_OF_RANGE = 9


class Reason(Enum):
    """The reason why a request is refused: that of REST, its HTTP status, and gRPC's code."""

    INVALID = ("invalid", 400, grpc.StatusCode.INVALID_ARGUMENT)
    INVALID_QUERY = ("invalidQuery", 400, grpc.StatusCode.INVALID_ARGUMENT)
    ACCESS_DENIED = ("accessDenied", 403, grpc.StatusCode.PERMISSION_DENIED)
    NOT_FOUND = ("notFound", 404, grpc.StatusCode.NOT_FOUND)
    QUOTA_EXCEEDED = ("quotaExceeded", 403, grpc.StatusCode.RESOURCE_EXHAUSTED)
    DUPLICATE = ("duplicate", 409, grpc.StatusCode.ALREADY_EXISTS)
    CONDITION_NOT_MET = ("conditionNotMet", 412, grpc.StatusCode.FAILED_PRECONDITION)
    NOT_IMPLEMENTED = ("notImplemented", 501, grpc.StatusCode.UNIMPLEMENTED)

    def __init__(self, word: str, status: int, code: grpc.StatusCode) -> None:
        self.word = word
        self.status = status
        self.code = code


class RefusedError(Exception):
    """A request is refused, over REST or before the Write API reads rows."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = reason.code
        self.message = message


class WriteError(Exception):
    """A request is refused by the Write API.

    Attributes:
        code: gRPC's code.
        message: the error message.
        storage: the code of StorageError, by which clients decide; None if there is none.
        rows: the index and message of each invalid row.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        storage: StorageCode | None = None,
        rows: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.storage = storage
        self.rows = rows


def invalid(message: str) -> RefusedError:
    """Returns the error of an invalid request."""
    return RefusedError(Reason.INVALID, message)


def unwritable(message: str, storage: StorageCode | None = None) -> WriteError:
    """Returns the error of an invalid request of the Write API."""
    return WriteError(grpc.StatusCode.INVALID_ARGUMENT, message, storage)
