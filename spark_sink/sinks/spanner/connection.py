"""The writer's connection to the destination: its tables, its transactions, and the bookkeeping row."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from uuid import uuid4

from connector.config.address import DatabaseAddress
from connector.spanner.blocking import BlockingClient
from connector.spool.reading import Spool
from spark_sink.sinks.spanner.destination_tables import DestinationDatabase, awaited_destination
from spark_sink.sinks.spanner.writing.progress import AppliedProgress, select_of
from spark_sink.sinks.spanner.writing.transactions import SinkTransactions


class SpannerConnection(NamedTuple):
    """A destination's tables as they are now, and the bookkeeping row of a sink, which this process has not claimed."""

    there: DestinationDatabase
    progress: AppliedProgress


@contextmanager
def connected(
    target: DatabaseAddress,
    tag: str,
    spool: Spool,
    consumer: str,
    identities: Mapping[int, str],
    *,
    patience: float = 0,
    is_backfill: bool = False,
) -> Iterator[SpannerConnection]:
    """Connects to the destination for as long as the context is open.

    Args:
        target: the database.
        tag: of each transaction.
        spool: whose changes are written.
        consumer: the sink's name.
        identities: those of the epochs that are applied, by number.
        patience: seconds for which the database is asked again if it does not answer at first.
        is_backfill: whether the epochs are of a backfill.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses.
    """
    there = awaited_destination(target, patience)
    sink = key_of(spool, consumer)
    select, parameters = select_of(there.dialect.name, sink)
    with SinkTransactions(BlockingClient(target), tag, select, parameters) as transactions:
        yield SpannerConnection(
            there, AppliedProgress(transactions, sink, uuid4().hex, identities, there.dialect.name, is_backfill)
        )


def key_of(spool: Spool, consumer: str) -> str:
    """The key of a sink's bookkeeping row."""
    return f"{spool.header().spool_id}/{consumer}"
