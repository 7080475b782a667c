"""The connector's errors. Each message is one line: what failed, on what, and what to do next.

Libraries' exceptions are translated where they are caught and kept as the cause. Each error has the exit code that the
commands promise: 1 failed, and a restart may succeed; 2 invalid usage or configuration; 3 data no longer retained; 4
failed permanently; 5 not reloaded. After 4 every restart meets the same error until its cause is mended.
"""

import errno
from typing import ClassVar

TRANSIENT = 75
"""The exit code of a child process that may be started again: EX_TEMPFAIL of sysexits.h.

A sink's process ends with it after an error of Spark's, the daemon of a Spark job if another one writes the spool.
"""

FAILED_PERMANENTLY = 4
"""The exit code of an error that every restart meets again, until its cause is mended."""

NOT_RELOADED = 5
"""The exit code of ``reload`` where options need a restart, or are refused."""

REASON_TO = "SPANNER_CDC_REASON_TO"
"""The environment variable with the file descriptor to which a sink's process writes why it ends with an error."""

UNANSWERED = "unanswered"
"""The line before the reason if what the sink needs has not answered for as long as a process asks for it."""


class SpannerCdcError(Exception):
    """An error whose text is one line; ``hint`` says what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def message(self) -> str:
        """The line without its hint, and without a full stop."""
        return " ".join(str(self.args[0]).split()).rstrip(".")

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else " ".join(str(self.args[0]).split())


def line_and_exit_code(error: Exception) -> tuple[str, int]:
    """The line that a command prints for an error, and its exit code.

    Of an unexpected error the line has the type alone: the text might hold a row's values.
    """
    match error:
        case SpannerCdcError():
            return str(error), error.exit_code
        case OSError():
            line = f"{error.strerror or error}: {error.filename or 'the operating system reports no file'}"
            return f"{line}. {hint}" if (hint := advice(error)) else line, 1
        case _:
            return f"internal error: {type(error).__name__}; run it with --verbose to see where", 1


def is_final(error: BaseException) -> bool:
    """True if a restart meets the same error: invalid configuration, data no longer retained, or a permanent one."""
    return isinstance(error, SpannerCdcError) and error.exit_code in (2, 3, FAILED_PERMANENTLY)


def advice(error: OSError, *, option: str = "", access: str = "") -> str:
    """A hint for an error of the operating system; empty where its number does not tell.

    Args:
        error: of a file, a folder or a socket.
        option: the option that chose the path.
        access: the access to the path that was wanted: ``read`` or ``write``.
    """
    given = f" with {option}" if option else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "Free space on that disk and start again: nothing is lost, it continues from the last epoch."
        case errno.EMFILE:
            return (
                "Raise the limit of open files (ulimit -n, or LimitNOFILE of the systemd unit) and start again:"
                " nothing is lost."
            )
        case errno.ENFILE:
            return (
                "All open files of this machine are in use: raise fs.file-max, or end what holds them, and start again:"
                " nothing is lost."
            )
        case errno.EROFS:
            return f"That file system is read-only: mount it writable, or choose another path{given}."
        case errno.ENAMETOOLONG:
            return f"Choose a shorter path{given}; names of tables are a part of it."
        case errno.ENOTDIR:
            return f"A part of that path is a file where a folder belongs: move it away, or choose another{given}."
        case errno.EACCES | errno.EPERM:
            return (
                f"Give this user {f'{access} access' if access else 'access'} to that path, or choose another{given}."
            )
    return ""


class ConfigurationError(SpannerCdcError):
    """The configuration, or what it points at, is invalid; found before anything starts.

    ``errors`` are all that were found, each after the option that it is about.
    """

    exit_code = 2

    def __init__(self, errors: list[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class NotReloadedError(SpannerCdcError):
    """Options of an edited configuration need a restart, or are refused, so that none was applied."""

    exit_code = NOT_RELOADED


class BeforeStreamError(ConfigurationError):
    """A start before the change stream or its database existed.

    ``earliest`` is the first start that it accepts, in nanoseconds since 1970, or None if it was not determined.
    """

    def __init__(self, errors: list[str], *, earliest: int | None = None) -> None:
        super().__init__(errors)
        self.earliest = earliest


class DataLostError(SpannerCdcError):
    """Spanner no longer retains the data that is to be read next.

    ``earliest`` is the first timestamp that it retains, in nanoseconds since 1970, or None where it does not say.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", earliest: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.earliest = earliest


class PlacementLostError(DataLostError):
    """A placement was added and dropped before it was read; ``gone`` is a time at which it was, if it is known."""

    def __init__(self, message: str, *, hint: str = "", gone: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.gone = gone


class VersionRetentionError(DataLostError):
    """Rows as of a timestamp cannot be read: it is older than the versions that the database keeps."""


class EventError(SpannerCdcError):
    """An event cannot be written, because a value does not have its column's type. The message contains no value.

    ``reason`` is the fault alone, without the event that has it: dead letters are counted by it.
    """

    exit_code = FAILED_PERMANENTLY

    def __init__(self, message: str, *, hint: str = "", reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason or str(self)


class StdoutError(SpannerCdcError):
    """Standard output cannot be written: its disk is full, or it is closed."""


class StreamError(SpannerCdcError):
    """Reading the change stream cannot continue."""


class LateRecordError(StreamError):
    """A record was returned after Spanner had proved that everything up to its timestamp had been returned."""


class UnreadableRecordError(StreamError):
    """A record is not what Spanner documents: a value of another kind, a field that is missing. Nothing is skipped."""

    exit_code = FAILED_PERMANENTLY


class StreamGoneError(StreamError):
    """The change stream or its database was dropped while it was read."""

    exit_code = FAILED_PERMANENTLY


class UnreachableError(StreamError):
    """Spanner has not answered for a while; a later attempt may succeed."""


class SnapshotLostError(StreamError):
    """A snapshot cannot be read any more: its session, its transaction or a partition token is gone."""


class NoSuchTableError(StreamError):
    """A table or a column does not exist as of the timestamp at which it was to be read."""


class SpoolError(SpannerCdcError):
    """The spool cannot be used: a corrupt file, a disk that is full or read-only, a newer version."""


class StorageUnavailableError(SpoolError):
    """The spool's bucket has not answered for a while; a later attempt may succeed."""


class SpoolInUseError(SpoolError):
    """Another daemon writes this spool."""


class TakenOverError(SpoolInUseError):
    """Another process has taken this one's place in a bucket; a restart would not win it back."""


class SpoolMismatchError(SpoolError):
    """The spool holds another change stream."""

    exit_code = 2
