"""The epochs that are pruned, and those that stay."""

import pytest

from connector.core.timestamps import SECOND
from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.storage import store
from connector.spool.storage.store import FileStore
from connector.spool.summaries import held_bytes
from connector.spool.writing import checkpoint, initialize
from tests.connector.builders import AT
from tests.connector.spool.sealing import NAME, NOW, SINGERS, KilledError, numbers, sealed, writer_of


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def test_nothing_is_pruned_while_no_consumer_is_known(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    assert writer.retention.prune(now=NOW, grace=0) == 0
    assert numbers(spool) == [1, 2, 3]


def test_what_every_consumer_has_passed_is_pruned_with_its_files(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 4)
    consumers.record(spool, "fast", 4, now=NOW)
    consumers.record(spool, "slow", 2, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == 2
    assert numbers(spool) == [3, 4]
    assert len(spool.storage.list("segments")) == 2
    assert spool.floor() == 3
    assert writer.retention.bytes == held_bytes(spool.summaries(3, 4))
    assert writer.retention.prune(now=NOW, grace=0) == 0


def test_the_newest_epoch_is_never_pruned(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 3, now=NOW)
    assert writer.retention.prune(now=NOW, grace=0) == 2
    assert numbers(spool) == [3]
    assert checkpoint(Spool(spool.storage), spool.header()).epoch == 3


def test_an_epoch_is_kept_for_a_grace_period_after_its_seal(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 2)
    consumers.record(spool, "c", 2, now=NOW)
    assert writer.retention.prune(now=NOW + 9, grace=10) == 0
    assert writer.retention.prune(now=NOW + 10, grace=10) == 1


@pytest.mark.parametrize("grace", [0, 60 * SECOND])
def test_a_clock_that_was_set_back_by_hours_keeps_nothing_longer(spool: Spool, grace: int) -> None:
    writer = writer_of(spool)
    sealed(writer, 2)
    consumers.record(spool, "c", 2, now=NOW)
    assert writer.retention.prune(now=NOW - 7 * 3600 * SECOND, grace=grace) == 1


def test_the_numbers_continue_after_pruning_and_a_restart(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 3, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    again = writer_of(spool)
    sealed(again)
    assert numbers(spool) == [3, 4]
    assert again.retention.prune(now=NOW, grace=0) == 1
    assert numbers(spool) == [4]


@pytest.mark.parametrize("deletions", [0, 1, 2, 3])
def test_a_crash_while_pruning_is_cleaned_up_by_the_next_writer(
    spool: Spool, deletions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(spool)
    sealed(writer, 4)
    consumers.record(spool, "c", 3, now=NOW)
    left = [None] * deletions
    delete = type(spool.storage).delete

    def dying(storage: FileStore, *paths: str) -> None:
        for path in paths:
            if not left:
                raise KilledError
            left.pop()
            delete(storage, path)

    with monkeypatch.context() as patched:
        patched.setattr(type(spool.storage), "delete", dying)
        with pytest.raises(KilledError):
            writer.retention.prune(now=NOW, grace=0)
    assert Spool(spool.storage).latest() == 4
    sealed(writer_of(spool))
    assert numbers(spool) == [4, 5]
    assert len(spool.storage.list("segments")) == 2


def test_a_consumer_that_registers_while_epochs_are_pruned_finds_the_epoch_that_it_starts_with(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(spool)
    sealed(writer, 4)
    consumers.record(spool, "c", 3, now=NOW)
    write = store.update
    found: list[consumers.Consumer] = []

    def registering(storage: FileStore, path: str, before: bytes | None, data: bytes) -> None:
        if not found:
            found.append(consumers.register(Spool(storage), "new", now=NOW))
        write(storage, path, before, data)

    monkeypatch.setattr(store, "update", registering)
    writer.retention.prune(now=NOW, grace=0)
    assert found[0].epoch + 1 >= spool.floor()
    assert numbers(spool)[0] == spool.floor()
    assert list(spool.manifests(found[0].epoch + 1, 4))
