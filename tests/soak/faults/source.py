"""The file sink's source with faults: Spark's Python processes unpickle it, and so import this module.

A process that reaches its point marks it and waits: the campaign then kills it, with what else is to be killed.
"""

import os
import time
from pathlib import Path

from tests.soak.faults import patches
from tests.soak.faults.process_faults import Points, ProcessFaults

_faults = ProcessFaults.of_environment()
patches.set_clock(_faults)  # before modules that import the clock's function

from connector.spool.storage.local_files import DiskErrors, LocalFile  # noqa: E402
from spark_sink.sinks.files.source import FileSinkSource  # noqa: E402

_LONGEST = 30.0


def wait_for_kill() -> None:
    """Waits until the process is killed; ends it if that does not happen."""
    time.sleep(_LONGEST)
    os._exit(1)


class FaultySource(FileSinkSource):
    """The source; importing its module injects the faults."""


def _kill_in_files(points: Points) -> None:
    begin, append, publish = LocalFile.__init__, LocalFile.append, LocalFile.publish

    def reached(file: LocalFile, point: str) -> None:
        if "consumers" not in file.path.parts:  # which are the spool's
            points.reached(point)

    def faulty_begin(self: LocalFile, path: Path, errors: DiskErrors) -> None:
        self.path = path
        reached(self, "before a file is written")
        begin(self, path, errors)

    def faulty_append(self: LocalFile, data: bytes | memoryview) -> None:
        append(self, data)
        reached(self, "in the middle of a file")

    def faulty_publish(self: LocalFile) -> None:
        reached(self, "before a file has its name")
        publish(self)
        reached(self, "after a file has its name")

    LocalFile.__init__ = faulty_begin  # type: ignore[method-assign]
    LocalFile.append = faulty_append  # type: ignore[method-assign]
    LocalFile.publish = faulty_publish  # type: ignore[method-assign]


points = Points(_faults, wait_for_kill)
_kill_in_files(points)
patches.kill_at_progress(points)
patches.inject_disk_faults(_faults, full_at=_faults.sink_full_at, name=patches.SINK_FULL)
