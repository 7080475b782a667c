"""The end of a sinks' own command, which runs in a process: its exit code, and its error in one line."""

import signal
from collections.abc import Callable

from connector import log
from connector.errors import line_and_exit_code
from connector.streams import give_up_streams

INTERRUPTED = 128 + signal.SIGINT


def exit_code_of(work: Callable[[], int], *, verbose: bool) -> int:
    """The exit code of a command's work; an error is printed as one line, an unexpected one, too.

    Args:
        work: returns its exit code.
        verbose: whether the traceback of an error is printed.
    """
    try:
        return work()
    except BrokenPipeError:
        return 0  # its reader has seen enough
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001
        line, code = line_and_exit_code(error)
        shown = error if verbose else None
        log.complain("spanner-cdc", line, action="command_failed", error=shown, exit_code=code)
        return code
    finally:
        give_up_streams()
