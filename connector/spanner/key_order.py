"""Finds the key order of tables that were created after the spool, from INFORMATION_SCHEMA, once for each table.

A record lists the columns of its table's key, but not their order: ``PRIMARY KEY (b, a)`` of a table with the columns
(a, b) looks like ``PRIMARY KEY (a, b)``. The order is known of tables that existed when the spool was created. Only the
order is taken from INFORMATION_SCHEMA; the types of columns come from the records.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from connector.core.changes import Changes
from connector.core.schemas import SchemaRegistry
from connector.errors import SpannerCdcError
from connector.log import Log

PATIENCE = 5.0
"""Seconds that Spanner has to answer: an epoch waits for it."""

_log = Log(__name__)


class KeyOrder:
    """Declares the key order of new tables to a registry before it sees their records.

    Args:
        ask: requests the key columns of every present table, in key order.
        keeps: omits records that are not written.
        role: the database role, which may not see every table; empty without one.
        patience: seconds that ``ask`` may take.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]],
        keeps: Callable[[Changes], Changes],
        *,
        role: str = "",
        patience: float = PATIENCE,
    ) -> None:
        self._ask = ask
        self._role = role
        self._keeps = keeps
        self._patience = patience

    async def learn(self, registry: SchemaRegistry, changes: Changes) -> None:
        """Requests the order if records name a key of several columns that the registry does not know.

        If Spanner does not answer, or the table was dropped or created again meanwhile, the order of the columns'
        positions is used from then on, and a warning is logged.
        """
        if not registry.unordered(changes):
            return
        unordered = registry.unordered(self._keeps(changes))
        if unordered:
            await self.order(registry, unordered)

    async def order(
        self, registry: SchemaRegistry, unordered: Mapping[str, tuple[str, ...]]
    ) -> dict[str, tuple[str, ...]]:
        """Declares the order of keys, as :meth:`learn` does, and returns it.

        Args:
            registry: the schemas.
            unordered: by table, the key's columns in the order of their positions.
        """
        ordered = {}
        declared, reason = await self._request()
        for table, by_position in unordered.items():
            found = declared.get(table, ())
            if set(found) == set(by_position):
                ordered[table] = tuple(found)
                registry.declare(table, found)
                continue
            ordered[table] = tuple(by_position)
            registry.declare(table, by_position)
            _log.warning(
                "the column order of a table's primary key is unknown; the order of the columns' positions is used",
                table=table,
                primary_keys=", ".join(by_position),
                reason=reason or ("it has another key now" if found else self._unseen()),
            )
        return ordered

    def _unseen(self) -> str:
        """The reason why a table is not in INFORMATION_SCHEMA."""
        if self._role:
            return f"database role {self._role} does not see the table in INFORMATION_SCHEMA, or it no longer exists"
        return "the table no longer exists"

    async def _request(self) -> tuple[Mapping[str, tuple[str, ...]], str]:
        """The key columns by table, or none and the reason."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._ask(), ""
        except TimeoutError:
            return {}, f"Spanner did not answer within {self._patience:g} s"
        except SpannerCdcError as error:
            return {}, str(error)
