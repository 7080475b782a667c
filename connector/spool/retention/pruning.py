"""Retention: prunes the epochs that every consumer has passed, deletes files without an epoch, writes summaries.

Segments and cuts that a killed writer left without a manifest are deleted after this writer's own first seal, because
until then the other may still be alive. They are looked for among the newest epochs: the earlier ones were swept when
their block was summarized (:mod:`connector.spool.summaries`). The floor is written only in place of what was read.

A task of Spark may write a segment of an epoch after its seal: a speculative one, or one of an executor that was given
up. Such segments are looked for at the next seals, and once more with the files of the block.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from connector.core.health.alarms import KeptLess
from connector.core.timestamps import SECOND
from connector.errors import SpoolError, SpoolInUseError
from connector.log import Log
from connector.spool import consumers
from connector.spool.guards import update, written_by_another
from connector.spool.manifest import Manifest
from connector.spool.reading import Spool, epoch_of_segment, manifest_path, segment_path, to_json
from connector.spool.retention.floor import PATH, FloorDocument, KeptTooShort, floor_in
from connector.spool.retention.retained_epochs import RetainedEpochs
from connector.spool.storage.store import contents
from connector.spool.summaries import EpochSummary, block_end, block_path, blocks_between, in_short, to_block

PRUNE_GRACE = 60 * SECOND
"""Nanoseconds after its seal for which an epoch that every consumer has passed is kept, for replays under way."""

PRUNE_AT_ONCE = 500
"""Epochs that are deleted at a time: sealing waits meanwhile, and object storage is slow."""

MOST_KEPT = 0.8
"""The share of ``spool.max_bytes`` up to which epochs are kept that every consumer has passed; the rest is for those
that consumers still need, so that the reader waits for a consumer and never for what is only kept."""

LATE_EPOCHS = 20
"""Epochs for which segments that tasks write after the seal are looked for with each seal: some minutes."""

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Keeping:
    """For how long epochs are kept that every consumer has passed.

    Attributes:
        span: nanoseconds of commit time before the watermark of the newest epoch. No clock of a machine counts, so an
            epoch that a reader of the same spool finds too old stays so.
        most_bytes: beyond these the oldest go before that; 0 for no limit.
    """

    span: int = 0
    most_bytes: int = 0

    @classmethod
    def within(cls, span: int, max_bytes: int) -> Self:
        """Of the options ``spool.keep`` and ``spool.max_bytes``."""
        return cls(span, int(max_bytes * MOST_KEPT))


NOT_KEPT = Keeping()


class SpoolRetention:
    """Knows the epochs that a spool keeps, and deletes the others. For the spool's one writer.

    Args:
        spool: the spool.
        writer: the writer's id.
        newest: the spool's last epoch.
        progress: called with an epoch up to which all that are kept are known, while they are read.

    Attributes:
        strays: consumers that are done with epochs of another copy of this spool, as the last prune found.

    Raises:
        SpoolError: an epoch that the spool should keep cannot be read.
    """

    def __init__(self, spool: Spool, writer: str, newest: int, progress: Callable[[int], None]) -> None:
        self._spool = spool
        self._writer = writer
        self._newest = newest
        self._has_swept = False
        self._is_sweep_due = True
        self._is_warned = False
        self._listed: dict[int, frozenset[str]] = {}
        """The segments of the newest epochs that tasks have written, by number."""
        self._floor = contents(spool.storage, PATH)
        self._short = floor_in(self._floor, spool.storage.full(PATH)).short
        self._floor_set_at = 0
        self.strays: tuple[str, ...] = ()
        self._epochs = RetainedEpochs()
        self._blocks: set[int] = set()
        self._swept = spool.floor() - 1
        self._read_epochs(progress)

    @property
    def bytes(self) -> int:
        """Bytes of all files of the epochs that are kept. May be read while another thread seals or prunes."""
        return self._epochs.bytes

    @property
    def kept_less(self) -> KeptLess | None:
        """The shortage of what is kept, because of the spool's size; None if nothing was deleted early."""
        first, newest = self._epochs.find(self._epochs.first), self._epochs.find(self._newest)
        if self._short is None or first is None or newest is None:
            return None
        return self._short.less(newest.watermark_high - first.watermark_low)

    def _read_epochs(self, progress: Callable[[int], None]) -> None:
        for run in self._spool.runs(self._swept + 1, self._newest):
            for one in run.epochs:
                self._epochs.add(in_short(one) if run.of_block else one)
            last = run.epochs[-1].epoch
            if run.of_block:
                self._blocks.add(last)
                if run.epochs[0].epoch == self._swept + 1:
                    self._swept = last
            progress(last)

    def add(self, manifest: Manifest, manifest_bytes: int) -> None:
        """Adds an epoch that was sealed just now; sweeps after the first, and after the last of each block.

        The epoch exists already. So where files that no epoch needs cannot be listed or deleted, or a block cannot be
        written, that is logged, and the next seal tries again.

        Raises:
            SpoolInUseError: another daemon has taken this one's place.
        """
        self._newest = manifest.epoch
        summary = EpochSummary.of(manifest, manifest_bytes)
        self._epochs.add(summary)
        if summary.parts:
            self._listed[manifest.epoch] = frozenset(file.path for file in manifest.files)
        self._is_sweep_due = self._is_sweep_due or self._newest == block_end(self._newest)
        try:
            self._delete_unlisted()
            if self._is_sweep_due:
                self._sweep()
        except SpoolInUseError:
            raise
        except SpoolError as error:
            if not self._is_warned:
                _log.warning("the spool cannot be swept; each seal tries again", epoch=self._newest, error=str(error))
            self._is_warned = True
        else:
            self._is_sweep_due = self._is_warned = False

    def _delete_unlisted(self) -> None:
        """Deletes segments of the newest epochs that tasks have written, and that no manifest lists."""
        for epoch in [epoch for epoch in self._listed if epoch <= self._newest - LATE_EPOCHS]:
            del self._listed[epoch]
        if self._listed:
            found = self._segments(min(self._listed), self._newest)
            unlisted = [path for path in found if path not in self._listed.get(epoch_of_segment(path), (path,))]
            self._spool.storage.delete(*unlisted)

    def prune(self, *, now: int, grace: int = PRUNE_GRACE, keeping: Keeping = NOT_KEPT) -> int:
        """Deletes epochs that every consumer has passed, ``grace`` nanoseconds after their seal, and not kept further.

        The newest epoch stays, and everything stays while no consumer is known.

        Returns:
            How many epochs were deleted.

        Raises:
            SpoolInUseError: another daemon has pruned epochs that this one still knows.
        """
        pause = int(self._spool.storage.rewrite_interval * SECOND)
        if abs(now - self._floor_set_at) < pause:
            return 0
        known = consumers.consumers(self._spool)
        if not known:
            return 0
        first = self._epochs.first
        if self._spool.floor() > first:
            raise written_by_another(self._spool)
        self.strays = tuple(one.consumer for one in known if self._is_stray(one))
        if self.strays:
            return 0
        last = first - 1
        most = min(*(consumer.epoch for consumer in known), self._newest - 1, last + PRUNE_AT_ONCE)
        most = min(most, max(self._last_outdated(keeping, most), self._last_too_many(keeping)))
        # If the clock was set back, epochs were sealed in its future: they must not be kept for that long.
        while last < most and abs(now - self._epochs[last + 1].sealed_at) >= grace:
            last += 1
        if last < first:
            return 0
        short = self._too_short(last, keeping, now)
        self._set_floor(last + 1, short)
        self._floor_set_at = now
        if any(consumer.epoch < last for consumer in consumers.consumers(self._spool)):
            # One has registered meanwhile, perhaps before it saw the new floor: it keeps what it was promised.
            self._set_floor(first, short)
            return 0
        pruned = self._epochs.between(range(first, last + 1))
        self._epochs.drop(pruned)
        self._delete(pruned)
        return len(pruned)

    def _last_outdated(self, keeping: Keeping, most: int) -> int:
        """The last epoch up to ``most`` that is older than what is kept; one before the first if there is none."""
        if not keeping.span:
            return most
        since, last = self._epochs[self._newest].watermark_high - keeping.span, self._epochs.first - 1
        while last < most and self._epochs[last + 1].watermark_high <= since:
            last += 1
        return last

    def _last_too_many(self, keeping: Keeping) -> int:
        """The last of the oldest epochs that go although they are to be kept, because all of them are too large."""
        return self._epochs.last_above(keeping.most_bytes) if keeping.span and keeping.most_bytes else 0

    def _too_short(self, last: int, keeping: Keeping, now: int) -> KeptTooShort | None:
        """The record that less is kept than is to be, once the epochs up to ``last`` are deleted."""
        since = self._epochs[self._newest].watermark_high - keeping.span
        if not keeping.span or self._epochs[last + 1].watermark_low <= since:
            return None
        before = self._short
        gives_up = self._epochs[last].watermark_high > since
        if before is None and not gives_up:
            return None  # more was to be kept only after these were deleted
        return KeptTooShort(since=before.since if before else now, keep=keeping.span)

    def _is_stray(self, consumer: consumers.Consumer) -> bool:
        """True if the epoch that a consumer is done with is not this spool's: then it still needs this spool's."""
        one = self._epochs.find(consumer.epoch)
        return consumers.is_stray(consumer, self._newest, one.identity if one is not None else "")

    def _delete(self, pruned: Sequence[EpochSummary]) -> None:
        """Deletes the files of epochs that are below the floor and no longer known here."""
        cuts = {one.cut_path: None for one in pruned if one.cut_path and not self._epochs.refers_to_cut(one.cut_path)}
        blocks = {end for one in pruned if (end := block_end(one.epoch)) == one.epoch}
        self._blocks -= blocks
        delete = self._spool.storage.delete
        delete(*(segment_path(one.epoch, one.writer) for one in pruned if one.files and not one.parts), *cuts)
        if any(one.parts for one in pruned):
            delete(*self._segments(pruned[0].epoch, pruned[-1].epoch))
        delete(*(manifest_path(one.epoch) for one in pruned), *(block_path(end) for end in sorted(blocks)))

    def _segments(self, first: int, last: int) -> list[str]:
        """The paths of all segments of these epochs, of all writers."""
        names = self._spool.storage.list("segments", f"{first:020d}", f"{last + 1:020d}")
        return [f"segments/{name}" for name in names]

    def _set_floor(self, first: int, short: KeptTooShort | None) -> None:
        # The writer's id makes these bytes unique: if they are read back, the write was this writer's.
        data = to_json(FloorDocument(first=first, writer=self._writer, short=short))
        update(self._spool, PATH, self._floor, data)
        self._floor, self._short = data, short

    def _sweep(self) -> None:
        """Deletes files without an epoch, up to the newest epoch, and summarizes the blocks that are complete."""
        storage = self._spool.storage
        if not self._has_swept:
            # Not consumers/: consumers are other writers.
            for folder in ("segments", "manifests", "schemas", "cuts", "summaries"):
                storage.sweep(folder)
            self._sweep_below(self._spool.floor())
            self._has_swept = True
        between = f"{self._swept + 1:020d}", f"{self._newest + 1:020d}"  # another may have sealed what follows
        names = storage.list("segments", *between)
        needed = {name for name in names if self._needs(name)}
        segments = [f"segments/{name}" for name in names if name not in needed]
        segments += _unlisted(self._spool, self._epochs, [f"segments/{name}" for name in names if name in needed])
        cuts = [f"cuts/{name}" for name in storage.list("cuts", *between)]
        storage.delete(*segments, *(path for path in cuts if not self._epochs.refers_to_cut(path)))
        for block in blocks_between(self._epochs.first, self._newest):
            if block[-1] not in self._blocks:
                storage.replace(block_path(block[-1]), to_block(self._epochs.between(block)))
                self._blocks.add(block[-1])
                self._epochs.shorten(block)
            self._swept = max(self._swept, block[-1])

    def _sweep_below(self, floor: int) -> None:
        """Deletes files below the floor, of a writer that was killed while it pruned or that resumed late."""
        storage, end = self._spool.storage, f"{floor:020d}"
        for folder in ("segments", "cuts", "manifests", "summaries"):
            paths = [f"{folder}/{name}" for name in storage.list(folder, end=end)]
            storage.delete(*(path for path in paths if not self._epochs.refers_to_cut(path)))

    def _needs(self, segment: str) -> bool:
        number, _, name = segment.removesuffix(".arrow").partition("-")
        writer, _, part = name.partition("-")
        return number.isdecimal() and self._epochs.has_segment(int(number), writer, part=bool(part))


def _unlisted(spool: Spool, epochs: RetainedEpochs, segments: Sequence[str]) -> list[str]:
    """Of segments whose epoch and writer are known, those that are not in the epoch's manifest.

    A manifest is read only where there are more segments than its epoch has.
    """
    count = Counter(map(epoch_of_segment, segments))
    unlisted: list[str] = []
    for number, found in count.items():
        one = epochs.find(number)
        if one is not None and found > one.files:
            listed = {file.path for manifest in spool.manifests(number, number) for file in manifest.files}
            unlisted += [path for path in segments if epoch_of_segment(path) == number and path not in listed]
    return unlisted
