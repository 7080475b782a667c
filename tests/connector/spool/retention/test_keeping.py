"""Epochs that are kept although every consumer has passed them (``spool.keep``)."""

from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.health.alarms import KeptLess
from connector.core.timestamps import SECOND
from connector.daemon.states.report import status_of, status_text
from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.retention.floor import floor_of
from connector.spool.retention.pruning import MOST_KEPT, Keeping
from connector.spool.summaries import held_bytes
from connector.spool.writing import SpoolWriter, initialize
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, numbers, sealed, writer_of

DAY = 86400 * SECOND


@pytest.fixture
def spool(spool_path: str) -> Spool:
    return new_spool(spool_path)


def new_spool(path: str | Path) -> Spool:
    spool = Spool.at(path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def passed(spool: Spool, writer: SpoolWriter, count: int) -> None:
    """Seals epochs of a second each, and has a consumer pass them all."""
    sealed(writer, count)
    consumers.record(spool, "c", writer.epoch, now=NOW)


def test_epochs_are_kept_for_so_much_commit_time_before_the_newest(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 6)
    assert writer.retention.prune(now=NOW, grace=0, keeping=Keeping(span=3 * SECOND)) == 3
    assert numbers(spool) == [4, 5, 6]
    assert writer.retention.kept_less is None


def test_no_clock_of_a_machine_makes_a_kept_epoch_older(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 3)
    for now in (NOW + 1000 * DAY, NOW - 1000 * DAY):
        assert writer.retention.prune(now=now, keeping=Keeping(span=DAY)) == 0


def test_what_a_consumer_still_needs_stays_however_little_is_to_be_kept(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 6)
    consumers.record(spool, "slow", 1, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0, keeping=Keeping(span=SECOND, most_bytes=1)) == 1
    assert numbers(spool) == [2, 3, 4, 5, 6]


def test_the_oldest_epochs_go_early_where_all_are_too_large_and_that_is_recorded(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 6)
    most = held_bytes(spool.summaries(3, 6))
    keeping = Keeping(span=5 * SECOND, most_bytes=most)
    assert writer.retention.prune(now=NOW, grace=0, keeping=keeping) == 2
    assert numbers(spool) == [3, 4, 5, 6]
    assert writer.retention.bytes <= most
    less = KeptLess(NOW, 5 * SECOND, 4 * SECOND)
    assert writer.retention.kept_less == less
    assert writer_of(spool).retention.kept_less == less, "a restart knows it"
    status = status_of(spool, 0)
    assert "WARNING spool_keeps_less: the spool keeps 4s of the 5s that spool.keep says" in status_text(
        status, with_errors=False
    )


def test_the_record_names_the_first_early_deletion_and_ends_once_enough_is_kept(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 6)
    keeping = Keeping(span=5 * SECOND, most_bytes=held_bytes(spool.summaries(3, 6)))
    writer.retention.prune(now=NOW, grace=0, keeping=keeping)
    passed(spool, writer, 1)
    writer.retention.prune(now=NOW + DAY, grace=0, keeping=keeping)
    short = floor_of(spool).short
    assert short is not None
    assert short.since == NOW
    passed(spool, writer, 1)
    roomy = Keeping(span=5 * SECOND, most_bytes=10**9)
    assert writer.retention.prune(now=NOW + 2 * DAY, grace=0, keeping=roomy) == 0
    assert writer.retention.kept_less is None, "five seconds are there again"
    passed(spool, writer, 1)
    writer.retention.prune(now=NOW + 2 * DAY, grace=0, keeping=roomy)
    assert floor_of(spool).short is None


def test_a_spool_that_is_young_or_is_to_keep_more_from_now_on_does_not_keep_less(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 4)
    writer.retention.prune(now=NOW, grace=0, keeping=Keeping(span=2 * SECOND))
    passed(spool, writer, 1)
    assert writer.retention.prune(now=NOW, grace=0, keeping=Keeping(span=DAY)) == 0
    assert writer.retention.kept_less is None


def test_the_record_of_an_older_program_is_read_and_its_own_reader_knows_the_first_epoch(spool: Spool) -> None:
    writer = writer_of(spool)
    passed(spool, writer, 4)
    spool.storage.replace("floor.json", b'{"version":1,"first":2,"writer":"w"}')
    assert floor_of(spool).short is None
    again = writer_of(spool)
    again.retention.prune(now=NOW, grace=0, keeping=Keeping(span=3 * SECOND, most_bytes=1))
    document = orjson.loads(spool.storage.read("floor.json").to_pybytes())
    assert (document["version"], document["first"]) == (1, spool.floor())


def test_four_fifths_of_the_limit_are_for_what_is_only_kept() -> None:
    assert Keeping.within(DAY, 1000) == Keeping(DAY, round(1000 * MOST_KEPT))


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12),
    span=st.integers(0, 6),
    most=st.integers(0, 6),
)
def test_nothing_is_deleted_that_is_to_be_kept_and_has_room(steps: list[tuple[int, int]], span: int, most: int) -> None:
    with TemporaryDirectory() as folder:
        spool = new_spool(folder)
        writer = writer_of(spool)
        sealed(writer)
        size = writer.retention.bytes
        keeping = Keeping(span * SECOND, most * size)
        done = 0
        consumers.record(spool, "c", done, now=NOW)
        for seals, steps_of_consumer in steps:
            sealed(writer, seals)
            done = min(done + steps_of_consumer, writer.epoch)
            consumers.record(spool, "c", done, now=NOW)
            before = numbers(spool)
            held = {one.epoch: one.held for one in spool.summaries(before[0], before[-1])}
            writer.retention.prune(now=NOW, grace=0, keeping=keeping)
            kept = numbers(spool)
            assert kept == before[len(before) - len(kept) :], "the oldest go first"
            assert kept[-1] == writer.epoch
            assert set(range(done + 1, writer.epoch + 1)) <= set(kept)
            deleted = before[: len(before) - len(kept)]
            if deleted and deleted[-1] > writer.epoch - span:
                assert keeping.most_bytes, "only the size makes an epoch go early"
                assert sum(held[one] for one in [deleted[-1], *kept]) > keeping.most_bytes, "and only if it has to"
            if kept[0] <= done and kept[0] < writer.epoch:
                assert kept[0] > writer.epoch - span, "what is outdated goes"
                assert not keeping.most_bytes or writer.retention.bytes <= keeping.most_bytes
