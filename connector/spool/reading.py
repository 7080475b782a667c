"""A spool: epochs in storage, between the daemon that seals them and the consumers that read them.

Layout below the root::

    spool.json                 which change stream, since when; written before the first query
    manifests/<epoch>.json     an epoch exists when its manifest does; numbered from 1 without a break
    segments/<epoch>-<writer>.arrow
    cuts/<epoch>-<writer>.json the cut of an epoch with many partitions; later manifests hold what differs from it
    summaries/<epoch>.json     the manifests up to that epoch in short; derived from them
    schemas/<schema_key>.json  columns and types of a table
    consumers/<name>.json      the last epoch that a consumer is done with
    consumers/<sink>.begun     the micro-batches that a sink has started after that
    floor.json                 the first epoch that is kept
    gaps.json                  every range whose records are missing
    late/<range>-<hash>.json   a late record, as a dead letter (:mod:`connector.spool.late_store`)

This module reads; :mod:`connector.spool.writing` writes. A reader never blocks the writer and sees only whole epochs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import orjson
import pyarrow as pa
import pyarrow.ipc
from pydantic import BaseModel, ValidationError

from connector.core.masking.rules import RulesFingerprint
from connector.core.schemas import TableSchema
from connector.errors import SpoolError, SpoolMismatchError, StorageUnavailableError
from connector.spool.cuts import read_cut
from connector.spool.manifest import (
    VERSION,
    CutToken,
    Document,
    Manifest,
    Model,
    SegmentFile,
    SourceName,
    Timestamp,
    corrupt,
    crc32c,
    load_document,
    parsed,
)
from connector.spool.storage.opening import open_store
from connector.spool.storage.store import FileStore, contents
from connector.spool.summaries import FOLDER, EpochSummary, Run, block_end, block_path, from_block

COLUMNS_VERSION = 6
"""Version of the header of a spool whose columns are excluded or hashed: an older program would keep them as they are.
"""

_Found = TypeVar("_Found")

_FEW = 50
"""Epochs up to which manifests are read without looking for summaries."""


class SpoolHeader(Document):
    """``spool.json``: what the spool holds.

    Attributes:
        start: ``requested_start``, resolved once by Spanner's clock.
        schema_keys: of the watched tables at the start.
        default_schema: the name in events of the schema of tables without one; None in the spool of an older program.
        placements: the placements that are read, () for all; None if the stream has one read function alone.
        columns: the rules for columns that are excluded or hashed, without their salts; None if there are none.
    """

    spool_id: str
    source: SourceName
    start: Timestamp
    requested_start: str
    schema_keys: dict[str, str]
    default_schema: str | None = None
    placements: tuple[str, ...] | None = None
    columns: RulesFingerprint | None = None

    def check_columns(self, columns: RulesFingerprint | None, path: str) -> None:
        """Checks that a run excludes and hashes the columns that the spool is written with.

        Args:
            columns: the rules of the run; None if it has none.
            path: the spool's.

        Raises:
            SpoolMismatchError: it has other rules, or another salt; the message says which.
        """
        changes = (self.columns or RulesFingerprint()).changes(columns or RulesFingerprint())
        if changes:
            raise SpoolMismatchError(
                f"the spool at {path} is written with other source.columns: {changes}",
                hint="Put them back as they were, or choose another spool.path, and another destination or a new"
                " backfill.",
            )

    def check_source(self, source: SourceName, path: str) -> None:
        """Checks that the spool holds a change stream.

        Args:
            source: the change stream.
            path: the spool's.

        Raises:
            SpoolMismatchError: it holds another.
        """
        if self.source != source:
            raise SpoolMismatchError(
                f"the spool at {path} holds change stream {self.source}, not {source}",
                hint="Choose another spool.path.",
            )

    def check_placements(self, placements: Sequence[str] | None, path: str) -> None:
        """Checks that a run reads the placements that the spool is of.

        Args:
            placements: those of the run, as of the attribute.
            path: the spool's.

        Raises:
            SpoolMismatchError: it reads others.
        """
        if (None if placements is None else sorted(placements)) != (
            None if self.placements is None else sorted(self.placements)
        ):
            raise SpoolMismatchError(
                f"the spool at {path} is of {_placed(self.placements)}, not of {_placed(placements)}",
                hint="Choose another spool.path, or the source.placements that it was started with.",
            )


def _placed(placements: Sequence[str] | None) -> str:
    if placements is None:
        return "a change stream with one read function alone"
    return f"the placements {', '.join(placements)}" if placements else "all placements"


class Spool:
    """Reads the epochs of a spool, and the documents beside them.

    Args:
        storage: the file store that holds it.

    Raises:
        SpoolError: from every method, if a file is corrupt, of a newer version, or cannot be read.
    """

    def __init__(self, storage: FileStore) -> None:
        self.storage = storage
        self._latest = 0

    @classmethod
    def at(cls, path: str | Path) -> "Spool":
        """The spool in a folder of the local disk, or below ``gs://bucket/prefix``."""
        return cls(open_store(str(path), failure=SpoolError, unavailable=StorageUnavailableError, option="spool.path"))

    @property
    def path(self) -> str:
        """The spool's folder, or its URL."""
        return self.storage.full()

    def header(self) -> SpoolHeader:
        """The spool's header.

        Raises:
            FileNotFoundError: there is no spool yet.
        """
        return self.document("spool.json", SpoolHeader, "fields are missing", version=COLUMNS_VERSION)

    def document(self, path: str, kind: type[Model], lack: str, *, version: int = VERSION) -> Model:
        """A small document of the spool, as of :func:`connector.spool.manifest.parsed`.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return parsed(kind, self.storage.read(path).to_pybytes(), self.storage.full(path), lack, version)

    def find(self, path: str, kind: type[Model], lack: str) -> Model | None:
        """A small document as of :meth:`document`; None if there is no such file."""
        with suppress(FileNotFoundError):
            return self.document(path, kind, lack)
        return None

    def find_valid(self, path: str, kind: type[Model]) -> Model | None:
        """A small document; None if there is no such file, or if it is damaged or of a later version."""
        data = contents(self.storage, path)
        try:
            return None if data is None else kind.model_validate_json(data)
        except ValidationError:
            return None

    def check_source(self, source: SourceName, columns: RulesFingerprint | None = None) -> SpoolHeader:
        """The header, if the spool holds this change stream, after these rules for columns.

        Args:
            source: the change stream.
            columns: the rules for columns that are excluded or hashed; None if there are none.

        Raises:
            SpoolMismatchError: it holds another, or is written with other rules.
        """
        header = self.header()
        header.check_source(source, self.path)
        header.check_columns(columns, self.path)
        return header

    def schema(self, key: str) -> TableSchema:
        """The columns and types of a table at a schema key."""
        path = schema_path(key)
        try:
            data = self.storage.read(path).to_pybytes()
            load_document(data, self.storage.full(path), VERSION)
            return TableSchema.from_json(data)
        except FileNotFoundError as error:
            raise corrupt(self.storage.full(path), "it is missing") from error
        except (KeyError, TypeError, ValueError) as error:
            raise corrupt(self.storage.full(path), "it is not a valid schema") from error

    def has_schema(self, key: str) -> bool:
        """True if the spool has the schema of that key."""
        return self.storage.exists(schema_path(key))

    def floor(self) -> int:
        """The first epoch that is kept; earlier ones are pruned, even if a manifest of one is left."""
        data, path = contents(self.storage, "floor.json"), self.storage.full("floor.json")
        first = 1 if data is None else load_document(data, path, VERSION).get("first")
        if not isinstance(first, int):
            raise corrupt(path, "it has no valid field first")
        return first

    def latest(self) -> int:
        """The newest epoch, or 0. After the first call only the numbers that follow are looked for.

        If the newest known epoch was pruned meanwhile, those that follow may be too: then all are listed again.
        """
        if self._latest > 0 and not self.storage.exists(manifest_path(self._latest)):
            self._latest = 0
        if self._latest == 0:
            floor = self.floor()
            summarized = max(self._numbers(FOLDER), default=0)
            # A restored older copy may have summaries of epochs that it lacks: then all names are listed.
            found = self._numbers("manifests", max(floor, summarized)) or self._numbers("manifests", floor)
            self._latest = max(found, default=0)
        while self.storage.exists(manifest_path(self._latest + 1)):
            self._latest += 1
        return self._latest

    def manifest(self, epoch: int) -> Manifest:
        """The manifest of an epoch.

        Raises:
            FileNotFoundError: it is not sealed yet, or it is pruned.
        """
        return self._manifest(epoch, self.storage.read(manifest_path(epoch)))

    def manifests(self, first: int, last: int) -> Iterator[Manifest]:
        """The manifests of the epochs from ``first`` to ``last``, inclusive.

        Raises:
            SpoolError: one of them is gone.
        """
        return (manifest for manifest, _ in self._sized_manifests(first, last))

    def summaries(self, first: int, last: int) -> Iterator[EpochSummary]:
        """The epochs from ``first`` to ``last``, inclusive, in short: many are read at once.

        Raises:
            SpoolError: one of them is gone.
        """
        return (one for run in self.runs(first, last) for one in run.epochs)

    def runs(self, first: int, last: int) -> Iterator[Run]:
        """The same epochs in runs: those of a block together, every other epoch by itself."""
        at = first
        for block in self._blocks(first, last):
            yield from self._single(at, min(block[0].epoch - 1, last))
            at = max(at, block[0].epoch)
            yield Run([one for one in block if at <= one.epoch <= last], of_block=True)
            at = block[-1].epoch + 1
        yield from self._single(at, last)

    def _single(self, first: int, last: int) -> Iterator[Run]:
        for manifest, size in self._sized_manifests(first, last):
            yield Run([EpochSummary.of(manifest, size)], of_block=False)

    def _blocks(self, first: int, last: int) -> Iterator[Sequence[EpochSummary]]:
        """The valid blocks that hold some of these epochs, in order."""
        if last - first < _FEW:
            return
        ends = self._numbers(FOLDER, first, block_end(last) + 1)
        blocks = self.storage.read_each(block_path(end) for end in ends)
        manifests = self.storage.read_each(manifest_path(end) for end in ends)
        for end in ends:
            try:
                data, manifest = next(blocks).to_pybytes(), self._manifest(end, next(manifests))
            except FileNotFoundError:
                return  # pruned, or missing in a restored older copy; then manifests are read
            if block := from_block(data, manifest):
                yield block

    def _numbers(self, folder: str, first: int = 0, end: int = 0) -> list[int]:
        """The epochs in the names of a folder's documents, in [first, end); 0 is no bound."""
        names = self.storage.list(folder, f"{first:020d}" if first else "", f"{end:020d}" if end else "")
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()]

    def _sized_manifests(self, first: int, last: int) -> Iterator[tuple[Manifest, int]]:
        """Manifests, each with the bytes of its file."""
        found = self.storage.read_each(manifest_path(epoch) for epoch in range(first, last + 1))
        for epoch in range(first, last + 1):
            try:
                data = next(found)
                manifest = self._manifest(epoch, data)
            except FileNotFoundError as error:
                raise SpoolError(
                    f"epoch {epoch} is not in the spool at {self.path}, which keeps {self.floor()} to {self.latest()}",
                    hint="It was pruned before this consumer was registered: start over with a new checkpoint.",
                ) from error
            yield manifest, data.size

    def cut(self, manifest: Manifest) -> tuple[CutToken, ...]:
        """The partitions from which reading continues after an epoch."""
        return read_cut(self.storage, manifest)

    def batches(self, file: SegmentFile) -> Iterator[pa.RecordBatch]:
        """The rows of a segment, in commit order, after its checksum was compared.

        Raises:
            SpoolError: the segment is missing or corrupt.
        """
        try:
            data = self.storage.read(file.path)
        except FileNotFoundError as error:
            raise corrupt(self.storage.full(file.path), "it is missing") from error
        if data.size != file.bytes or crc32c(data) != file.crc32c:
            raise corrupt(self.storage.full(file.path), "its checksum does not match")
        with pa.ipc.open_file(data) as reader:
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)

    def _manifest(self, epoch: int, data: pa.Buffer) -> Manifest:
        path = self.storage.full(manifest_path(epoch))
        manifest = Manifest.from_json(data.to_pybytes(), path)
        if manifest.epoch != epoch:
            raise corrupt(path, f"it is the manifest of epoch {manifest.epoch}")
        return manifest


def while_pruned(spool: Spool, read: Callable[[], _Found]) -> _Found:
    """Reads something of the epochs that are kept; again, if the spool's daemon prunes some meanwhile.

    Args:
        spool: the spool.
        read: reads them, from :meth:`Spool.floor` on.

    Raises:
        SpoolError: it cannot be read.
    """
    while True:
        first = spool.floor()
        try:
            return read()
        except SpoolError:
            if spool.floor() == first:
                raise


def manifest_path(epoch: int) -> str:
    """The path of an epoch's manifest."""
    return f"manifests/{epoch:020d}.json"


def segment_path(epoch: int, writer: str) -> str:
    """The path of a writer's segment of an epoch."""
    return f"segments/{epoch:020d}-{writer}.arrow"


def epoch_of_segment(path: str) -> int:
    """The number of the epoch in a segment's path; 0 if there is none."""
    number = path.removeprefix("segments/").partition("-")[0]
    return int(number) if number.isdecimal() else 0


def schema_path(key: str) -> str:
    """The path of a schema."""
    return f"schemas/{key}.json"


def to_json(document: BaseModel) -> bytes:
    """A document of the spool as its file's bytes."""
    return orjson.dumps(document.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
