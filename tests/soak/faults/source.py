"""The file sink's own stream, with troubles: Spark's Python processes unpickle it, and so import this module.

One that comes to its point leaves word and stands still: whoever watches kills it, and what else is to be killed.
"""

import os
import time
from pathlib import Path

from tests.soak.faults import patches
from tests.soak.faults.fault import Points, Trouble

_trouble = Trouble.of_environment()
patches.set_clock(_trouble)  # before the modules that remember the clock

from connector.storage.local_files import DiskErrors, LocalFile  # noqa: E402
from spark_sink.files.source import FileSinkSource  # noqa: E402

_LONGEST = 30.0


def stand_still() -> None:
    """Until it is killed; should nobody do so, it ends."""
    time.sleep(_LONGEST)
    os._exit(1)


class TroubledSource(FileSinkSource):
    """The same source."""


def _kill_in_files(points: Points) -> None:
    begin, append, publish = LocalFile.__init__, LocalFile.append, LocalFile.publish

    def reached(file: LocalFile, point: str) -> None:
        if "consumers" not in file.path.parts:  # which are the spool's
            points.reached(point)

    def troubled_begin(self: LocalFile, path: Path, errors: DiskErrors) -> None:
        self.path = path
        reached(self, "before a file is written")
        begin(self, path, errors)

    def troubled_append(self: LocalFile, data: bytes | memoryview) -> None:
        append(self, data)
        reached(self, "in the middle of a file")

    def troubled_publish(self: LocalFile) -> None:
        reached(self, "before a file has its name")
        publish(self)
        reached(self, "after a file has its name")

    LocalFile.__init__ = troubled_begin  # type: ignore[method-assign]
    LocalFile.append = troubled_append  # type: ignore[method-assign]
    LocalFile.publish = troubled_publish  # type: ignore[method-assign]


points = Points(_trouble, stand_still)
_kill_in_files(points)
patches.kill_at_progress(points)
patches.trouble_disk(_trouble, full_at=_trouble.sink_full_at, name=patches.SINK_FULL)
