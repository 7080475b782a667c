"""Spools that the daemon has written, and what makes them shorter or other than they were."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import connector
from connector.spool.reading import Spool as StoredSpool
from connector.spool.reading import manifest_path
from emulator import ScriptedServer
from tests.connector.api.streams import drawn, serving, settings

SCENARIO = drawn(seed=5)


_RUNS = 12


def written_by_the_daemon(path: Path) -> Path:
    """Reads the whole scenario into a spool, in so many runs that it has many epochs also on a slow machine."""
    history = SCENARIO.history
    with serving(SCENARIO) as server:
        for run in range(1, _RUNS + 1):
            read_into(path, server, end=history.origin + (history.horizon - history.origin) * run // _RUNS)
    return path


def read_into(
    path: Path, server: ScriptedServer, *, end: int | None = None, source: Mapping[str, object] | None = None
) -> Path:
    """Runs the daemon until it has read a server's stream into a spool, or until ``end`` in nanoseconds."""
    config = settings(server, spool=path, end=end, source=source)
    asyncio.run(connector.read(connector.load_config(config)))
    return path


def prune(path: Path, first: int) -> None:
    """Deletes the epochs before ``first``, as the daemon does."""
    spool = StoredSpool.at(path)
    before = list(spool.manifests(spool.floor(), first - 1))
    spool.storage.replace("floor.json", b'{"version":1,"first":%d,"writer":"test"}' % first)
    for manifest in before:
        spool.storage.delete(manifest_path(manifest.epoch), *(file.path for file in manifest.files))


def truncate(path: Path, last: int) -> None:
    """Puts an older copy of the spool back: one that ends with epoch ``last``."""
    spool = StoredSpool.at(path)
    spool.storage.delete(*(manifest_path(epoch) for epoch in range(last + 1, spool.latest() + 1)))


def copied(path: Path, to: Path) -> Path:
    """A copy of a spool."""
    shutil.copytree(path, to)
    return to
