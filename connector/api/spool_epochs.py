"""Epochs of a spool after a checkpoint, checked against it: nothing is skipped, whatever happened to the spool."""

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa

from connector.api.checkpoint import Checkpoint
from connector.api.epochs import Epoch, EventReader
from connector.core.timestamps import format_rfc3339
from connector.errors import SpoolError
from connector.spool import reading
from connector.spool.manifest import Manifest


class SpoolEpochs:
    """The epochs of a spool.

    Args:
        spool: the spool; it need not exist yet.
    """

    def __init__(self, spool: reading.Spool) -> None:
        self.spool = spool
        self._events = EventReader(spool.schema)

    def stream(self) -> str:
        """The change stream that the spool holds.

        Raises:
            SpoolError: there is no spool, or it cannot be read.
        """
        try:
            return str(self.spool.header().source)
        except FileNotFoundError:
            raise SpoolError(
                f"there is no spool at {self.spool.path}",
                hint="Check the path, or start the daemon that writes it (`spanner-cdc read CONFIG`).",
            ) from None

    def check(self, done: Checkpoint) -> None:
        """Compares the spool with a checkpoint.

        Raises:
            SpoolError: the spool holds other epochs under these numbers, or those after the checkpoint were deleted.
        """
        latest, floor = self.spool.latest(), self.spool.floor()
        if done.epoch > latest:
            raise self._replaced(done, f"its newest epoch is {latest}")
        if done.epoch + 1 < floor:
            raise SpoolError(
                f"cannot continue after {done} in the spool at {self.spool.path}: epochs {done.epoch + 1} to"
                f" {floor - 1} were deleted",
                hint="A registered consumer keeps the epochs that it needs. To continue without them, start without a"
                " checkpoint.",
            )
        with suppress(FileNotFoundError):  # deleted, as the checkpoint's own epoch may be
            found = self.spool.manifest(done.epoch)
            if found.identity != done.identity:
                raise self._replaced(done, f"its epoch {done.epoch} is {found.identity}")

    def after(self, done: Checkpoint | None) -> Iterator[Epoch]:
        """The epochs after a checkpoint up to the newest, or those that are kept; each follows the one before.

        Raises:
            SpoolError: as :meth:`check` does; or an epoch was deleted meanwhile.
        """
        stream = self.stream()
        if done is not None:
            self.check(done)
        for manifest in self.spool.manifests(done.epoch + 1 if done else self.spool.floor(), self.spool.latest()):
            if done is not None and manifest.watermark_low != done.watermark:
                low = format_rfc3339(manifest.watermark_low)
                raise self._replaced(done, f"its epoch {manifest.epoch} begins after {low}")
            done = Checkpoint(stream, manifest.epoch, manifest.identity)
            yield self._epoch(stream, manifest)

    def _epoch(self, stream: str, manifest: Manifest) -> Epoch:
        return Epoch(
            stream=stream,
            number=manifest.epoch,
            identity=manifest.identity,
            low=manifest.watermark_low,
            high=manifest.watermark_high,
            rows=manifest.rows,
            final=manifest.final,
            gap=manifest.gap.reason if manifest.gap else None,
            _open=lambda: self._batches(manifest),
            _reader=self._events,
        )

    def _batches(self, manifest: Manifest) -> Iterator[pa.RecordBatch]:
        for file in manifest.files:
            try:
                yield from self.spool.batches(file)
            except SpoolError as error:
                if self.spool.floor() <= manifest.epoch:
                    raise
                raise SpoolError(
                    f"epoch {manifest.epoch} of the spool at {self.spool.path} was deleted before it was read",
                    hint="Every registered consumer has passed it. Read as a consumer, with run_sink, to keep epochs.",
                ) from error

    def _replaced(self, done: Checkpoint, found: str) -> SpoolError:
        return SpoolError(
            f"the spool at {self.spool.path} is another copy than the one of the checkpoint ({done}): {found}",
            hint="It was restored from an older copy. Restore the newer copy, or start without a checkpoint.",
        )
