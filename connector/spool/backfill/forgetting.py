"""The end of a consumer: its records in a change stream's spool, and in those of the backfills that it was to get."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from connector.errors import SpoolInUseError
from connector.spool.backfill.records import backfills, mark_forgotten
from connector.spool.consumers import DESTINATION, REPORT, checked_name, claimed, find, forget, is_recorded, sink_lock
from connector.spool.reading import Spool


def forget_everywhere(spool: Spool, name: str, *, now: int) -> None:
    """Removes a consumer, so that it keeps no epoch from being pruned, and all that a sink has recorded.

    A backfill that the sink has got a part of is lost: the next run reads its tables again, since what was delivered is
    no longer in its spool.

    Args:
        spool: the change stream's, or one of a backfill.
        name: the consumer's.
        now: Unix nanoseconds.

    Raises:
        SpoolInUseError: it runs: what it records next would be of a sink without a start and without a destination.
        SpoolError: there is no such consumer, or the spool cannot be read or written.
    """
    with _stopped(spool, name):
        is_sink = _is_sink(spool, name)
        is_found = False
        for one in backfills(spool):
            known = find(one.spool, name)
            is_of_sink = is_sink or _is_sink(one.spool, name)  # of a backfill before the first run, only there
            if is_of_sink and known is not None and known.epoch > 0 and not one.progress.is_done:
                mark_forgotten(one.spool, name, now=now)
            if is_recorded(one.spool, name):
                is_found = True
                forget(one.spool, name)
        if not is_found or is_recorded(spool, name):  # the stream's last: whoever is killed before can repeat it
            forget(spool, name)


@contextmanager
def _stopped(spool: Spool, name: str) -> Iterator[None]:
    """Holds the locks of a consumer wherever it is recorded, so that neither its sink nor its query runs."""
    recorded = [one for one in (spool, *(each.spool for each in backfills(spool))) if is_recorded(one, name)]
    with ExitStack() as locks:
        for one in recorded:
            taken = f"consumer {name!r} of the spool at {one.path} is in use"
            try:
                locks.enter_context(one.storage.locked(sink_lock(name), taken))
                locks.enter_context(claimed(one, name))
            except SpoolInUseError as error:
                raise SpoolInUseError(error.message, hint="Stop it first, then forget it.") from None
        yield


def _is_sink(spool: Spool, name: str) -> bool:
    """True if a sink, and no query of a user's own, has records of that name in a spool."""
    return any(spool.storage.exists(f"consumers/{checked_name(name)}{ending}") for ending in (DESTINATION, REPORT))
