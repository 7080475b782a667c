"""The order of the key's columns of tables that are first met in the stream: asked of INFORMATION_SCHEMA, once each.

A record tells which columns are of the key, and not their order in it: ``PRIMARY KEY (b, a)`` of a table whose columns
are (a, b) looks like ``PRIMARY KEY (a, b)``. Of the tables that were there when the spool began the order is known.
Only the order is taken from here; what a column's type is, its records say.
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
        ask: the key columns of every table that there is now, in key order.
        keeps: leaves out records that are not written.
        patience: seconds that ``ask`` may take.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[Mapping[str, tuple[str, ...]]]],
        keeps: Callable[[Changes], Changes],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._ask = ask
        self._keeps = keeps
        self._patience = patience

    async def learn(self, registry: SchemaRegistry, changes: Changes) -> None:
        """Asks for the order where records name a key that the registry does not know, of several columns.

        Where Spanner cannot be asked, or the table is gone or was made anew meanwhile, the order of the columns'
        positions is taken for good, and a warning says so.
        """
        if not registry.unordered(changes):
            return
        unordered = registry.unordered(self._keeps(changes))
        if not unordered:
            return
        declared, reason = await self._asked()
        for table, by_position in unordered.items():
            found = declared.get(table, ())
            if set(found) == set(by_position):
                registry.declare(table, found)
                continue
            registry.declare(table, by_position)
            _log.warning(
                "the order of a table's primary key is not known, and is taken to be that of its columns",
                table=table,
                primary_keys=", ".join(by_position),
                reason=reason or ("it has another key now" if found else "there is no such table any more"),
            )

    async def _asked(self) -> tuple[Mapping[str, tuple[str, ...]], str]:
        """What Spanner says, or why it does not."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._ask(), ""
        except TimeoutError:
            return {}, f"Spanner did not answer within {self._patience:g} s"
        except SpannerCdcError as error:
            return {}, str(error)
