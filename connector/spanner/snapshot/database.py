"""A database's dialect and clock, requested before the timestamp of a snapshot is chosen."""

from dataclasses import dataclass
from typing import Self

from connector.config.address import DatabaseAddress
from connector.config.values import resolve_timestamp
from connector.core.dialects import Dialect
from connector.core.timestamps import format_rfc3339
from connector.errors import ConfigurationError
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import current_timestamp, dialect_of


@dataclass(frozen=True, slots=True)
class DatabaseNow:
    """A database's dialect, and a timestamp that Spanner's clock has passed, Unix nanoseconds."""

    dialect: Dialect
    timestamp: int

    @classmethod
    async def of(cls, address: DatabaseAddress, *, at: str = "now") -> Self:
        """Requests both from a database.

        Args:
            address: the database.
            at: ``now``, an offset such as ``-15m``, or an RFC 3339 timestamp.

        Raises:
            ConfigurationError: the timestamp is in the future.
            SpannerCdcError: the database cannot be reached, or refuses the query.
        """
        client = SpannerClient(address)
        async with client.connected():
            now = await current_timestamp(client)
            timestamp = resolve_timestamp(at, now // 1000 * 1000)
            if timestamp > now:
                raise ConfigurationError(
                    [f"the timestamp {at} is in the future: it is {format_rfc3339(now)} in Spanner"]
                )
            return cls(await dialect_of(client), timestamp)
