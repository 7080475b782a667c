"""What can go wrong in a sink and with its files, beside what can go wrong in the spool (:mod:`connector.errors`)."""

import re

from connector.errors import SpannerCdcError, SpoolInUseError

_LINE = re.compile(r"(?:connector|spark_sink)\.errors\.(\w+): (.+)")
_TRACEBACK = "Traceback (most recent call last):"
_KIND = re.compile(r"^(?:\w+\.)*(\w+)(?::|$)", re.MULTILINE)
"""A line of a traceback that is not indented: the exception's, after those of the stack."""

_CALLING = "An error occurred while calling "
_JAVA_KIND = re.compile(r"^(?:: )?(?:[\w$]+\.)+([\w$]+)(?::|$)", re.MULTILINE)
"""The first exception of a JVM's text."""

_REFUSALS = frozenset(
    {
        "AccessControlException",
        "AccessDeniedException",
        "AnalysisException",
        "IllegalArgumentException",
        "ParentNotDirectoryException",
        "UnsupportedFileSystemException",
    }
)
_NO_RIGHTS = re.compile(r"Permission denied|java\.io\.IOException: mkdir of ")
_FAULTS = frozenset(
    {
        "AssertionError",
        "AttributeError",
        "ImportError",
        "IndexError",
        "KeyError",
        "ModuleNotFoundError",
        "NameError",
        "NotImplementedError",
        "TypeError",
        "UnboundLocalError",
    }
)
_PASSING = re.compile(r"Python worker|java\.net\.\w+Exception|[Tt]imed out|TimeoutException|OutOfMemoryError")
"""What a machine under load, or a network, brings about, whatever it is wrapped in."""


class SinkError(SpannerCdcError):
    """The destination cannot be written."""


class TableRefusedError(SinkError):
    """None of a table's events can be written, whatever they hold."""


class TableError(SinkError):
    """One table cannot be written until somebody has repaired it; the others can."""


class EventFileError(SpannerCdcError):
    """Files of events cannot be read back."""


def is_ours(error: BaseException) -> bool:
    """Whether the connector or a sink raised an error, which Spark may have wrapped; else it is Spark's own."""
    return isinstance(error, SpannerCdcError) or _LINE.search(_text(error)) is not None


def is_in_use(error: BaseException) -> bool:
    """Whether another process holds what a sink needs, which Spark may have wrapped; one that was killed soon ends."""
    found = _LINE.findall(_text(error))
    kind = found[-1][0] if found else type(error).__name__
    return kind == SpoolInUseError.__name__


def is_permanent(error: BaseException) -> bool:
    """Whether an error of Spark's own comes again however often a sink is started, if it comes before all else.

    So it is with a configuration or a checkpoint that Spark refuses, and with a fault of this program.
    """
    text = _text(error)
    if _PASSING.search(text):
        return False
    if _TRACEBACK in text:
        return _fault(text) in _FAULTS
    names = {kind.__name__ for kind in type(error).__mro__}
    cause = getattr(error, "_cause", None)
    if "StreamingQueryException" in names and isinstance(cause, BaseException):
        return is_permanent(cause)
    named = _JAVA_KIND.search(text)
    if named:
        names.add(named[1])
    return not names.isdisjoint(_REFUSALS) or _NO_RIGHTS.search(text) is not None


def clear_line(error: BaseException) -> str:
    """The one line that says what went wrong, out of an exception that Spark wrapped, traceback and all.

    Where the connector or a sink raised an error, it is that error's line; else the first line of the exception. Of a
    traceback only the exception's kind is told: its text might hold a row's values.
    """
    if isinstance(error, SpannerCdcError):
        return str(error)
    text = _text(error)
    ours: list[tuple[str, str]] = _LINE.findall(text)
    if ours:
        return ours[-1][1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    if lines[0].startswith(_CALLING) and lines[1:]:  # the exception follows
        lines = [lines[1].removeprefix(": "), *lines[2:]]
    if not lines[0].endswith(_TRACEBACK):
        return lines[0]
    return f"{lines[0].removesuffix(_TRACEBACK)}{_fault(text) or 'a fault'}; --verbose tells where"


def _fault(text: str) -> str:
    """The kind of the exception of the last traceback in a text: the innermost, and what it ended with."""
    kind = _KIND.search(text.rpartition(_TRACEBACK)[2].lstrip("\n"))
    return kind[1] if kind else ""


def _text(error: BaseException) -> str:
    """An exception's text, or its kind: of some of them the JVM has the text, which may be gone."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever py4j meets
        return type(error).__name__
