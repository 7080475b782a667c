"""The meaning of an error of Spark or of its JVM: its kind, its line and its exit code.

PySpark raises a PySparkException; but a job that fails or is cancelled in ``collect()`` raises py4j's error, and where
the JVM has died, py4j raises one of its network or a ConnectionError. Whoever catches errors of Spark catches
:data:`SPARK_ERRORS`, and asks here what they mean.
"""

from enum import Enum, auto

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from connector.errors import TRANSIENT, SpannerCdcError, line_and_exit_code
from spark_sink.errors import clear_line, is_own, is_permanent, own_exit_code, text_of

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""Every error of Spark and of its JVM, as Python sees it; a died JVM may also be a ConnectionError."""

JOB_ERRORS: tuple[type[Exception], ...] = (SpannerCdcError, *SPARK_ERRORS)
"""The errors that a job raises: those of the connector or a sink, and those of Spark."""

_CANCELLED = "SPARK_JOB_CANCELLED"
_JVM_IS_GONE = "Spark's JVM has died, perhaps out of memory. Start it again: it continues from its checkpoint."


class Meaning(Enum):
    """The meaning of an error of a job for the process that runs it."""

    OWN = auto()
    """It is the connector's or a sink's, which Spark may have wrapped: to try the job again is of no use."""

    JVM_GONE = auto()
    """The JVM has died: only a new process may succeed."""

    CANCELLED = auto()
    """The job was cancelled: by the process that runs it, which then knows, or else by a person."""

    PERMANENT = auto()
    """Spark's own, which every attempt meets again."""

    TRANSIENT = auto()
    """Spark's own, which another attempt may not meet."""

    @property
    def is_worth_another_attempt(self) -> bool:
        """True if the same job may succeed in the same JVM."""
        return self in (Meaning.TRANSIENT, Meaning.CANCELLED)


def is_jvm_gone(error: BaseException) -> bool:
    """True if the JVM has died."""
    return isinstance(error, (Py4JNetworkError, ConnectionError))


def meaning_of(error: BaseException) -> Meaning:
    """The meaning of an error that a job or a query has raised."""
    if is_own(error):
        return Meaning.OWN
    if is_jvm_gone(error):
        return Meaning.JVM_GONE
    if _CANCELLED in text_of(error):
        return Meaning.CANCELLED
    return Meaning.PERMANENT if is_permanent(error) else Meaning.TRANSIENT


def line_and_code(error: Exception) -> tuple[str, int]:
    """The line for people, and the exit code of a process; of an unexpected error the line has the type alone."""
    if not isinstance(error, (SpannerCdcError, *SPARK_ERRORS, ConnectionError)):
        return line_and_exit_code(error)
    return _JVM_IS_GONE if is_jvm_gone(error) else clear_line(error), code_of(error)


def code_of(error: Exception) -> int:
    """The exit code, which says whether a new process may succeed."""
    if (code := own_exit_code(error)) is not None:
        return code
    if isinstance(error, SpannerCdcError):
        return error.exit_code
    is_sparks = isinstance(error, (*SPARK_ERRORS, ConnectionError)) and meaning_of(error) is not Meaning.OWN
    return TRANSIENT if is_sparks else 1
