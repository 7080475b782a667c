"""The file sink's own stream, with troubles: Spark's Python processes unpickle it, and so import this module.

One that comes to its point leaves word and stands still: whoever watches kills it, and what else is to be killed.
"""

import os
import time
from pathlib import Path

from tests.soak import patches
from tests.soak.trouble import Points, Trouble

_trouble = Trouble.of_environment()
patches.set_clock(_trouble)  # before the modules that remember the clock

from spark_sink import files  # noqa: E402
from spark_sink.file_source import FileSinkSource  # noqa: E402

_LONGEST = 30.0


def stand_still() -> None:
    """Until it is killed; should nobody do so, it ends."""
    time.sleep(_LONGEST)
    os._exit(1)


class TroubledSource(FileSinkSource):
    """The same source."""


def _kill_in_files(points: Points) -> None:
    begin, append, publish = files._OpenFile.__init__, files._OpenFile.append, files._OpenFile.publish

    def troubled_begin(self: files._OpenFile, path: Path, *, compressed: bool) -> None:
        points.reached("before a file is written")
        begin(self, path, compressed=compressed)

    def troubled_append(self: files._OpenFile, line: bytes) -> None:
        append(self, line)
        points.reached("in the middle of a file")

    def troubled_publish(self: files._OpenFile) -> None:
        points.reached("before a file has its name")
        publish(self)
        points.reached("after a file has its name")

    files._OpenFile.__init__ = troubled_begin  # type: ignore[method-assign]
    files._OpenFile.append = troubled_append  # type: ignore[method-assign]
    files._OpenFile.publish = troubled_publish  # type: ignore[method-assign]


points = Points(_trouble, stand_still)
_kill_in_files(points)
patches.kill_at_progress(points)
patches.trouble_disk(_trouble, full_at=_trouble.sink_full_at, name=patches.SINK_FULL)
