"""The published cuts of the Spanner sink: the newest one, in the sink's row of the bookkeeping table.

The row itself says up to which commit timestamp every change is applied, because the commits of changes write that. A
published cut adds which tables are incomplete, and why.
"""

from collections.abc import Mapping, Sequence

import orjson
from google.protobuf.message import Message

from connector.config.address import DatabaseAddress
from connector.spanner.blocking import BlockingClient
from spark_sink.sinks.shared.published_cut import CutStore, PublishedCut
from spark_sink.sinks.spanner.writing.mutations import UPDATE
from spark_sink.sinks.spanner.writing.progress import CUT, lacks, row_mutation, select_of
from spark_sink.sinks.spanner.writing.transactions import Read, SinkTransactions


class SpannerCutStore(CutStore):
    """The published cut of one sink and spool.

    Args:
        target: the destination.
        tag: of each transaction.
        dialect: the name of the destination's.
        key: the row's.
    """

    def __init__(self, target: DatabaseAddress, tag: str, dialect: str, key: str) -> None:
        self._target = target
        self._tag = tag
        self._select, self._parameters = select_of(dialect, key)
        self._key = key

    def newest(self) -> PublishedCut | None:
        """The published cut; None if nothing is applied yet, or an older version has applied it."""
        with self._transactions() as transactions:
            row = transactions.run(lambda _: ())
        return PublishedCut.model_validate_json(row[CUT]) if row is not None and row[CUT] else None

    def cuts(self) -> Sequence[PublishedCut]:
        """The newest one: the destination has only the rows of now."""
        newest = self.newest()
        return [] if newest is None else [newest]

    def publish(self, cut: PublishedCut) -> None:
        """Replaces the published cut; a sink that has applied nothing yet has no row, and keeps none."""
        incomplete = orjson.dumps(dict(cut.incomplete)).decode() if cut.incomplete else None
        mutations = row_mutation(UPDATE, self._key, {"cut": cut.model_dump_json(), "incomplete": incomplete})

        def decide(row: Read | None) -> Sequence[Message]:
            return () if row is None else mutations

        with self._transactions() as transactions:
            transactions.run(decide)

    def lacks(self, reasons: Mapping[str, str]) -> None:
        """Names tables as incomplete, with reasons, until the next cut is published; without a row it does nothing."""

        def decide(row: Read | None) -> Sequence[Message]:
            return () if row is None else lacks(row, self._key, reasons)

        with self._transactions() as transactions:
            transactions.run(decide)

    def _transactions(self) -> SinkTransactions:
        return SinkTransactions(BlockingClient(self._target), self._tag, self._select, self._parameters)
