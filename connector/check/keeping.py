"""The room in ``spool.max_bytes`` for ``spool.keep``, judged by the bytes that the spool holds."""

from collections.abc import Iterator

from connector.config.sections import SpoolConfig
from connector.core.timestamps import MINUTE, format_duration
from connector.spool.reading import Spool, while_pruned
from connector.spool.retention.pruning import Keeping
from connector.spool.summaries import held_bytes

_LEAST_SPAN = 10 * MINUTE
"""Nanoseconds of commit time that a spool must span, so that its bytes say something about the next days."""


def warnings_of_keep(spool: Spool, options: SpoolConfig) -> Iterator[str]:
    """A warning if less than ``spool.keep`` will be kept at the present rate; none while the rate is not known.

    Raises:
        SpoolError: the spool cannot be read.
    """
    if not options.keep or not spool.latest():
        return
    epochs = while_pruned(spool, lambda: list(spool.summaries(spool.floor(), spool.latest())))
    span, held = epochs[-1].watermark_high - epochs[0].watermark_low, held_bytes(epochs)
    room = Keeping.within(options.keep, options.max_bytes).most_bytes
    needed = held * options.keep // span if span >= _LEAST_SPAN else 0
    if needed > room:
        yield (
            f"spool.keep: {format_duration(options.keep)} at the rate of the last {format_duration(span)} are"
            f" {needed / 1e9:,.1f} GB, and four fifths of spool.max_bytes are {room / 1e9:,.1f} GB: about"
            f" {format_duration(options.keep * room // needed)} will be kept"
        )
