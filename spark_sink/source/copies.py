"""Tells a spool from another copy of itself: one that was put back from an older copy, and sealed on.

Such a spool has other epochs under the numbers that a consumer has passed, and would skip what lies between. So a
consumer keeps, beside the number of the epoch that it is done with, that epoch's identity, and compares it while the
spool still has that epoch, or the one after it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from connector.core.timestamps import format_rfc3339
from connector.errors import SpoolError
from connector.spool.manifest import Manifest, watermark_of
from connector.spool.reading import Spool
from spark_sink.source.offsets import Offset


def contradiction(spool: Spool, epoch: int, at: str) -> str:
    """What the spool has in place of an epoch of the identity ``at``; empty where nothing speaks against it."""
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


def other_copy(spool: Spool, who: str, offset: Offset, found: str, anew: str) -> SpoolError:
    """The error for a spool that is another copy than the one that ``who`` has met.

    Args:
        spool: the spool.
        who: for people: what ends with the offset.
        offset: the last epoch that it knows.
        found: what the spool has instead.
        anew: how to begin anew.
    """
    up_to = f", up to {format_rfc3339(watermark_of(offset.at))}" if offset.at else ""
    return SpoolError(
        f"{who} ends with epoch {offset.epoch}{up_to}, but the spool at {spool.path} is another copy: {found}",
        hint=f"It was put back from an older one. Restore the newer one, and nothing is lost or read twice; or {anew}",
    )


def begins_at(spool: Spool, epoch: int, done: Offset) -> str:
    """What is read twice, or is missing, where reading begins anew after ``epoch``, for people."""
    try:
        low = spool.header().start - 1 if epoch == 0 else spool.manifest(epoch + 1).watermark_low
    except FileNotFoundError:
        return "what it has passed may be read twice."
    begins = format_rfc3339(low)
    if not done.at:
        return f"it reads what was committed after {begins}, what it has passed of that twice."
    passed = watermark_of(done.at)
    ended = format_rfc3339(passed)
    if low > passed:
        return f"what was committed after {ended} up to {begins} is missing then."
    return f"what was committed after {begins} up to {ended} is read twice then."


def comparing(
    epochs: Iterable[Manifest], begun: Offset, ended: Offset, refusal: Callable[[Offset, str], SpoolError]
) -> Iterator[Manifest]:
    """The manifests of a micro-batch as they come.

    Args:
        epochs: they.
        begun: what the first follows.
        ended: what the last is.
        refusal: the error, which is raised, where it is not so: the offset, and what was found.
    """
    for manifest in epochs:
        if begun.at and manifest.epoch == begun.epoch + 1 and (found := _does_not_follow(manifest, begun.at)):
            raise refusal(begun, found)
        if ended.at and manifest.epoch == ended.epoch and (found := _not_the_same(manifest, ended.at)):
            raise refusal(ended, found)
        yield manifest
