"""The spool of a query: the weights of its epochs, and whether it is the spool of the query's checkpoint."""

from collections.abc import Iterator

from connector.core.timestamps import SECOND, format_rfc3339
from connector.errors import SpoolError
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from spark_sink.sources.changes.admission import EpochWeight
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.spool_copies import begins_at, contradiction, other_copy


class QueriedSpool:
    """A spool whose epochs a query takes.

    Args:
        spool: an absolute path, or a URL.
    """

    def __init__(self, spool: str) -> None:
        self._spool = Spool.at(spool)
        self._spool_id = ""
        self._compared: set[tuple[int, str]] = set()
        self._weights: dict[int, EpochWeight] = {}

    def admits(self, table: str) -> bool:
        """True if the rows of a table count towards limits."""
        return bool(table)

    def weights(self, first: int, last: int) -> Iterator[EpochWeight]:
        """The weights of the epochs from ``first`` to ``last``."""
        while first <= last and first in self._weights:
            yield self._weights[first]
            first += 1
        for epoch in self._spool.summaries(first, last):
            weight = self._weights[epoch.epoch] = EpochWeight.of(epoch, self.admits)
            yield weight

    def _identify(self, offset: Offset) -> None:
        """Verifies that the spool is the one of the checkpoint."""
        if not self._spool_id and self._spool.latest():  # before its first epoch a spool may still be created again
            self._spool_id = self._spool.header().spool_id
        if offset.spool_id and not self._spool_id:
            raise SpoolError(
                f"there are no epochs at {self._spool.path} any more",
                hint="Restore the spool, or start the query with a new checkpoint.",
            )
        if offset.spool_id and offset.spool_id != self._spool_id:
            raise SpoolError(
                f"Spark's checkpoint belongs to spool {offset.spool_id}, but at {self._spool.path} is {self._spool_id}",
                hint="Restore the spool of the checkpoint, or start the query with a new checkpoint.",
            )
        if offset.epoch > self._spool.latest():
            raise self._other_copy(offset, f"it ends with epoch {self._spool.latest()}")
        if offset.at and (offset.epoch, offset.at) not in self._compared:
            if found := contradiction(self._spool, offset.epoch, offset.at):
                raise self._other_copy(offset, found)
            self._compared.add((offset.epoch, offset.at))

    def _identity(self, epoch: int) -> str:
        """The identity of a sealed epoch."""
        weight = self._weights.get(epoch)
        if weight is not None and weight.summary is not None:
            return weight.summary.identity
        return next(self._spool.manifests(epoch, epoch)).identity

    def _progress(self, position: dict[str, object] | None, now: int) -> dict[str, object]:
        """The newest epoch with the watermark of ``position``, or of that epoch, and its lag behind ``now``."""
        newest = self._spool.latest()
        report = Offset(newest, self._spool_id).to_json()
        at = Offset.from_json(position).at if position else newest and self._identity(newest)
        if at:
            watermark = watermark_of(at)
            lag = round(max(now - watermark, 0) / SECOND, 3)
            report |= {"watermark": format_rfc3339(watermark), "lag_seconds": lag}
        return report

    def _other_copy(self, offset: Offset, found: str) -> SpoolError:
        return other_copy(self._spool, "Spark's checkpoint", offset, found, self.start_over(offset))

    def start_over(self, done: Offset) -> str:
        """The steps to start over if the spool is not the copy of ``done``, and the records that this affects."""
        oldest = self._spool.floor() - 1
        return f"start the query with a new checkpoint: {begins_at(self._spool, oldest, done)}"
