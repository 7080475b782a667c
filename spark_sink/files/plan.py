"""Plans the files of a micro-batch: which epochs go into one file of each table. Pure.

A group of epochs is a minute of commit time, or a single epoch where files are written as soon as it is sealed.
Epochs never span two minutes, but for gaps, which have no events; so a group lies in one minute and is a contiguous run
of epochs. What a group is depends on the spool and the options alone, and so do the names and bytes of its files.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import orjson
from pyspark.sql.datasource import InputPartition

from connector.core.timestamps import MINUTE
from connector.errors import SpoolError
from connector.spool.manifest import Manifest, SegmentFile
from spark_sink.source.admission import runs

_BEFORE = {"sort_fields": False, "exact_keys": False}
"""What differs from an option's default where files were begun before there was such an option."""


@dataclass(frozen=True, slots=True)
class FileShape:
    """The options that decide which files there are, their names and bytes.

    ``by_minute`` false means a file for each epoch; ``timestamps`` is ``micros`` or ``text``, for Avro; with
    ``schema_files`` each schema has a file too. Without ``sort_fields`` the source metadata lacks those of
    :mod:`connector.envelope.source_metadata`, and without ``exact_keys`` a key's timestamp is cut in Avro, as in files
    that an older program began. ``object_names`` are ``table`` or ``schema_table``; ``arrays`` of Avro ``json`` or
    ``multidimensional``.
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

    def schema_name(self, schema_key: str) -> str:
        """The name of the file of an Avro schema, which these options decide."""
        odd = [
            option
            for option, plain in ((self.timestamps, "micros"), (self.object_names, "table"), (self.arrays, "json"))
            if option != plain
        ]
        return f"{'_'.join([schema_key, *odd])}.avsc"

    def to_text(self) -> str:
        """As it is pinned in the spool and in the checkpoint."""
        return orjson.dumps(self, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_text(cls, text: str) -> "FileShape":
        """Reads what :meth:`to_text` wrote; an option that was not there yet is as files were then.

        Raises:
            SpoolError: there is an option that this program does not know.
        """
        try:
            return cls(**{**_BEFORE, **orjson.loads(text)})
        except (TypeError, ValueError) as error:
            raise SpoolError(
                f"options of the file sink that this program does not know are pinned: {text}",
                hint="Use the newer spanner-cdc that wrote them.",
            ) from error


@dataclass(frozen=True, slots=True)
class Holding:
    """How long a minute that is not over is held back: not past the end, nor when the spool has no room for more.

    ``end`` is the source's, in nanoseconds since 1970, or None; ``max_bytes`` is what the spool may hold.
    """

    max_bytes: int
    end: int | None

    def to_text(self) -> str:
        """As an option."""
        return orjson.dumps({"end": self.end, "max_bytes": self.max_bytes}).decode()

    @classmethod
    def from_text(cls, text: str) -> "Holding":
        """Reads what :meth:`to_text` wrote."""
        node = orjson.loads(text)
        return cls(int(node["max_bytes"]), None if node["end"] is None else int(node["end"]))

    def releases(self, newest: Manifest, unwritten_bytes: int) -> bool:
        """Whether the open minute is written as far as it has come.

        A daemon whose spool is full waits for this sink, and could not close the minute that this sink waits for. So
        what is unwritten is measured as the daemon measures its spool.
        """
        reached = self.end is not None and newest.watermark_high >= self.end
        return newest.final or reached or unwritten_bytes >= self.max_bytes


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Epochs whose events of one table and schema share a file; ``minute`` counts since 1970."""

    first_epoch: int
    minute: int
    segments: tuple[SegmentFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of its segments."""
        return sum(file.bytes for file in self.segments)


@dataclass(frozen=True, slots=True)
class FilesRoot:
    """Where files go, and where dead letters do: paths or URLs, and an emulator's address, if any."""

    path: str
    endpoint: str
    dead_letters: str


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """What a task writes: whole groups."""

    spool: str
    spool_id: str
    root: FilesRoot
    shape: FileShape
    groups: tuple[FileGroup, ...]


def file_groups(manifests: Iterable[Manifest], *, by_minute: bool) -> list[FileGroup]:
    """The groups of a run of epochs, in order; empty epochs are in none."""

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


def shared_out(groups: list[FileGroup], cores: int) -> list[range]:
    """Which groups each task writes."""
    return runs([group.bytes for group in groups], cores)
