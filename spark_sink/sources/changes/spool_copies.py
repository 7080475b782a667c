"""Detects that a spool is another copy: it was restored from a backup, and then further epochs were sealed.

Such a spool has other epochs under the numbers that a consumer has already passed, and the consumer would skip their
records. So a consumer keeps the number and the identity of the last epoch that it is done with. It compares the
identity as long as the spool has that epoch or the next one.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from connector.core.timestamps import format_rfc3339
from connector.errors import SpoolError
from connector.spool.manifest import Manifest, watermark_of
from connector.spool.reading import Spool
from spark_sink.sources.changes.offsets import Offset


def contradiction(spool: Spool, epoch: int, at: str) -> str:
    """A message if the spool does not have the epoch with the identity ``at``; empty if it has, or may have had it."""
    if not at:
        return ""
    with suppress(FileNotFoundError):
        return _not_the_same(spool.manifest(epoch), at)
    with suppress(FileNotFoundError):
        return _does_not_follow(spool.manifest(epoch + 1), at)
    return ""


def _not_the_same(found: Manifest, at: str) -> str:
    if found.identity == at:
        return ""
    return f"its epoch {found.epoch} is another, up to {format_rfc3339(found.watermark_high)}"


def _does_not_follow(found: Manifest, at: str) -> str:
    if found.watermark_low == watermark_of(at):
        return ""
    return f"its epoch {found.epoch} begins after {format_rfc3339(found.watermark_low)}"


def other_copy(spool: Spool, who: str, offset: Offset, found: str, restart: str) -> SpoolError:
    """The error for a spool that is another copy than the one that was read before.

    Args:
        spool: the spool.
        who: the record that ends with the offset, for the message.
        offset: the last epoch in that record.
        found: the result of :func:`contradiction`.
        restart: how to start over, for the hint.
    """
    up_to = f", up to {format_rfc3339(watermark_of(offset.at))}" if offset.at else ""
    return SpoolError(
        f"{who} ends with epoch {offset.epoch}{up_to}, but the spool at {spool.path} is another copy: {found}",
        hint="It was put back from an older one. Restore the newer one, and nothing is lost or read twice; or"
        f" {restart}",
    )


def check_copy(spool: Spool, who: str, done: Offset, restart: str) -> None:
    """Compares the last epoch that a destination has with the spool.

    A spool that was put back from an older copy has other epochs under the numbers that the destination has, and their
    changes would be skipped.

    Args:
        spool: the spool.
        who: what the destination has, for the message.
        done: its last epoch; epoch 0 if there is none.
        restart: how to start over, for the hint.

    Raises:
        SpoolError: the spool is another copy.
    """
    latest = spool.latest()
    ends = f"it ends with epoch {latest}" if done.epoch > latest else ""
    if found := ends or contradiction(spool, done.epoch, done.at):
        raise other_copy(spool, who, done, found, restart)


def begins_at(spool: Spool, epoch: int, done: Offset) -> str:
    """A sentence: which records are read twice, or are missing, if reading starts over after ``epoch``."""
    try:
        low = spool.header().start - 1 if epoch == 0 else spool.manifest(epoch + 1).watermark_low
    except FileNotFoundError:
        return "records that were already read may be read twice."
    begins = format_rfc3339(low)
    if not done.at:
        return f"it reads what was committed after {begins}, and what it has already read of that twice."
    passed = watermark_of(done.at)
    ended = format_rfc3339(passed)
    if low > passed:
        return f"what was committed after {ended} up to {begins} will be missing."
    return f"what was committed after {begins} up to {ended} will be read twice."


def verified(
    epochs: Iterable[Manifest], start: Offset, end: Offset, refusal: Callable[[Offset, str], SpoolError]
) -> Iterator[Manifest]:
    """Yields the manifests of a micro-batch, and verifies that they are the epochs of its offsets.

    Args:
        epochs: the manifests, in order.
        start: the offset before the first epoch.
        end: the offset of the last epoch.
        refusal: makes the error that is raised, of the offset and the contradiction.
    """
    for manifest in epochs:
        if start.at and manifest.epoch == start.epoch + 1 and (found := _does_not_follow(manifest, start.at)):
            raise refusal(start, found)
        if end.at and manifest.epoch == end.epoch and (found := _not_the_same(manifest, end.at)):
            raise refusal(end, found)
        yield manifest
