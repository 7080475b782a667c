"""Crashes around a seal, and what the next writer finds and sweeps."""

from collections.abc import Callable

import pytest

from connector.spool.reading import Spool
from connector.spool.retention.pruning import SpoolRetention
from connector.spool.storage.local import LocalStore
from connector.spool.storage.store import FileStore
from connector.spool.writing import initialize
from tests.connector.builders import AT, record
from tests.connector.spool.sealing import (
    LARGE,
    NAME,
    NOW,
    SINGERS,
    KilledError,
    epoch_of,
    numbers,
    rows,
    sealed,
    writer_of,
)


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


@pytest.mark.parametrize("point", ["segments/", "schemas/", "cuts/", "manifests/"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_before_the_manifest_leaves_no_epoch_and_the_next_writer_seals_its_number(
    spool: Spool, point: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(spool)
    sealed(writer)
    with monkeypatch.context() as patched:

        def dying(method: Callable[..., None]) -> Callable[..., None]:
            def call(storage: FileStore, path: str, data: bytes) -> None:
                if path.startswith(point):
                    if after:
                        method(storage, path, data)
                    raise KilledError
                method(storage, path, data)

            return call

        for name in ("create", "put", "replace"):
            patched.setattr(type(spool.storage), name, dying(getattr(spool.storage.__class__, name)))
        with pytest.raises(KilledError):
            writer.seal(epoch_of(2, record(table_name="Albums")), LARGE, now=NOW)
    exists = after and point == "manifests/"
    assert Spool(spool.storage).latest() == (2 if exists else 1)
    again = writer_of(spool)
    assert again.epoch == (2 if exists else 1)
    sealed(again)
    assert numbers(spool) == ([1, 2, 3] if exists else [1, 2])
    assert len(spool.storage.list("segments")) == len(numbers(spool))
    assert len(spool.storage.list("cuts")) == int(exists)


def test_segments_without_a_manifest_are_swept_only_after_ones_own_first_seal(spool: Spool) -> None:
    sealed(writer_of(spool))
    orphan = "segments/00000000000000000002-ffff.arrow"
    for path in (orphan, "cuts/00000000000000000002-ffff.json"):
        spool.storage.replace(path, b"of a writer that may still be alive")
    for folder in ("segments", "manifests", "schemas"):
        spool.storage.replace(f"{folder}/.tmp-dead", b"")
    writer = writer_of(spool)
    assert orphan.removeprefix("segments/") in spool.storage.list("segments")
    assert len(spool.storage.list("cuts")) == 1
    sealed(writer)
    assert spool.storage.list("cuts") == []
    assert orphan.removeprefix("segments/") not in spool.storage.list("segments")
    assert len(spool.storage.list("segments")) == 2
    if isinstance(spool.storage, LocalStore):
        assert not list(spool.storage.root.rglob(".tmp-*"))


def test_a_daemon_that_is_paused_before_it_sweeps_leaves_what_another_has_sealed_since(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = writer_of(spool)
    sweep = SpoolRetention._sweep

    def paused(writer: SpoolRetention) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(SpoolRetention, "_sweep", sweep)
            sealed(writer_of(spool))
        sweep(writer)

    monkeypatch.setattr(SpoolRetention, "_sweep", paused)
    sealed(late)
    assert numbers(spool) == [1, 2]
    assert len(rows(spool, 2)) == 1


def test_what_a_consumer_is_writing_is_not_swept(spool: Spool) -> None:
    spool.storage.replace("consumers/.tmp-alive", b"")
    sealed(writer_of(spool))
    assert spool.storage.exists("consumers/.tmp-alive")


def test_a_create_whose_answer_was_lost_is_ones_own(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    create = type(spool.storage).create

    def create_twice(storage: FileStore, path: str, data: bytes) -> None:
        create(storage, path, data)
        create(storage, path, data)

    monkeypatch.setattr(type(spool.storage), "create", create_twice)
    writer = writer_of(spool)
    sealed(writer)
    assert writer.epoch == 1
