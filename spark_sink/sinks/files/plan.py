"""Plans the files of a micro-batch: which epochs go into one file of each table. Pure.

A group of epochs is a minute of commit time, or a single epoch if files are written as soon as it is sealed. Epochs
never span two minutes, except gaps, which have no events; so a group lies within one minute and is a contiguous run of
epochs. The groups depend only on the spool and the options, and so do the names and bytes of their files.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import orjson
from pyspark.sql.datasource import InputPartition

from connector.core.timestamps import MINUTE
from connector.errors import SpoolError
from connector.spool.manifest import Manifest, SegmentFile
from spark_sink.sinks.files.config import CONSUMER
from spark_sink.sinks.shared.completing.epoch_rows import COMPLETED_ROWS
from spark_sink.sinks.shared.completing.spanner_rows import Completion

_BEFORE = {"sort_fields": False, "exact_keys": False, "removed_rows": False}
"""Values of options, unlike their defaults, for files that were started before there was such an option."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options that decide which files there are, their names and their bytes.

    Attributes:
        gzip: whether files are compressed.
        rotate_bytes: the most bytes of a file before compression.
        by_minute: whether a file holds a minute of commit time; else an epoch.
        format: ``jsonl``, ``avro``, ``opencdc-jsonl`` or ``opencdc-protobuf``.
        timestamps: ``micros`` or ``text``, for Avro.
        schema_files: whether each schema has a file too.
        sort_fields: whether the source metadata has the fields of :mod:`connector.envelope.source_metadata`.
        exact_keys: whether a key's timestamp keeps its nanoseconds in Avro. Files that an older program started have
            neither of the two.
        object_names: ``table`` or ``schema_table``.
        arrays: ``json`` or ``multidimensional``, for Avro.
        complete_rows: whether updates have whole rows, and events say so.
        removed_rows: whether deletes have whole rows then, too; not in files that an older program started.
    """

    gzip: bool
    rotate_bytes: int
    by_minute: bool
    format: str = "jsonl"
    timestamps: str = "micros"
    schema_files: bool = False
    sort_fields: bool = True
    exact_keys: bool = True
    object_names: str = "table"
    arrays: str = "json"
    complete_rows: bool = False
    removed_rows: bool = True

    def schema_name(self, schema_key: str) -> str:
        """The name of an Avro schema's file, which depends on these options."""
        other = [
            option
            for option, default in ((self.timestamps, "micros"), (self.object_names, "table"), (self.arrays, "json"))
            if option != default
        ]
        return f"{'_'.join([schema_key, *other, *(['complete'] if self.complete_rows else [])])}.avsc"

    def to_text(self) -> str:
        """The text that is pinned in the spool and in Spark's checkpoint."""
        return orjson.dumps(self, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_text(cls, text: str) -> "FileOptions":
        """Parses a text of :meth:`to_text`; an option that is missing has its value from before it existed.

        Raises:
            SpoolError: it has an option that this program does not know.
        """
        try:
            return cls(**{**_BEFORE, **orjson.loads(text)})
        except (TypeError, ValueError) as error:
            raise SpoolError(
                f"cannot read the file sink's pinned options: {text}",
                hint="Use the newer spanner-cdc that wrote them.",
            ) from error


@dataclass(frozen=True, slots=True)
class Holding:
    """Decides when an open minute is written before it is over: at the source's end, or when the spool is full.

    Attributes:
        max_bytes: of the spool, by the sink's configuration.
        end: the source's, in nanoseconds since 1970, or None.
    """

    max_bytes: int
    end: int | None

    def to_text(self) -> str:
        """The text of an option of the source."""
        return orjson.dumps(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "Holding":
        """Reads what :meth:`to_text` wrote."""
        return cls(**orjson.loads(text))

    def releases(self, newest: Manifest, unwritten_bytes: int, most: int = 0) -> bool:
        """True if the open minute is written up to the newest epoch.

        A daemon whose spool is full waits for this sink, and could not close the minute that this sink waits for. So
        the unwritten bytes are counted as the daemon counts its spool's.

        Args:
            newest: the newest epoch.
            unwritten_bytes: of the epochs up to it that are not written.
            most: the daemon's own ``spool.max_bytes``, which another configuration may have; 0 if unknown.
        """
        reached = self.end is not None and newest.watermark_high >= self.end
        return newest.final or reached or unwritten_bytes >= min(self.max_bytes, most or self.max_bytes)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Epochs whose events of one table and schema share a file; ``minute`` is counted since 1970."""

    first_epoch: int
    minute: int
    segments: tuple[SegmentFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of its segments."""
        return sum(file.bytes for file in self.segments)


@dataclass(frozen=True, slots=True)
class FilesRoot:
    """The roots of files and of dead letters, paths or URLs, and an emulator's address or an empty text."""

    path: str
    endpoint: str
    dead_letters: str


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """The groups that a task writes."""

    spool: str
    spool_id: str
    root: FilesRoot
    file_options: FileOptions
    groups: tuple[FileGroup, ...]
    completion: Completion | None = None
    kept_in: str = COMPLETED_ROWS


def completed_rows_of(name: str) -> str:
    """The folder of the spool in which a sink keeps completed rows; a task of another sink may have read others."""
    return COMPLETED_ROWS if name == CONSUMER else f"{COMPLETED_ROWS}/{name}"


def file_groups(manifests: Iterable[Manifest], *, by_minute: bool) -> list[FileGroup]:
    """The groups of consecutive epochs, in order; empty epochs are in none."""

    def group_of(manifest: Manifest) -> tuple[int, int]:
        minute = manifest.files[0].first_commit_timestamp // MINUTE
        return (minute, 0 if by_minute else manifest.epoch)

    filled = (manifest for manifest in manifests if manifest.files)
    out = []
    for (minute, _), run in groupby(filled, key=group_of):
        members = list(run)
        segments = tuple(file for manifest in members for file in manifest.files)
        out.append(FileGroup(members[0].epoch, minute, segments))
    return out
