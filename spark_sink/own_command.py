"""The log of a process with a configuration; a command's printed lines, its exit code, its error in one line."""

import argparse
import signal
import sys
from collections.abc import Callable
from functools import partial

from connector import log
from connector.core.health.hints import with_paths
from connector.errors import line_and_exit_code
from connector.streams import give_up_streams, printing

INTERRUPTED = 128 + signal.SIGINT


def configure_log(given: argparse.Namespace) -> None:
    """Configures the log as the command line says; commands that a line names have the path of its configuration.

    Args:
        given: has ``config``, ``log_format`` and ``verbose``.
    """
    named = partial(with_paths, config=str(given.config))
    log.configure(json=given.log_format == "json", verbose=given.verbose, named=named)


def print_line(text: str) -> None:
    """Prints a text on stdout, and ends its line; see :func:`connector.streams.printing` for errors."""
    with printing():
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def exit_code_of(work: Callable[[], int], *, verbose: bool) -> int:
    """The exit code of a command's work; an error is printed as one line, an unexpected one, too.

    Args:
        work: returns its exit code.
        verbose: whether the traceback of an error is printed.
    """
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001
        line, code = line_and_exit_code(error)
        shown = error if verbose else None
        log.complain("spanner-cdc", line, action="command_failed", error=shown, exit_code=code)
        return code
    finally:
        give_up_streams()
