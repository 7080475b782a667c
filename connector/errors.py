"""What can go wrong, as sentences for people: what failed, on what, and what to do next.

Libraries' exceptions are translated where they are met and kept as the cause. Each error knows the exit code that
the commands promise: 0 done, 1 failed, 2 refused, 3 data no longer retained, 130 interrupted.
"""

from typing import ClassVar

TRANSIENT = 75
"""The exit code of a child process that may be started again: EX_TEMPFAIL of sysexits.h.

A sink's process ends with it after an error of Spark's, the daemon of a Spark job if another one writes the spool.
"""

REASON_TO = "SPANNER_CDC_REASON_TO"
"""The environment's variable that names the file descriptor to which a sink writes why it ends with an error."""


class SpannerCdcError(Exception):
    """An error with one clear line; ``hint`` says what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = " ".join(str(self.args[0]).split())
        return f"{message.rstrip('.')}. {self.hint}" if self.hint else message


def told(error: Exception) -> tuple[str, int]:
    """What a command says of an error, on one line, and its exit code.

    Of a fault of ours it names the type alone: the text might hold a row's values.
    """
    match error:
        case SpannerCdcError():
            return str(error), error.exit_code
        case OSError():
            return f"{error.strerror or error}: {error.filename or 'the system refused'}", 1
        case _:
            return f"a fault of this program: {type(error).__name__}; --verbose tells where", 1


class ConfigurationError(SpannerCdcError):
    """The configuration, or what it points at, is refused before anything starts; names every fault at once."""

    exit_code = 2

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class DataLostError(SpannerCdcError):
    """Spanner does not retain the data any more that would have to be read next.

    ``earliest`` is the first instant that it still has, in nanoseconds since the epoch, or None where it does not say.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "", earliest: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.earliest = earliest


class EventError(SpannerCdcError):
    """An event cannot be written: a value is not of its type. The message names no value."""


class StreamError(SpannerCdcError):
    """Reading the change stream cannot go on."""


class UnreachableError(StreamError):
    """Spanner has not answered for a while; asked again later it may."""


class SpoolError(SpannerCdcError):
    """The spool cannot be used: a corrupt file, a disk that is full or read-only, a newer version."""


class SpoolInUseError(SpoolError):
    """Another daemon writes this spool."""


class TakenOverError(SpoolInUseError):
    """Another process has taken this one's place while it was not heard of; to start again would not win it back."""


class SpoolMismatchError(SpoolError):
    """The spool holds another change stream."""

    exit_code = 2
