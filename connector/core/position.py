"""The position of a mod in its change stream's history, which an OpenCDC record has and reading can resume after. Pure.

A position is a small JSON document with a version and a checksum. It has only properties of the mod, so it is the same
on every replay. It is enough to resume from: read from its commit timestamp, inclusive, and drop what is at or before
the position in commit order. As text it is base64.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.core.records import sequence_number
from connector.core.timestamps import format_rfc3339, parse

VERSION = 1
_MARK = b',"checksum":"'
_DAMAGED = "it is not a valid position: copy the whole position of a record"


class DamagedPositionError(ValueError):
    """A document that is damaged."""


@dataclass(frozen=True, slots=True)
class Position:
    """A mod of a change stream; ``stream`` is ``project/instance/database/change stream``, the time is in ns."""

    stream: str
    commit_timestamp: int
    transaction: str
    record_sequence: str
    mod_index: int

    @property
    def order(self) -> tuple[int, str, int, str, int]:
        """Sorts the positions of a stream in commit order."""
        sequence = self.record_sequence
        return (self.commit_timestamp, self.transaction, sequence_number(sequence), sequence, self.mod_index)

    def to_bytes(self) -> bytes:
        """The document."""
        time = format_rfc3339(self.commit_timestamp)
        return _document(self.stream, time, self.transaction, self.record_sequence, self.mod_index)

    def to_text(self) -> str:
        """The document in base64."""
        return b64encode(self.to_bytes()).decode()

    @classmethod
    def from_text(cls, text: str) -> "Position":
        """Reads what :meth:`to_text` wrote.

        Raises:
            ValueError: see :meth:`from_bytes`.
        """
        try:
            document = b64decode(text.strip(), validate=True)
        except ValueError:
            raise DamagedPositionError(_DAMAGED) from None
        return cls.from_bytes(document)

    @classmethod
    def from_bytes(cls, document: bytes) -> "Position":
        """Reads what :meth:`to_bytes` wrote.

        Raises:
            DamagedPositionError: it is damaged.
            ValueError: it has a newer version. The message of both can be shown to users.
        """
        try:
            node = orjson.loads(_unsealed(document))
            if node["version"] <= VERSION:
                return cls(
                    node["stream"],
                    parse(node["commit_timestamp"]),
                    node["transaction"],
                    node["record_sequence"],
                    node["mod_index"],
                )
        except (ValueError, KeyError, TypeError):
            raise DamagedPositionError(_DAMAGED) from None
        raise ValueError(
            f"it has version {node['version']}, newer than this program's {VERSION}: use the program that wrote it"
        )

    def rest_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the envelope's columns, in commit order, that are after this position."""
        at_or_before = 0
        for position in positions(rows):
            if position.order > self.order:
                break
            at_or_before += 1
        return rows.slice(at_or_before)


def positions(rows: pa.RecordBatch) -> Iterator[Position]:
    """The position of each row of the envelope's columns."""
    times = pc.list_element(rows.column("sort_keys"), 1).cast(pa.int64()).to_pylist()
    for time, (stream, _, transaction, record_sequence, index) in zip(times, _columns(rows), strict=True):
        yield Position(stream, time, transaction, record_sequence, index)


def documents(rows: pa.RecordBatch) -> Iterator[bytes]:
    """The position of each row of the envelope's columns, as :meth:`Position.to_bytes` writes it."""
    for row in _columns(rows):
        yield _document(*row)


def _columns(rows: pa.RecordBatch) -> Iterator[tuple[str, str, str, str, int]]:
    """The stream, the commit timestamp as text, the transaction, the record sequence and the mod's index."""
    metadata = rows.column("source_metadata")
    names = ("project_id", "instance_id", "database_id", "change_stream_name")
    streams = pc.binary_join_element_wise(*(pc.struct_field(metadata, name) for name in names), "/")
    others = ("commit_timestamp", "server_transaction_id", "record_sequence", "mod_index")
    return zip(streams.to_pylist(), *(pc.struct_field(metadata, name).to_pylist() for name in others), strict=True)


def _document(stream: str, time: str, transaction: str, record_sequence: str, mod_index: int) -> bytes:
    body = orjson.dumps(
        {
            "version": VERSION,
            "stream": stream,
            "commit_timestamp": time,
            "transaction": transaction,
            "record_sequence": record_sequence,
            "mod_index": mod_index,
        }
    )
    return _sealed(body)


def _sealed(body: bytes) -> bytes:
    return body[:-1] + _MARK + _checksum(body) + b'"}'


def _unsealed(document: bytes) -> bytes:
    body, _, _ = document.rpartition(_MARK)
    if document != _sealed(body + b"}"):
        raise ValueError("its checksum does not match")
    return body + b"}"


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=4).hexdigest().encode()
