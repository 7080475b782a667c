"""Reads rows of Spanner by their keys, as of a timestamp."""

from collections import defaultdict
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import msgspec
import orjson
import pyarrow as pa

from connector.config.address import DatabaseAddress
from connector.config.sections import SourceConfig
from connector.core.column_kinds import SpannerType
from connector.errors import NoSuchTableError, VersionRetentionError
from connector.spanner.snapshot.queries import TableQuery
from spark_sink.errors import SinkError
from spark_sink.sinks.shared.completing.row_keys import Key, Kinds, row_key
from spark_sink.sinks.shared.completing.whole_rows import Found, Read, Values, decoded


@dataclass(frozen=True, slots=True)
class Completion:
    """The way in which a task completes rows; small, as it is part of Spark's tasks.

    Attributes:
        address: the database.
        rpc_priority: low, medium or high.
        skips_changes: whether the spool lacks changes of the tables, so that a row may have changed since an epoch's
            last one.
        deletes: whether DELETEs get the rows that they removed; sinks that delete by the key need none.
    """

    address: DatabaseAddress
    rpc_priority: str = "high"
    skips_changes: bool = False
    deletes: bool = False

    @classmethod
    def text_of(cls, source: SourceConfig, *, deletes: bool) -> str:
        """The completion that the configuration asks for, as text; empty if rows are not completed."""
        return replace(cls.reading(source), deletes=deletes).to_text() if source.complete_rows else ""

    @classmethod
    def reading(cls, source: SourceConfig) -> "Completion":
        """A completion that reads rows of a source, whatever the configuration asks for."""
        return cls(source.address, source.rpc_priority, bool(source.skip_transaction_tags))

    def to_text(self) -> str:
        """The text of an option of a source."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "Completion | None":
        """Reads what :meth:`to_text` wrote; None for an empty text."""
        return msgspec.json.decode(text, type=cls) if text else None


@dataclass(slots=True)
class SpannerRows:
    """Reads rows of tables by their keys; a table or a column that does not exist at a timestamp has no rows there."""

    completion: Completion
    _suspects: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By table, the columns that it did not have lately; each is asked for alone first, because it may exist by now."""
    _expired: int = 0
    """The newest timestamp, in nanoseconds since 1970, of which Spanner was found to keep no rows any more."""

    def read(self, read: Read) -> Found:
        """The rows; empty where Spanner does not keep them any more, or where the table does not exist.

        Raises:
            SpannerCdcError: any other error, which may pass: nothing follows from it.
        """
        if read.at <= self._expired:
            return Found()
        try:
            return self.rows(read)
        except NoSuchTableError:
            return Found()
        except VersionRetentionError:
            self._expired = max(self._expired, read.at)
            return Found()

    def rows(self, read: Read) -> Found:
        """The rows as of the timestamp, without the columns that the table did not have then.

        Raises:
            NoSuchTableError: the table did not exist then.
            VersionRetentionError: Spanner does not keep the rows of that time any more.
            SpannerCdcError: any other error.
        """
        suspects = self._suspects[read.table]
        suspects -= {name for name in suspects.intersection(read.columns) if self._exists(read, name)}
        try:
            return self._without(read, suspects)
        except NoSuchTableError:
            if not self._exists(read):
                raise
        suspects |= {name for name in read.columns if name not in suspects and not self._exists(read, name)}
        return self._without(read, suspects)

    def _without(self, read: Read, gone: AbstractSet[str]) -> Found:
        """The rows without these columns, which the table does not have as of the timestamp."""
        rows = self._rows(read, tuple(name for name in read.columns if name not in gone), read.keys)
        return Found(rows, frozenset(read.columns) & gone)

    def _exists(self, read: Read, *names: str) -> bool:
        """True if the table, and these columns of it, exist as of the timestamp."""
        try:
            self._rows(read, names, read.keys[:1])
        except NoSuchTableError:
            return False
        return True

    def _rows(self, read: Read, columns: tuple[str, ...], keys: tuple[str, ...]) -> dict[Key, Values]:
        # Spanner's client takes longer to load than all else together.
        from connector.spanner.snapshot.reading import read_keys

        rows: dict[Key, Values] = {}
        kinds: Kinds = {}
        query = TableQuery(read.table, (*read.key_columns, *columns))
        for block in read_keys(
            self.completion.address,
            query,
            pa.array(keys, pa.string()),
            read.key_columns,
            read.at,
            rpc_priority=self.completion.rpc_priority,
        ):
            of_keys, values = block.payloads(read.key_columns), block.payloads(columns)
            kinds = {column.name: SpannerType.parse(column.type).kind for column in block.columns}
            for key, row in zip(of_keys.to_pylist(), values.to_pylist(), strict=True):
                rows[row_key(orjson.loads(key), read.key_columns, kinds)] = decoded(row)
        if rows and all(row_key(orjson.loads(key), read.key_columns, kinds) not in rows for key in keys):
            raise SinkError(
                f"rows of table {read.table} were read by their keys, and none has a key that was requested",
                hint="Report this with the types of the table's key.",
            )
        return rows
