"""The epochs that a spool keeps, as its one writer knows them: a summary of each, and the bytes of all.

A spool may keep a million epochs. Of those whose block of summaries is written, only what pruning needs stays in
memory.
"""

from collections import Counter
from collections.abc import Sequence

from connector.spool.summaries import EpochSummary, in_short


class RetainedEpochs:
    """The epochs from the oldest that is kept to the newest, without gaps.

    Attributes:
        bytes: of all their files; may be read while another thread adds or drops epochs.
        first: the oldest epoch.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, EpochSummary] = {}
        self._cuts: Counter[str] = Counter()
        self.bytes = 0
        self.first = 1

    def __getitem__(self, epoch: int) -> EpochSummary:
        return self._epochs[epoch]

    def find(self, epoch: int) -> EpochSummary | None:
        """An epoch, or None if it is not kept."""
        return self._epochs.get(epoch)

    def between(self, epochs: range) -> list[EpochSummary]:
        """Those of these epochs that are kept, in order."""
        return [self._epochs[epoch] for epoch in epochs if epoch in self._epochs]

    def add(self, one: EpochSummary) -> None:
        """Adds the epoch that follows the newest."""
        if not self._epochs:
            self.first = one.epoch
        added = one.held
        if one.cut_path:
            added += 0 if self._cuts[one.cut_path] else one.cut_bytes
            self._cuts[one.cut_path] += 1
        self._epochs[one.epoch] = one
        self.bytes += added

    def shorten(self, epochs: range) -> None:
        """Forgets what only the block of these epochs needs, once it is written."""
        for epoch in epochs:
            if epoch in self._epochs:
                self._epochs[epoch] = in_short(self._epochs[epoch])

    def last_above(self, most_bytes: int) -> int:
        """The last of the oldest epochs that have to go, so that at most ``most_bytes`` are left; 0 if none has to."""
        left, last, cuts = self.bytes, 0, Counter[str]()
        while left > most_bytes and (one := self._epochs.get(last + 1 if last else self.first)) is not None:
            last = one.epoch
            left -= one.held
            if one.cut_path:
                cuts[one.cut_path] += 1
                left -= one.cut_bytes if cuts[one.cut_path] == self._cuts[one.cut_path] else 0
        return last

    def drop(self, epochs: Sequence[EpochSummary]) -> None:
        """Removes the oldest epochs."""
        for one in epochs:
            del self._epochs[one.epoch]
            dropped = one.held
            if one.cut_path:
                self._cuts[one.cut_path] -= 1
                if not self._cuts[one.cut_path]:
                    del self._cuts[one.cut_path]
                    dropped += one.cut_bytes
            self.bytes -= dropped
            self.first = one.epoch + 1

    def refers_to_cut(self, path: str) -> bool:
        """True if an epoch that is kept needs the file of a cut."""
        return path in self._cuts

    def has_segment(self, epoch: int, writer: str, *, part: bool) -> bool:
        """True if a segment of that number and writer belongs to an epoch that is kept.

        ``part``: whether it was written by a task. The epoch's manifest may not list it, because such a task may
        outlive the seal.
        """
        one = self._epochs.get(epoch)
        return one is not None and one.writer == writer and one.files > 0 and one.parts is part
