"""The file sink's micro-batches without Spark: their files are written, and their cuts published."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import orjson

from spark_sink.sinks.files.complete_minutes import FOLDER, CompleteMinute
from spark_sink.sinks.files.minute_store import DeliveredFiles, MinuteStore
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, WrittenFile, destination_at
from spark_sink.sinks.shared.published_cut import PublishedCut, TableAtCut
from spark_sink.sources.changes.known_tables import KnownTables
from tests.spark_sink.spools import NO_DEAD_LETTERS, SpoolMaker

OPTIONS = FileOptions(gzip=False, rotate_bytes=10**9, by_minute=True)


class FileDeliveries:
    """A run of the sink's process; another one continues from what the spool has recorded.

    Args:
        spool: whose epochs are delivered.
        root: of the files.
        by_minute: whether a file holds a minute, or an epoch.
        gzip: whether files are compressed.
        sink: the sink's name.
    """

    def __init__(
        self, spool: SpoolMaker, root: str, *, by_minute: bool = True, gzip: bool = False, sink: str = "files"
    ) -> None:
        self._spool = spool.spool
        self._options = replace(OPTIONS, by_minute=by_minute, gzip=gzip)
        self._destination = destination_at(root)
        self.delivered = DeliveredFiles()
        self._sink = sink
        self.look_anew()

    def look_anew(self) -> None:
        """Finds the record again, as the last look of a process does."""
        self.store = MinuteStore(self._destination, self._spool, self._sink, self.delivered)

    def write(self, first: int, last: int) -> list[WrittenFile]:
        """Writes the files of a micro-batch."""
        writer = FileWriter(
            self._spool, self._spool.header().spool_id, self._destination, self._options, NO_DEAD_LETTERS
        )
        groups = file_groups(self._spool.manifests(first, last), by_minute=self._options.by_minute)
        files = [file for group in groups for file in writer.write(group)]
        if files:
            if self.delivered.first is None:
                self.delivered.first, self.delivered.low = first, self._spool.manifest(first).watermark_low
            self.delivered.last = last
            self.delivered.files |= {file.path: file for file in files}
        return files

    def publish(self, last: int, incomplete: Mapping[str, str] | None = None, *, now: int = 0) -> None:
        """Publishes the cut at an epoch."""
        manifest, reasons = self._spool.manifest(last), incomplete or {}
        names = KnownTables(self._spool).names()
        self.store.publish(
            PublishedCut(
                timestamp=manifest.watermark_high,
                epoch=last,
                spool_id=manifest.spool_id,
                published_at=now or manifest.watermark_high,
                tables={name: TableAtCut(incomplete=reasons.get(name, "")) for name in names},
            )
        )

    def deliver(self, first: int, last: int) -> list[WrittenFile]:
        """A micro-batch."""
        files = self.write(first, last)
        self.publish(last)
        return files


def documents(root: Path) -> dict[str, CompleteMinute]:
    """The documents below a root, by the time in their paths, oldest first."""
    found = sorted((root / FOLDER).rglob("*.json"))
    return {
        path.relative_to(root / FOLDER).as_posix().removesuffix(".json"): CompleteMinute.model_validate(
            orjson.loads(path.read_bytes())
        )
        for path in found
    }
