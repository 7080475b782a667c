"""The start of a sink that is new to a spool: ``sink.start``, decided once.

A sink delivers whole epochs. For a timestamp it starts with the epoch that holds the first commit after it, so that it
may deliver some that were committed before. Where files hold a minute, it starts at a full minute. The rest of one
would be a second file of it, under another name, beside the file of a sink that has delivered the whole.
"""

import secrets
from collections.abc import Callable, Iterator

from connector.config.loading import Config
from connector.config.sinks import sink_type
from connector.config.values import OLDEST, resolve_timestamp
from connector.core.timestamps import MINUTE, format_rfc3339
from connector.errors import ConfigurationError, SpoolError
from connector.spool.consumers import find, record, withdraw
from connector.spool.reading import Spool
from connector.spool.sink_start import SinkStart, start_of_sink, write_start

_NOW = "now"


def check_start(config: Config) -> None:
    """Checks that the spool, which need not exist, keeps what follows the start of the configuration's sink.

    Raises:
        ConfigurationError: it does not, and the sink is new.
        SpoolError: the spool cannot be read.
    """
    spool = Spool.at(config.spool.path)
    if spool.storage.exists("spool.json") and find(spool, config.sink.name) is None:
        decided(spool, config.sink.start, by_minute=starts_by_minute(config))


def starts_by_minute(config: Config) -> bool:
    """True if the configuration's sink starts at a full minute."""
    return sink_type(config.sink.type).starts_by_minute(config.sink)


def keep_start(
    spool: Spool, name: str, text: str, *, by_minute: bool, now: int, keeps: Callable[[str], bool] = bool
) -> SinkStart | None:
    """Decides where a new sink starts, and registers it there; the sink's lock is held meanwhile.

    Args:
        spool: a spool that exists.
        name: the sink's.
        text: ``sink.start``.
        by_minute: whether it starts at a full minute.
        now: Unix nanoseconds.
        keeps: whether the sink delivers a table.

    Returns:
        The start; None if the sink is registered already.

    Raises:
        ConfigurationError: the spool does not keep all that follows the timestamp.
        SpoolError: the spool cannot be read or written.
    """
    if find(spool, name) is not None:
        return None
    known = start_of_sink(spool, name)
    while True:
        if known is None or known.requested != text or known.epoch + 1 < spool.floor():
            known = decided(spool, text, by_minute=by_minute)
            known = known.model_copy(update={"tables": tuple(filter(keeps, known.tables))})
            write_start(spool, name, known)
        record(spool, name, known.epoch, now=now)
        if spool.floor() <= known.epoch + 1:
            return known
        withdraw(spool, name)  # its first epoch was pruned just before it was registered


def decided(spool: Spool, text: str, *, by_minute: bool, option: str = "sink.start") -> SinkStart:
    """The start of a sink, or of another consumer, that is new now.

    Args:
        spool: a spool that exists.
        text: where it starts.
        by_minute: whether it starts at a full minute.
        option: the name of the option with the text, for the message.

    Raises:
        ConfigurationError: the spool does not keep all that follows the timestamp.
        SpoolError: the spool cannot be read.
    """
    while True:
        floor = spool.floor()
        try:
            return _Epochs(spool, floor, by_minute=by_minute, option=option).start(text)
        except FileNotFoundError:
            if spool.floor() == floor:
                raise SpoolError(f"the spool at {spool.path} lacks an epoch from {floor} on") from None


class _Epochs:
    """The epochs that a new sink may start with: those that are kept, and the next one."""

    def __init__(self, spool: Spool, floor: int, *, by_minute: bool, option: str) -> None:
        self._spool = spool
        self._option = option
        self._floor = floor
        self._by_minute = by_minute
        self._next = max(spool.latest(), floor - 1) + 1

    def start(self, text: str) -> SinkStart:
        """The start; an offset is counted from the newest epoch's watermark, which ``now`` is, too."""
        first = self._first()
        if text == OLDEST:
            return self._at(text, first)
        if text == _NOW:
            return self._at(text, self._next)
        timestamp, oldest = resolve_timestamp(text, self._low(self._next)), self._low(first)
        if timestamp < oldest:
            kept = format_rfc3339(oldest)
            line = (
                f"{self._option}: {text} asks for what was committed after {format_rfc3339(timestamp)}, and the spool"
                f' at {self._spool.path} keeps what was committed after {kept}: set {self._option}: "{kept}" or'
                f" later, or {OLDEST}; `spanner-cdc backfill CONFIG` delivers the rows from before that"
            )
            raise ConfigurationError([line])
        return self._at(text, self._last_up_to(timestamp, first))

    def _first(self) -> int:
        """The oldest epoch to start with: if a part of its minute is pruned, the first of the next one.

        Where no other minute is kept, that minute is not over, and nobody has written its files.
        """
        if self._floor == 1:
            return 1
        return next(self._starting_a_minute(range(self._floor, self._next + 1)), self._floor)

    def _last_up_to(self, timestamp: int, first: int) -> int:
        """The last epoch to start with that nothing after the timestamp was committed before."""
        low, high = first, self._next
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._low(middle) <= timestamp else (low, middle - 1)
        return next(self._starting_a_minute(range(low, first, -1)), first)

    def _starting_a_minute(self, epochs: range) -> Iterator[int]:
        """Of these epochs those that begin with a minute, or all of them."""
        return (one for one in epochs if not self._by_minute or (self._low(one) + 1) % MINUTE == 0)

    def _low(self, epoch: int) -> int:
        """The timestamp after which an epoch begins."""
        if self._next == 1:
            return self._spool.header().start - 1
        if epoch == self._next:
            return self._spool.manifest(epoch - 1).watermark_high
        return self._spool.manifest(epoch).watermark_low

    def _at(self, text: str, epoch: int) -> SinkStart:
        newest = self._next - 1
        known = self._spool.manifest(min(epoch, newest)).schema_keys if newest else self._spool.header().schema_keys
        return SinkStart(
            requested=text,
            epoch=epoch - 1,
            after=self._low(epoch),
            tables=tuple(sorted(known)),
            id=secrets.token_hex(4),
        )
