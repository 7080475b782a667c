"""The Dataflow templates do not take the documents of complete minutes for files of events.

What DataStreamIO of GoogleCloudPlatform/DataflowTemplates does, with its own depths and patterns: in the directory it
lists prefixes, below each of them the objects that end with a slash and are five deep, and takes all that is in these.
If it is notified of objects instead, it takes every one that does not end with a slash. Of JSON it reads each line, and
ignores one without a payload.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import orjson
import pytest

from connector.core.timestamps import MINUTE, SECOND
from spark_sink.sinks.files.complete_minutes import FOLDER
from tests.cloud_storage import CloudStorage
from tests.spark_sink.cuts.file_deliveries import FileDeliveries
from tests.spark_sink.spools import START, SpoolMaker, record


class DataStreamIO:
    """The discovery of files below ``gs://bucket/root/``, as the class of that name does it."""

    def __init__(self, server: CloudStorage, root: str) -> None:
        self._server = server
        self._bucket, _, prefix = root.removeprefix("gs://").partition("/")
        self._root = f"{prefix}/"

    def watched(self) -> set[str]:
        """The objects that a poll finds."""
        tables = self._directories(self._root, 1, 1, "/")
        minutes = [minute for table in tables for minute in self._directories(table, 5, 5, None)]
        names, _ = self._server.listed(self._bucket, self._root)
        return {name for name in names for minute in minutes if fnmatchcase(name, f"{minute}*") and name != minute}

    def tables(self) -> list[str]:
        """The directories that it takes for those of tables."""
        return list(self._directories(self._root, 1, 1, "/"))

    def notified(self) -> Iterator[str]:
        """The objects that ExtractGcsFile lets pass."""
        names, _ = self._server.listed(self._bucket, self._root)
        return (name for name in names if not name.endswith("/"))

    def _directories(self, path: str, least: int, most: int, delimiter: str | None) -> Iterator[str]:
        """DirectoryMatchPollFn."""
        base = path.count("/") + 1
        objects, prefixes = self._server.listed(self._bucket, path, delimiter)
        yield from prefixes
        for name in objects:
            depth = name.count("/") + 1
            if name.endswith("/") and name != path and base + least <= depth <= base + most:
                yield name


@pytest.fixture
def root(bucket: str) -> str:
    return f"{bucket}/exports/events"


@pytest.fixture
def files(spool: SpoolMaker, root: str) -> set[str]:
    """The objects of two minutes' files, of which one minute has a document, and an empty minute that has one."""
    spool.seal(record(START + SECOND, [1, 2]), record(START + 2 * SECOND, [1], table="Albums"))
    spool.seal(high=START + MINUTE - 1)
    spool.seal(high=START + 2 * MINUTE - 1)
    last = spool.seal(record(START + 2 * MINUTE + SECOND, [3]))
    return {f"exports/events/{file.path}" for file in FileDeliveries(spool, root).deliver(1, last)}


def test_the_watch_of_directories_finds_the_files_of_events_alone(
    cloud_storage: CloudStorage, root: str, files: set[str]
) -> None:
    dataflow = DataStreamIO(cloud_storage, root)
    assert f"exports/events/{FOLDER}/" in dataflow.tables(), "it looks below every folder"
    assert sum(f"/{FOLDER}/" in name for name in cloud_storage.names(root)) == 2
    assert dataflow.watched() == files
    assert len(files) == 3


def test_of_a_document_that_it_is_notified_of_it_ignores_every_line(
    cloud_storage: CloudStorage, bucket: str, root: str, files: set[str]
) -> None:
    notified = set(DataStreamIO(cloud_storage, root).notified())
    assert notified > files
    objects = cloud_storage.objects(bucket)
    for name in notified - files:
        for line in objects[name].splitlines():  # FormatDatastreamJsonToJson
            node = orjson.loads(line)
            assert node.get("payload") is None
            assert node.get("source_metadata") is None
