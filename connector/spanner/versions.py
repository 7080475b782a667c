"""The time for which a database keeps old versions of rows, which limits a backfill, and the size of its tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connector.core.dialects import Dialect
from connector.errors import SpannerCdcError
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import dialect_name

DEFAULT_PERIOD = "1h"

_BYTES_PER_SECOND = 10_000_000
"""Bytes that a core reads, seals and delivers in a second, roughly; for an estimate before anything is read."""


@dataclass(frozen=True, slots=True)
class RowVersions:
    """The database's ``version_retention_period``, and the bytes of its tables as far as it reports them."""

    period: str
    table_bytes: Mapping[str, int]

    def seconds(self, tables: Iterable[str], cores: int) -> float | None:
        """About how long the tables take with so many cores, in seconds; None where a size is not reported."""
        sizes = [self.table_bytes.get(table) for table in tables]
        known = [size for size in sizes if size is not None]
        return sum(known) / (_BYTES_PER_SECOND * cores) if len(known) == len(sizes) else None


async def row_versions(client: SpannerClient, dialect: Dialect) -> RowVersions:
    """Asks the database; an emulator, and a database role without access to statistics, report no sizes.

    Raises:
        SpannerCdcError: the database cannot be reached.
    """
    rows = await client.rows(
        "SELECT option_value FROM information_schema.database_options WHERE option_name = 'version_retention_period'"
    )
    period = str(rows[0][0]) if rows and rows[0][0] else DEFAULT_PERIOD
    try:
        sizes = await client.rows(
            "SELECT table_name, used_bytes FROM spanner_sys.table_sizes_stats_1hour"
            " WHERE interval_end = (SELECT MAX(interval_end) FROM spanner_sys.table_sizes_stats_1hour)"
        )
    except SpannerCdcError:
        sizes = []
    return RowVersions(period, {_name(dialect, str(table)): int(str(size)) for table, size in sizes})


def _name(dialect: Dialect, table: str) -> str:
    """A table as change records name it; the statistics may name the unnamed schema."""
    schema, dot, name = table.rpartition(".")
    return dialect_name(dialect, schema, name) if dot else table
