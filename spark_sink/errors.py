"""What can go wrong in a sink and with its files, beside what can go wrong in the spool (:mod:`connector.errors`)."""

import errno
import re
from pathlib import Path

from connector.errors import SpannerCdcError

_LINE = re.compile(r"(?:connector|spark_sink)\.errors\.\w+: (.+)")
_TRACEBACK = "Traceback (most recent call last):"
_KIND = re.compile(r"^(?:\w+\.)*(\w+)(?::|$)", re.MULTILINE)
"""A line of a traceback that is not indented: the exception's, after those of the stack."""


class SinkError(SpannerCdcError):
    """The destination cannot be written."""


class TableRefusedError(SinkError):
    """None of a table's events can be written, whatever they hold."""


class TableError(SinkError):
    """One table cannot be written until somebody has repaired it; the others can."""


class EventFileError(SpannerCdcError):
    """Files of events cannot be read back."""


def refused(path: Path, error: OSError) -> SinkError:
    """The error for a file of the destination that the disk refuses."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            hint = "Free space on that disk and start again: nothing is lost, the epochs are in the spool."
        case errno.EROFS | errno.EACCES | errno.EPERM | errno.ENOTDIR:
            hint = "Give this user write access to that path, or choose another with sink.path."
        case _:
            hint = "Repair the disk, or choose another path with sink.path."
    return SinkError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def is_ours(error: BaseException) -> bool:
    """Whether the connector or a sink raised an error, which Spark may have wrapped; else it is Spark's own."""
    return isinstance(error, SpannerCdcError) or _LINE.search(str(error)) is not None


def clear_line(error: BaseException) -> str:
    """The one line that says what went wrong, out of an exception that Spark wrapped, traceback and all.

    Where the connector or a sink raised an error, it is that error's line; else the first line of the exception. Of a
    traceback only the exception's kind is told: its text might hold a row's values.
    """
    if isinstance(error, SpannerCdcError):
        return str(error)
    text = str(error)
    lines: list[str] = _LINE.findall(text)
    if lines:
        return lines[-1].strip()
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    if not first.endswith(_TRACEBACK):
        return first
    kind = _KIND.search(text.partition(_TRACEBACK)[2].lstrip("\n"))
    return f"{first.removesuffix(_TRACEBACK)}{kind[1] if kind else 'a fault'}; --verbose tells where"
