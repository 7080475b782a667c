"""A database's dialect and clock, asked before a snapshot is chosen."""

from dataclasses import dataclass
from typing import Self

from connector.config.values import resolve_timestamp
from connector.core.dialects import Dialect
from connector.spanner.blocking import DatabaseAddress
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import current_timestamp, dialect_of


@dataclass(frozen=True, slots=True)
class DatabaseNow:
    """A database's dialect, and a timestamp that Spanner's clock has passed, nanoseconds since the epoch."""

    dialect: Dialect
    timestamp: int

    @classmethod
    async def of(cls, source: DatabaseAddress, *, at: str = "now") -> Self:
        """Asks a database.

        Args:
            source: the database.
            at: ``now``, an offset such as ``-15m``, or an RFC 3339 timestamp.

        Raises:
            SpannerCdcError: the database cannot be reached, or refuses the query.
        """
        name = f"projects/{source.project}/instances/{source.instance}/databases/{source.database}"
        client = SpannerClient(name, source.emulator_host, source.endpoint, source.database_role)
        async with client.connected():
            now = await current_timestamp(client)
            return cls(await dialect_of(client), resolve_timestamp(at, now // 1000 * 1000))
