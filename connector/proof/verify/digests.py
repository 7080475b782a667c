"""Counts and checksums of Spanner's rows by bucket, as a destination computes them of its own. Pure."""

from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Mapping
from hashlib import md5

from connector.config.replicas import Digest
from connector.core.column_kinds import ColumnKind, SpannerType
from connector.core.schemas import TableSchema
from connector.core.timestamps import parse
from connector.proof.verify.rows import Columns


def is_digested(schema: TableSchema) -> bool:
    """True if both sides can compute the text of every column alike."""
    types = [SpannerType.parse(column.type) for column in schema.columns]
    return all(one.kind in _TEXTS and not one.is_array for one in types)


class RowDigester:
    """Adds up the digests of a table's rows (:class:`connector.config.replicas.Digest`).

    Args:
        schema: the table's; :func:`is_digested`.
        count: how many buckets there are.
    """

    def __init__(self, schema: TableSchema, count: int) -> None:
        texts = {column.name: _TEXTS[SpannerType.parse(column.type).kind] for column in schema.columns}
        self._keys = [(name, texts[name]) for name in schema.primary_keys]
        self._all = [(column.name, texts[column.name]) for column in schema.columns]
        self._count = count
        self._sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])

    def number(self, columns: Columns) -> int:
        """The bucket of a row.

        Raises:
            ValueError, TypeError: a value does not fit its type. The message may hold it.
        """
        return int(_digest(self._keys, columns)[:8], 16) % self._count

    def add(self, columns: Columns) -> int:
        """Adds a row; returns its bucket. See :meth:`number` for errors."""
        number = self.number(columns)
        digest = _digest(self._all, columns)
        sums = self._sums[number]
        sums[0] += 1
        sums[1] += int(digest[:10], 16)
        sums[2] += int(digest[10:20], 16)
        return number

    def differing(self, others: Mapping[int, Digest]) -> frozenset[int]:
        """The buckets whose rows differ from those of the destination, or that hold rows which changed since."""
        nothing = Digest()
        numbers = self._sums.keys() | others.keys()
        return frozenset(
            number for number in numbers if others.get(number, nothing) != Digest(*self._sums.get(number, (0, 0, 0)))
        )


def _digest(columns: list[tuple[str, Callable[[object], str]]], row: Columns) -> str:
    texts = []
    for name, text_of in columns:
        value = row.get(name)
        if value is None:
            texts.append("n")
        else:
            text = text_of(value)
            texts.append(f"v{len(text) if text.isascii() else len(text.encode())}:{text}")
    return md5("".join(texts).encode(), usedforsecurity=False).hexdigest()


def _boolean(value: object) -> str:
    return "true" if value is True else "false"


def _microseconds(value: object) -> str:
    return str(parse(str(value)) // 1000)


def _hexadecimal(value: object) -> str:
    return b64decode(str(value), validate=True).hex()


_TEXTS: Mapping[ColumnKind, Callable[[object], str]] = {
    ColumnKind.BOOL: _boolean,
    ColumnKind.INT64: str,
    ColumnKind.STRING: str,
    ColumnKind.BYTES: _hexadecimal,
    ColumnKind.DATE: str,
    ColumnKind.TIMESTAMP: _microseconds,
    ColumnKind.ENUM: str,
    ColumnKind.PROTO: _hexadecimal,
}
"""The text of a value in Datastream's unified types."""
