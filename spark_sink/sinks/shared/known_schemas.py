"""Dead letters of an earlier spool: those whose schema the present spool lacks stay, and do not block the others."""

from collections.abc import Callable
from functools import cache

import pyarrow as pa

from connector.spool.reading import Spool

Rejections = list[tuple[int, str]]
Send = Callable[[pa.RecordBatch], Rejections]


class KnownSchemas:
    """The schemas of the spool with which dead letters are read.

    Args:
        spool: the spool.
    """

    def __init__(self, spool: Spool) -> None:
        self._has = cache(spool.has_schema)
        self._why = (
            f"the spool at {spool.path} does not have the schema that its row was written with. Replay it with the"
            " spool that it is of (spool.path), or remove it."
        )

    def sent(self, rows: pa.RecordBatch, send: Send) -> Rejections:
        """Sends the rows whose schema is known; returns the rejected rows, with those whose schema is not known."""
        known: list[int] = []
        lacking: Rejections = []
        for index, key in enumerate(rows.column("schema_key").to_pylist()):
            if self._has(key):
                known.append(index)
            else:
                lacking.append((index, self._why))
        if not lacking:
            return send(rows)
        rejected = send(rows.take(pa.array(known, pa.int64()))) if known else []
        return sorted([*lacking, *((known[index], why) for index, why in rejected)])
