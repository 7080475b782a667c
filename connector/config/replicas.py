"""The contents of a destination, as ``spanner-cdc verify`` reads them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from connector.config.address import DatabaseAddress
from connector.core.schemas import TableSchema

PARTIAL = "PARTIAL"
"""The mod type of an update in a format that cannot omit columns: null is NULL, or was not captured."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The count and the checksum of the rows of a table in one bucket.

    A value's text is: BOOL ``true`` or ``false``; INT64 and ENUM decimal digits; STRING and DATE as they are; TIMESTAMP
    the microseconds since 1970, rounded down; BYTES and PROTO hexadecimal digits in small letters. It stands in a row's
    text as ``v``, its bytes in UTF-8, ``:`` and itself; NULL is ``n``. The text of a key has the columns of the key in
    their order, that of a row all columns of the schema in theirs. A row's bucket is the number in the first 8
    hexadecimal digits of the MD5 of its key's text, modulo the count of buckets. A table with another kind, or with an
    array, has no digests: its rows are compared one by one.

    Attributes:
        rows: how many rows there are, of those that have not changed since the timestamp.
        low: the sum of the numbers in the first 10 hexadecimal digits of the MD5 of each row's text.
        high: the sum of those in the next 10.
        later: how many rows have changed since the timestamp.
    """

    rows: int = 0
    low: int = 0
    high: int = 0
    later: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected rows: of the tables in ``numbers`` those in these of ``count`` buckets, of others all."""

    count: int = 1
    numbers: Mapping[str, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ValuePrecision:
    """The precision of a destination's values: values that differ by less are equal.

    Attributes:
        timestamp: nanoseconds to which timestamps are cut.
        null_array_is_empty: whether an array that is NULL is an empty one.
        json_has_doubles: whether numbers in JSON values are doubles, except for integers of 64 bits.
        is_opencdc: whether values are those of OpenCDC, where numbers that no double can represent are texts.
    """

    timestamp: int = 1
    null_array_is_empty: bool = False
    json_has_doubles: bool = False
    is_opencdc: bool = False


class Replica(ABC):
    """A destination that was written by a sink, or another database.

    Attributes:
        name: of the destination, for people.
        delivered: everything committed up to here is in it; nanoseconds since 1970.
        keeps_history: whether it holds every change, so that its rows as of any timestamp are known. Otherwise it
            holds each row after its last change, which may be later than the timestamp.
        names_changes: whether a row that it holds after its last change says when that was. Otherwise each row that
            differs is looked up in Spanner once more.
        precision: what it cannot tell apart.
        missing_note: what may explain rows that are missing; empty if there is nothing.
    """

    name: str
    delivered: int
    keeps_history: bool = True
    names_changes: bool = True
    precision: ValuePrecision = ValuePrecision()
    missing_note: str = "rows that have not changed since the spool began are delivered by a backfill only"

    def latest(self, timestamp: int) -> int:
        """The latest timestamp up to this one at which rows can be compared, in nanoseconds since 1970."""
        return timestamp - timestamp % 1000

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Ends what was started to read it."""

    def note(self) -> str:
        """A note that may explain differences, known once the rows are read; empty if there is none."""
        return ""

    def check_repair(self, tables: Mapping[str, TableSchema]) -> None:  # noqa: B027 - most can be repaired
        """Checks that what is delivered once more to these tables stays there.

        Raises:
            ConfigurationError: it does not.
            SpannerCdcError: the destination cannot be read.
        """

    @abstractmethod
    def size(self, tables: Mapping[str, TableSchema]) -> int:
        """About how many bytes :meth:`changes` returns of these tables.

        Raises:
            SpannerCdcError: the destination cannot be read.
        """

    def digests(self, table: TableSchema, timestamp: int, count: int) -> Mapping[int, Digest] | None:
        """The digest of each of ``count`` buckets that has rows of a table; None where rows must be compared.

        Raises:
            SpannerCdcError: the destination cannot be read.
        """
        del table, timestamp, count
        return None

    @abstractmethod
    def changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[pa.RecordBatch]:
        """The changes of these tables' rows, in any order; a destination may return more than is wanted.

        The columns are among those of :data:`connector.envelope.envelope.SCHEMA`, payloads in Datastream's unified
        types: ``object``, ``sort_keys``, ``source_metadata`` with ``mod_type``, and ``payload``. The mod type may be
        :data:`PARTIAL`.

        Raises:
            SpannerCdcError: it cannot be read.
        """


@dataclass(frozen=True, slots=True)
class DatabaseCopy:
    """A destination that is another Spanner database.

    Attributes:
        address: of the database.
        delivered: everything committed up to here is in it; nanoseconds since 1970.
        tables: tables that have another name there: the source's name to the destination's.
        columns: columns that have another name there: ``table.column``, of the source, to the column's name.
    """

    address: DatabaseAddress
    delivered: int
    tables: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
