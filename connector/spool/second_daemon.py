"""A daemon that was refused a spool because another one writes it: it leaves a note, which that one's alarms show.

The note lies beside the consumers, whose folder the daemon lists every few seconds anyway.
"""

import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from connector.core.health.alarms import RefusedDaemon
from connector.errors import SpoolError, SpoolInUseError
from connector.spool.manifest import Document, Timestamp
from connector.spool.reading import Spool, to_json
from connector.spool.writing import sole_writer

_FOLDER, _NAME = "consumers", "second-daemon.refused"
_PATH = f"{_FOLDER}/{_NAME}"


class _Note(Document):
    host: str
    process: int
    time: Timestamp


@contextmanager
def sole_daemon(spool: Spool, *, now: int) -> Iterator[None]:
    """Holds the spool's lock for this process, a daemon; one that is refused leaves a note.

    Args:
        spool: the spool.
        now: nanoseconds since 1970.

    Raises:
        SpoolInUseError: another daemon writes it.
    """
    with ExitStack() as lock:
        try:
            lock.enter_context(sole_writer(spool))
        except SpoolInUseError:
            note = _Note(host=socket.gethostname(), process=os.getpid(), time=now)
            with suppress(SpoolError):
                spool.storage.replace(_PATH, to_json(note))
            raise
        with suppress(SpoolError):
            spool.storage.delete(_PATH)  # of a start that came before the last daemon had ended
        yield


def refused_daemon(spool: Spool, files: Iterable[str] | None = None) -> RefusedDaemon | None:
    """The daemon that was refused last, since the one that writes the spool has started; None if none was.

    Args:
        spool: the spool.
        files: the names of those beside the consumers; None to list them.

    Raises:
        SpoolError: the spool cannot be read.
    """
    names = spool.storage.list(_FOLDER) if files is None else files
    note = spool.find_valid(_PATH, _Note) if _NAME in names else None
    return None if note is None else RefusedDaemon(note.host, note.process, note.time)
