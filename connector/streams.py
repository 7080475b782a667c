"""The standard streams of a command: always open, and without an effect on its exit code once their reader has gone.

A closed descriptor is opened on ``/dev/null``. Otherwise the next file or socket takes its number, and whatever a
library writes to stderr goes into that file.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from connector.errors import StdoutError

_STDIN, _STDOUT, _STDERR = range(3)


def open_streams() -> None:
    """Opens the standard streams that are closed; a write to such a stdout is an error, to such a stderr none."""
    for number, flags in ((_STDIN, os.O_RDONLY), (_STDOUT, os.O_RDONLY), (_STDERR, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # it takes the lowest free number, which is this one
    if sys.stdout is None:
        sys.stdout = open(_STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(_STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process


@contextmanager
def standard_streams() -> Iterator[None]:
    """Opens the standard streams that are closed, and in the end forgets those that cannot be written."""
    open_streams()
    try:
        yield
    finally:
        give_up_streams()


@contextmanager
def writing_to_stdout() -> Iterator[None]:
    """Around writes to stdout.

    Raises:
        BrokenPipeError: its reader is gone.
        StdoutError: it cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(
            f"cannot write to standard output: {error.strerror or error}",
            hint="Free space on its disk, or send it elsewhere.",
        ) from error


@contextmanager
def printing() -> Iterator[None]:
    """The prints on stdout of a command that continues, and whose exit code stays, though their reader has gone.

    Raises:
        StdoutError: it cannot be written.
    """
    try:
        with writing_to_stdout():
            yield
    except BrokenPipeError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Puts ``/dev/null`` behind stdout: what is in its buffer, and all that follows, is written there."""
    with suppress(OSError, ValueError):  # a stand-in without a descriptor
        stdout = sys.stdout.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stdout)
        os.close(null)


def give_up_streams() -> None:
    """Forgets what cannot be written, before the interpreter's end would try once more and change the exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError):
            setattr(sys, name, None)
