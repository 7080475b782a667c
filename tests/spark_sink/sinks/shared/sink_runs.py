"""Runs of the file sink without Spark, under the checkpoints that Spark would have."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from spark_sink.sinks.files.plan import FileOptions, FilesPartition, FilesRoot, Holding
from spark_sink.sinks.files.source import FileSinkReader
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sources.changes.read_limits import ReadLimit, ReadMaxBytes
from tests.spark_sink.spools import SpoolMaker

SHAPE = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=True)
FULL, ROOMY = Holding(max_bytes=1, end=None), Holding(max_bytes=10**9, end=None)
LIMIT = ReadMaxBytes(10**9)


class Checkpoint:
    """Spark's checkpoint of a query: the offsets it has logged, of which the last may not be done."""

    def __init__(self) -> None:
        self.offsets: list[dict[str, object]] = []
        self.done = True


class Life:
    """A run of the sink, from its start until it is killed; it does what Spark does with a source."""

    def __init__(
        self, spool: SpoolMaker, checkpoint: Checkpoint, holding: Holding = ROOMY, shape: FileOptions = SHAPE
    ) -> None:
        self.root = Path(spool.path).parent / "out"
        self._checkpoint = checkpoint
        self._reader = FileSinkReader(
            Feed.at(spool.path), FilesRoot(str(self.root), "", f"{self.root}-letters"), shape, holding, 2
        )

    def plan(self, limit: ReadLimit = LIMIT) -> bool:
        """Logs the next micro-batch, if there is one; one that is not done comes first."""
        known = self._checkpoint
        if not known.offsets:
            known.offsets.append(self._reader.initialOffset())
        if known.done:
            end = self._reader.latestOffset(known.offsets[-1], limit)
            if end == known.offsets[-1]:
                return False
            known.offsets.append(end)
            known.done = False
        return True

    def groups(self) -> Iterator[None]:
        """Writes the micro-batch, a group at a time; no file may meet another of its name with other bytes."""
        for task in self._reader.partitions(*self._checkpoint.offsets[-2:]):
            assert isinstance(task, FilesPartition)
            for group in task.groups:
                before = contents(self.root)
                list(self._reader.read(replace(task, groups=(group,))))
                assert contents(self.root) | before == contents(self.root)
                yield

    def run(self, limit: ReadLimit = LIMIT) -> None:
        """Writes all that is ready."""
        while self.plan(limit):
            list(self.groups())
            self.commit()

    def commit(self) -> None:
        self._checkpoint.done = True

    def kill(self) -> None:
        held = self._reader._claim._held
        if held is not None:
            held.close()


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def ids_of(root: Path) -> list[int]:
    lines = b"".join(data for _, data in sorted(contents(root).items())).splitlines()
    return sorted(orjson.loads(line)["payload"]["Id"] for line in lines)
