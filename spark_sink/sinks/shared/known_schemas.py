"""The schemas of the spool with which dead letters are read.

Dead letters of an earlier spool whose schema the present one lacks stay, and do not block the others. So do those of
another change stream: a schema's key does not name the database, and two daemons may share a store by mistake.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.log import Log
from connector.spool.reading import Spool

_log = Log(__name__)

Rejections = list[tuple[int, str]]
"""The index of each rejected row, and why."""
Send = Callable[[pa.RecordBatch], Rejections]


class KnownSchemas:
    """The schemas of the spool with which dead letters are read.

    Args:
        spool: the spool.
    """

    def __init__(self, spool: Spool) -> None:
        source = spool.header().source
        self._stream = (source.project, source.instance, source.database, source.change_stream)
        self._path = spool.path
        self._has = cache(spool.has_schema)
        self._why = (
            f"the spool at {spool.path} does not have the schema that its row was written with. Replay it with the"
            " spool that it is of (spool.path), or remove it."
        )

    def sent(self, rows: pa.RecordBatch, send: Send) -> Rejections:
        """Sends the stream's rows whose schema is known; returns the rejected rows, with all others."""
        known: list[int] = []
        lacking: Rejections = []
        for index, (stream, key) in enumerate(zip(_streams(rows), rows.column("schema_key").to_pylist(), strict=True)):
            if any(name not in {None, own} for name, own in zip(stream, self._stream, strict=True)):
                lacking.append((index, self._why_not("/".join(map(str, stream)))))
            elif self._has(key):
                known.append(index)
            else:
                lacking.append((index, self._why))
        if not lacking:
            return send(rows)
        rejected = send(rows.take(pa.array(known, pa.int64()))) if known else []
        return sorted([*lacking, *((known[index], why) for index, why in rejected)])

    def _why_not(self, stream: str) -> str:
        return (
            f"its row is of the change stream {stream}, and the spool at {self._path} of another one. Replay it with"
            " the configuration of that stream, and give each its own sink.dead_letters."
        )


def _streams(rows: pa.RecordBatch) -> Iterator[tuple[str | None, ...]]:
    """The project, instance, database and change stream of each row, where it has them."""
    metadata = rows.column("source_metadata")
    names = ("project_id", "instance_id", "database_id", "change_stream_name")
    return zip(*(pc.struct_field(metadata, name).to_pylist() for name in names), strict=True)


class UnknownColumns:
    """Names the columns of dead letters that their schemas do not have, each once: a mistake of whoever edited them.

    Args:
        spool: the spool, which need not exist.
    """

    def __init__(self, spool: Spool) -> None:
        self._columns = cache(lambda key: frozenset(column.name for column in spool.schema(key).columns))
        self._has = cache(spool.has_schema)
        self._known: set[tuple[str, str]] = set()

    def warn(self, rows: pa.RecordBatch) -> None:
        """Warns of those of some dead letters that were not named before.

        Raises:
            SpoolError: a schema cannot be read.
        """
        for table, name in self._unknown(rows):
            if (table, name) not in self._known:
                self._known.add((table, name))
                _log.warning(
                    "a dead letter has a column that the schema of its table does not have: it is not written; mend"
                    " its name",
                    action="dead_letter_with_unknown_column",
                    table=table,
                    column=name,
                )

    def _unknown(self, rows: pa.RecordBatch) -> Iterator[tuple[str, str]]:
        columns = (rows.column(name).to_pylist() for name in ("object", "schema_key", "payload"))
        for table, key, payload in zip(*columns, strict=True):
            with suppress(orjson.JSONDecodeError, TypeError):  # a damaged one is rejected with its reason
                values = orjson.loads(payload)
                if isinstance(values, dict) and key and self._has(key):
                    yield from ((str(table), name) for name in values if name not in self._columns(key))
