"""Summaries of epochs, so that many can be known without reading the manifest of each.

The epochs of a spool are summarized in blocks of :data:`BLOCK`: the block that ends with epoch N, a multiple of it, is
``summaries/<N>.json``, written once N is sealed. A block is derived from manifests alone, so that every writer would
write the same one. If a block is missing or damaged, or its last epoch is not the spool's epoch of that number, it is
ignored, and the manifests are read instead. It omits the cut and the files' checksums, which only continuing after an
epoch, or reading it, needs.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from sys import intern
from typing import NamedTuple

import msgspec
import orjson

from connector.spool.manifest import Manifest, crc32c, identity

FOLDER = "summaries"
BLOCK = 500
"""Epochs in a block. A restart may read so many manifests one by one, which takes a second in Cloud Storage."""

_VERSION = 1


class EpochSummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An epoch in short; timestamps are Unix nanoseconds.

    Attributes:
        size: bytes of its data files.
        held: bytes of all its files in the spool but its cut's, which several epochs share.
        first_commit_timestamp: None in an epoch without files.
        parts: whether its segments were written by tasks, and have names of their own.
        schemas: a digest that is equal for epochs in which all tables have the same schemas.
    """

    epoch: int
    writer: str
    watermark_low: int
    watermark_high: int
    sealed_at: int
    rows: int
    size: int
    held: int
    files: int
    first_commit_timestamp: int | None
    schemas: str
    tables: dict[str, int]
    cut_path: str = ""
    cut_bytes: int = 0
    parts: bool = False

    @classmethod
    def of(cls, manifest: Manifest, manifest_bytes: int) -> "EpochSummary":
        """The summary of an epoch; ``manifest_bytes`` is the size of its manifest's file."""
        files, cut = manifest.files, manifest.cut_file
        one = cls(
            manifest.epoch,
            manifest.writer,
            manifest.watermark_low,
            manifest.watermark_high,
            manifest.sealed_at,
            manifest.rows,
            manifest.size,
            manifest.size + manifest_bytes,
            len(files),
            files[0].first_commit_timestamp if files else None,
            blake2b(orjson.dumps(manifest.schema_keys, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest(),
            dict(manifest.tables),
            cut.path if cut else "",
            cut.bytes if cut else 0,
            any(file.path.count("-") > 1 for file in files),  # segments/<epoch>-<writer>-<part>.arrow
        )
        return msgspec.structs.replace(one, held=one.held + len(msgspec.json.encode(one)))

    @property
    def identity(self) -> str:
        """See :func:`connector.spool.manifest.identity`."""
        return identity(self.watermark_high, self.writer)


class Run(NamedTuple):
    """Consecutive epochs; ``of_block`` says whether they were read from a block."""

    epochs: Sequence[EpochSummary]
    of_block: bool


class _Block(msgspec.Struct):
    version: int
    crc32c: str
    epochs: msgspec.Raw


_decoder = msgspec.json.Decoder(list[EpochSummary])


def block_path(last: int) -> str:
    """The path of the block that ends with an epoch."""
    return f"{FOLDER}/{last:020d}.json"


def block_end(epoch: int) -> int:
    """The last epoch of the block that an epoch is in."""
    return -(-epoch // BLOCK) * BLOCK


def blocks_between(first: int, last: int) -> Iterator[range]:
    """The epochs of each block whose last one is between these, inclusive."""
    for end in range(block_end(first), last + 1, BLOCK):
        yield range(end - BLOCK + 1, end + 1)


def to_block(epochs: Sequence[EpochSummary]) -> bytes:
    """The file of a block."""
    data = msgspec.json.encode(epochs)
    return msgspec.json.encode(_Block(_VERSION, crc32c(data), msgspec.Raw(data)))


def from_block(data: bytes, last: Manifest) -> Sequence[EpochSummary]:
    """The epochs of a block's file that must end with ``last``; none if it is not valid."""
    try:
        block = msgspec.json.decode(data, type=_Block)
        if block.version != _VERSION or crc32c(bytes(block.epochs)) != block.crc32c:
            return ()
        epochs = _decoder.decode(block.epochs)
    except msgspec.MsgspecError:
        return ()
    follow = all(b.epoch == a.epoch + 1 and b.watermark_low == a.watermark_high for a, b in pairwise(epochs))
    ends = bool(epochs) and epochs[-1].epoch == last.epoch and epochs[-1].identity == last.identity
    return epochs if follow and ends else ()


_NO_TABLES: dict[str, int] = {}


def in_short(one: EpochSummary) -> EpochSummary:
    """An epoch without its tables and schemas, which saves memory where many are known."""
    return msgspec.structs.replace(
        one, writer=intern(one.writer), cut_path=intern(one.cut_path), schemas="", tables=_NO_TABLES
    )


class HeldBytes:
    """Counts the bytes of epochs' files, and of the cuts' files that they refer to, each once."""

    def __init__(self, epochs: Iterable[EpochSummary] = ()) -> None:
        self._held = 0
        self._cuts: dict[str, int] = {}
        self.add(epochs)

    def add(self, epochs: Iterable[EpochSummary]) -> None:
        """Counts further epochs."""
        for epoch in epochs:
            self._held += epoch.held
            if epoch.cut_path:
                self._cuts[epoch.cut_path] = epoch.cut_bytes

    @property
    def total(self) -> int:
        """The bytes of all of them."""
        return self._held + sum(self._cuts.values())


def held_bytes(epochs: Iterable[EpochSummary]) -> int:
    """The bytes of the epochs' files and of the cuts' files that they refer to."""
    return HeldBytes(epochs).total
