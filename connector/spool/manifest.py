"""The manifest of an epoch: its data files and the checkpoint after it, as one document.

An epoch exists when its manifest does. Data and position are in the same file, which is written once and atomically, so
they cannot disagree. Newer versions of this program read older manifests; an older program refuses a newer one. The
format is the public contract of the spool.
"""

from typing import Annotated, TypeVar

import google_crc32c
import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from connector.core.records import function_of, partition_id, token_of
from connector.core.timestamps import format_rfc3339, parse
from connector.errors import SpoolError

VERSION = 1
GAP_VERSION = 2
"""Version of a manifest with a gap: a program without gaps would pass it as if nothing were missing."""

CUT_VERSION = 3
"""Version of a manifest whose cut has its own file: an older program would take the cut for empty."""

PARTS_VERSION = 4
"""Version of a manifest whose segments tasks of Spark have written: an older program would delete them as strays."""

FUNCTIONS_VERSION = 5
"""Version of a manifest whose partitions are of several read functions, and of its cut's file: an older program would
send their tokens to another function. The header of such a spool has this version, too."""


def _parse_timestamp(value: object) -> object:
    return parse(value) if isinstance(value, str) else value


Model = TypeVar("Model", bound=BaseModel)

Timestamp = Annotated[int, BeforeValidator(_parse_timestamp), PlainSerializer(format_rfc3339)]
"""Unix nanoseconds inside, RFC 3339 in the file."""


class DocumentPart(BaseModel):
    """A part of a document of the spool; fields that only newer programs know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Document(DocumentPart):
    """A document of the spool."""

    version: int = VERSION


class SourceName(DocumentPart):
    """The change stream that a spool holds."""

    project: str
    instance: str
    database: str
    change_stream: str

    def __str__(self) -> str:
        return f"{self.project}/{self.instance}/{self.database}/{self.change_stream}"


class SegmentFile(DocumentPart):
    """An Arrow IPC file of an epoch; ``path`` is relative to the spool."""

    path: str
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    crc32c: str
    first_commit_timestamp: Timestamp
    last_commit_timestamp: Timestamp


class CutToken(DocumentPart):
    """A partition from which reading continues; the empty token is the initial query.

    ``function`` is the read function that it belongs to, or absent if the change stream has one alone.
    """

    token: str
    start_timestamp: Timestamp
    function: str | None = None

    @property
    def id(self) -> str:
        """The partition's id."""
        return partition_id(self.token, self.function)

    @classmethod
    def of(cls, partition: str, start: int) -> "CutToken":
        """The entry of a partition, by its id."""
        return cls(token=token_of(partition), start_timestamp=start, function=function_of(partition))

    @model_serializer(mode="wrap")
    def _without_none(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        node: dict[str, object] = serialize(self)
        if self.function is None:
            del node["function"]
        return node


class RemovedPartition(DocumentPart):
    """A partition that a cut no longer has, where the change stream has several read functions."""

    token: str
    function: str

    @property
    def id(self) -> str:
        """The partition's id."""
        return partition_id(self.token, self.function)


class CutFile(DocumentPart):
    """The file of a large cut, and the partitions that were added and removed between that cut and this one.

    ``path`` is relative to the spool. A token that is in the file and in ``added`` starts as ``added`` says.
    """

    path: str
    bytes: int = Field(ge=0)
    crc32c: str
    added: tuple[CutToken, ...]
    removed: tuple[str | RemovedPartition, ...]

    @property
    def removed_ids(self) -> tuple[str, ...]:
        """The ids of the removed partitions."""
        return tuple(partition_id(one) if isinstance(one, str) else one.id for one in self.removed)


class Gap(DocumentPart):
    """The reason why the records of an epoch are missing, and when that was recorded."""

    reason: str
    recorded_at: Timestamp


class BackfillPart(DocumentPart):
    """The part of a backfill that an epoch holds: all rows of one partition of one table.

    Attributes:
        table: its name in the source.
        plan: the number of the table's plan that the partition is of, from 1.
        partition: its index in that plan.
    """

    table: str
    plan: int = Field(ge=1)
    partition: int = Field(ge=0)


class Manifest(Document):
    """An epoch: records committed in (watermark_low, watermark_high], and the checkpoint after it.

    With a ``gap`` it has none of those records, and may span any number of minutes. With a ``cut_file`` the cut is not
    in ``cut``, which is empty then: :meth:`connector.spool.reading.Spool.cut` reads either.
    With a ``backfill`` part it is an epoch of a backfill: all of them have the same watermark_high, the timestamp that
    the tables were read at, and no cut.
    """

    epoch: int = Field(ge=1)
    spool_id: str
    source: SourceName
    watermark_low: Timestamp
    watermark_high: Timestamp
    files: tuple[SegmentFile, ...]
    tables: dict[str, int]
    schema_keys: dict[str, str]
    cut: tuple[CutToken, ...]
    cut_file: CutFile | None = None
    final: bool = False
    gap: Gap | None = None
    backfill: BackfillPart | None = None
    writer: str
    sealed_at: Timestamp

    @property
    def rows(self) -> int:
        """Mods in the epoch."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of its data files."""
        return sum(file.bytes for file in self.files)

    @property
    def identity(self) -> str:
        """Distinguishes this epoch from others of the same number: see :func:`identity`."""
        return identity(self.watermark_high, self.writer)

    def to_json(self) -> bytes:
        """The document, with a checksum of its own."""
        absent = {name for name in ("cut_file", "backfill") if getattr(self, name) is None}
        node = self.model_dump(mode="json", exclude=absent)
        layout = 0 if self.cut_file else orjson.OPT_INDENT_2
        return orjson.dumps({**node, "crc32c": _checksum(node)}, option=layout)

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Manifest":
        """Reads a manifest.

        Raises:
            SpoolError: it is corrupt, or of a newer version; ``path`` is named.
        """
        node = load_document(data, path, FUNCTIONS_VERSION)
        checksum = node.pop("crc32c", None)
        if checksum != _checksum(node):
            raise corrupt(path, "its checksum does not match")
        try:
            return cls.model_validate(node)
        except ValidationError as error:
            raise corrupt(path, f"{error.error_count()} fields are not valid") from error


def identity(watermark_high: int, writer: str) -> str:
    """Distinguishes an epoch from one that was sealed under the same number in another copy of the spool.

    It is ``<watermark_high as RFC 3339>/<writer>``; consumers keep it beside the number of their epoch.
    """
    return f"{format_rfc3339(watermark_high)}/{writer}"


def watermark_of(identity: str) -> int:
    """The watermark_high in an epoch's identity, in Unix nanoseconds.

    Raises:
        ValueError: it is not a valid identity.
    """
    return parse(identity.partition("/")[0])


def load_document(data: bytes, path: str, version: int) -> dict[str, object]:
    """The JSON object in a file of the spool whose version this program knows.

    Raises:
        SpoolError: it is not a valid document, or of a newer version.
    """
    try:
        node = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise corrupt(path, "it is not JSON") from error
    if not isinstance(node, dict) or not isinstance(node.get("version"), int):
        raise corrupt(path, "it has no version")
    if node["version"] > version:
        raise SpoolError(
            f"{path} is of version {node['version']}, newer than this program's {version}",
            hint="Use the newer spanner-cdc that wrote it.",
        )
    return node


def parsed(kind: type[Model], data: bytes, path: str, lack: str, version: int = VERSION) -> Model:
    """The document in a file of the spool; ``lack`` is the reason in the error's message if it is not of that kind.

    Raises:
        SpoolError: it is not a valid document, or of a newer version than ``version``.
    """
    node = load_document(data, path, version)
    try:
        return kind.model_validate(node)
    except ValidationError as error:
        raise corrupt(path, lack) from error


def corrupt(path: str, why: str) -> SpoolError:
    """The error for a file of the spool that is damaged."""
    return SpoolError(
        f"corrupt file {path}: {why}",
        hint="Restore it from a copy; or start a new spool with source.start at the epoch's watermark_low.",
    )


def _checksum(node: object) -> str:
    return crc32c(orjson.dumps(node, option=orjson.OPT_SORT_KEYS))


def crc32c(data: object) -> str:
    """The CRC-32C of bytes, as eight hex digits."""
    return f"{google_crc32c.value(data):08x}"
