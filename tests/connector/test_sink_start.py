"""The start of a sink that is new to a spool (``sink.start``)."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.config.sink_start import decided, keep_start
from connector.core.epoch import SealedEpoch
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.errors import ConfigurationError
from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.sink_start import start_of_sink
from connector.spool.storage import local
from connector.spool.storage.store import FileStore
from connector.spool.writing import SpoolWriter, initialize
from tests.connector.builders import AT, record
from tests.connector.spool.sealing import CUT, NAME, NOW, SINGERS, sealed, writer_of

FIRST_MINUTE = AT - AT % MINUTE + MINUTE
"""The first full minute after the spool's start."""


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return new_spool(tmp_path / "spool")


def new_spool(path: str | Path) -> Spool:
    spool = Spool.at(path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def seal_up_to(spool: Spool, writer: SpoolWriter, *highs: int) -> None:
    """Seals an epoch up to each timestamp, with a record at that time."""
    for high in highs:
        low = spool.manifest(writer.epoch).watermark_high if writer.epoch else AT - 1
        one = record(commit_timestamp=high, server_transaction_id=f"tx{high}")
        writer.seal(SealedEpoch(low, high, (one,), one.size), CUT, now=NOW)


def pruned_to(spool: Spool, writer: SpoolWriter, first: int) -> None:
    consumers.record(spool, "c", first - 1, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    assert spool.floor() == first


def test_oldest_is_the_first_epoch_that_is_kept(spool: Spool) -> None:
    writer = writer_of(spool)
    assert decided(spool, "oldest", by_minute=True).after == AT - 1, "before anything is sealed"
    sealed(writer, 4)
    assert decided(spool, "oldest", by_minute=False).epoch == 0
    pruned_to(spool, writer, 3)
    start = decided(spool, "oldest", by_minute=False)
    assert (start.epoch, start.after) == (2, spool.manifest(3).watermark_low)
    assert start.tables == ("Singers",)


def test_now_is_what_is_sealed_from_now_on(spool: Spool) -> None:
    writer = writer_of(spool)
    assert decided(spool, "now", by_minute=False).epoch == 0
    sealed(writer, 4)
    start = decided(spool, "now", by_minute=True)
    assert (start.epoch, start.after) == (4, spool.manifest(4).watermark_high)


def test_a_timestamp_is_the_epoch_that_holds_the_first_commit_after_it(spool: Spool) -> None:
    sealed(writer_of(spool), 4)
    high = spool.manifest(2).watermark_high
    for timestamp, epoch in ((high - 1, 1), (high, 2), (high + 1, 2), (high + 10**18, 4)):
        assert decided(spool, format_rfc3339(timestamp), by_minute=False).epoch == epoch


def test_an_offset_counts_from_the_newest_watermark_whatever_a_clock_says(spool: Spool) -> None:
    sealed(writer_of(spool), 4)
    assert decided(spool, "-2s", by_minute=False).epoch == 2


def test_what_is_pruned_is_refused_with_the_oldest_timestamp_that_can_be_had(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 4)
    pruned_to(spool, writer, 3)
    low = format_rfc3339(spool.manifest(3).watermark_low)
    with pytest.raises(ConfigurationError, match=f'sink.start: -1h asks for .* after {low}: set sink.start: "{low}"'):
        decided(spool, "-1h", by_minute=False)
    assert decided(spool, low, by_minute=False).epoch == 2


def test_files_of_minutes_start_at_a_minute_whose_first_epochs_are_kept(spool: Spool) -> None:
    writer = writer_of(spool)
    ends = [FIRST_MINUTE + number * MINUTE - 1 for number in range(3)]
    seal_up_to(spool, writer, ends[0] - SECOND, ends[0], ends[1] - SECOND, ends[1], ends[2] - SECOND)
    assert decided(spool, "oldest", by_minute=True).epoch == 0, "nothing is pruned"
    at = format_rfc3339(ends[1] - SECOND)
    assert decided(spool, at, by_minute=False).epoch == 3
    assert decided(spool, at, by_minute=True).epoch == 2, "the whole minute of the timestamp"
    pruned_to(spool, writer, 2)
    start = decided(spool, "oldest", by_minute=True)
    assert (start.epoch, start.after) == (2, ends[0])
    with pytest.raises(ConfigurationError, match=f'set sink.start: "{format_rfc3339(ends[0])}"'):
        decided(spool, format_rfc3339(ends[0] - 1), by_minute=True)
    pruned_to(spool, writer, 5)
    assert decided(spool, "oldest", by_minute=True).epoch == 4, "the minute that is open has no files yet"


def test_a_start_is_decided_once(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 2)
    start = keep_start(spool, "second", "now", by_minute=False, now=NOW)
    assert start is not None
    sealed(writer, 2)
    assert keep_start(spool, "second", "now", by_minute=False, now=NOW) is None
    consumers.withdraw(spool, "second")  # killed between the record of the start and its registration
    assert keep_start(spool, "second", "now", by_minute=False, now=NOW) == start
    assert start_of_sink(spool, "second") == start
    consumers.forget(spool, "second")
    assert start_of_sink(spool, "second") is None
    again = keep_start(spool, "second", "now", by_minute=False, now=NOW)
    assert again is not None
    assert (again.epoch, again.id != start.id) == (4, True)


def test_a_sink_whose_first_epoch_is_pruned_as_it_registers_starts_with_one_that_is_kept(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(spool)
    sealed(writer, 4)
    consumers.record(spool, "c", 3, now=NOW)
    replace = local.LocalStore.replace

    def pruning(storage: FileStore, path: str, *rest: object, **more: object) -> None:
        if path.endswith(".start") and spool.floor() == 1:
            writer.retention.prune(now=NOW, grace=0)
        replace(storage, path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(local.LocalStore, "replace", pruning)
    start = keep_start(spool, "second", "oldest", by_minute=False, now=NOW)
    assert start is not None
    assert start.epoch == 3
    assert consumers.find(spool, "second") is not None


@given(
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    floor=st.integers(1, 12),
    back=st.integers(0, 300),
    by_minute=st.booleans(),
)
def test_all_that_was_committed_after_a_timestamp_is_delivered_or_the_timestamp_is_refused(
    steps: list[int], floor: int, back: int, by_minute: bool
) -> None:
    with TemporaryDirectory() as folder:
        spool = new_spool(folder)
        writer, commits, at = writer_of(spool), {0: AT}, AT
        for step in steps:
            end = at - at % MINUTE + MINUTE - 1
            at += step * SECOND
            if at > end:  # as the reader seals: no epoch spans two minutes
                seal_up_to(spool, writer, end)
                commits[writer.epoch] = end
            seal_up_to(spool, writer, at)
            commits[writer.epoch] = at
        del commits[0]
        if 1 < floor <= writer.epoch:
            pruned_to(spool, writer, floor)
        timestamp = at - back * SECOND
        kept = {epoch: commit for epoch, commit in commits.items() if epoch >= spool.floor()}
        try:
            start = decided(spool, format_rfc3339(timestamp), by_minute=by_minute)
        except ConfigurationError:
            oldest = decided(spool, "oldest", by_minute=by_minute)
            assert timestamp < oldest.after
            return
        delivered = {epoch for epoch in kept if epoch > start.epoch}
        assert {epoch for epoch, commit in commits.items() if commit > timestamp} <= delivered
        assert start.after <= max(timestamp, AT - 1)
        assert all(commit > start.after for epoch, commit in commits.items() if epoch in delivered)
        if by_minute and start.epoch:
            before = {commit // MINUTE for epoch, commit in commits.items() if epoch <= start.epoch}
            open_minute = at // MINUTE
            assert not before & {kept[epoch] // MINUTE for epoch in delivered} - {open_minute}
