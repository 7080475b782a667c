"""Stores and spools in buckets of tests; run as a module, it is a daemon that seals until it is killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from connector.errors import SpoolError, StorageUnavailableError
from connector.spool.reading import Spool
from connector.spool.storage.gcs import GcsStore
from connector.spool.writing import initialize, sole_writer
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, SINGERS, sealed, writer_of

DAEMON = """
import sys
from tests.connector.spool.storage.buckets import seal_for_ever
seal_for_ever(sys.argv[1])
"""


def begun(url: str) -> Spool:
    spool = Spool.at(url)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def seal_for_ever(url: str) -> None:
    """Seals epochs until the process is killed."""
    spool = Spool.at(url)
    with sole_writer(spool):
        writer = writer_of(spool)
        sys.stdout.write("writes\n")
        sys.stdout.flush()
        while True:
            sealed(writer)


@contextmanager
def daemon(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", DAEMON, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == b"writes\n", one.stderr and one.stderr.read().decode()
        try:
            yield one
        finally:
            one.kill()


def uploads(method: str, path: str) -> bool:
    return method == "POST" and "/upload/" in path


def opened(url: str, *, patience: float = 0.4) -> GcsStore:
    return GcsStore(
        url, patience=patience, failure=SpoolError, unavailable=StorageUnavailableError, option="spool.path"
    )
