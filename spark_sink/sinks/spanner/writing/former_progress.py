"""The bookkeeping of earlier runs that a spool does not know of: compared once, at the start of a sink.

The bookkeeping row decides where a sink continues. So a sink that was forgotten, or whose spool is another one, would
skip changes or apply them over later ones, and nothing would say so.
"""

import asyncio

from connector.config.address import DatabaseAddress
from connector.core.timestamps import format_rfc3339, parse
from connector.spanner.client import SpannerClient
from connector.spool.consumers import find
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from connector.spool.sink_start import start_of_sink
from spark_sink.sinks.shared.started_batches import StartedBatches
from spark_sink.sinks.spanner.destination_tables import WRITER
from spark_sink.sinks.spanner.writing.progress import IDENTITY, STARTS_OVER, TABLE, Claimed
from spark_sink.sinks.spanner.writing.units import UnitPosition
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.spool_copies import check_copy

_SELECT = f"SELECT sink, epoch, events, {IDENTITY}, complete_up_to_text FROM {TABLE}"


def contradiction_at_start(spool: Spool, name: str, key: str, target: DatabaseAddress) -> str:
    """A warning if the destination has changes of a sink that the spool does not know of; else an empty text.

    Args:
        spool: the change stream's, in which the sink is registered.
        name: the sink's.
        key: of the sink's row.
        target: the destination, which has the bookkeeping table.

    Raises:
        SpoolError: the destination has later epochs than the spool, or others: it is another copy.
        SpannerCdcError: the destination cannot be read.
    """
    rows = asyncio.run(_rows(target))
    own = rows.get(key)
    if own is not None:
        check_copy(spool, "what the destination has applied", Offset(own.epoch, at=own.identity), STARTS_OVER)
        return _unknown(spool, name, key, own, target)
    others = [row for of, row in rows.items() if of.endswith(f"/{name}") and row.complete]
    newest = max(others, key=lambda row: parse(row.complete), default=None)
    return "" if newest is None else _of_another(spool, name, newest, target)


def _unknown(spool: Spool, name: str, key: str, own: Claimed, target: DatabaseAddress) -> str:
    known, started = find(spool, name), StartedBatches(spool, name)
    first = known.epoch + 1 if known is not None else spool.floor()
    if (known is not None and known.at) or not started.is_empty or own.position <= UnitPosition(first, 0):
        return ""
    return (
        f"{target.path} has the changes up to epoch {own.epoch}{_up_to(own.identity)} of sink {name}, and the spool at"
        f" {spool.path} does not know of it: the sink continues after that epoch, and not with epoch {first}. To"
        f" apply the epochs from {first} on again, stop it, and delete the row {key!r} of {TABLE}"
    )


def _of_another(spool: Spool, name: str, newest: Claimed, target: DatabaseAddress) -> str:
    start = start_of_sink(spool, name)
    after, done = start.after if start is not None else spool.header().start - 1, parse(newest.complete)
    begins = format_rfc3339(after)
    if after > done:
        follows = f"what was committed after {newest.complete} up to {begins} is missing"
    else:
        follows = f"what was committed after {begins} up to {newest.complete} is applied once more, over later states"
    return (
        f"{target.path} has the changes up to {newest.complete} of a sink {name} of another spool. This one starts with"
        f" what was committed after {begins}: {follows}"
    )


def _up_to(identity: str) -> str:
    return f", committed up to {format_rfc3339(watermark_of(identity))}," if identity else ""


async def _rows(target: DatabaseAddress) -> dict[str, Claimed]:
    """The positions in the bookkeeping table, by the keys of their rows."""
    client = SpannerClient(target, access=WRITER)
    async with client.connected():
        rows = await client.rows(_SELECT)
    return {
        str(key): Claimed(UnitPosition(int(str(epoch)), int(str(events))), str(identity or ""), str(complete or ""))
        for key, epoch, events, identity, complete in rows
    }
