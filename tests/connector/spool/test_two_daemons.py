"""Two daemons on one spool: one of them stops."""

import pytest

from connector.errors import SpoolError, SpoolInUseError, SpoolMismatchError
from connector.spool import consumers
from connector.spool.reading import Spool, SpoolHeader, manifest_path, to_json
from connector.spool.writing import checkpoint, initialize, sole_writer
from tests.connector.builders import AT, record
from tests.connector.spool.sealing import LARGE, NAME, NOW, SINGERS, epoch_of, numbers, sealed, writer_of


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def test_a_second_daemon_of_the_machine_is_refused(spool: Spool) -> None:
    with (
        sole_writer(spool),
        pytest.raises(SpoolInUseError, match="is written by another daemon"),
        sole_writer(Spool(spool.storage)),
    ):
        pytest.fail("two daemons write one spool")
    with sole_writer(spool):
        pass


def test_of_two_daemons_that_no_lock_keeps_apart_the_second_stops_and_says_so(spool: Spool) -> None:
    first, second = writer_of(spool), writer_of(spool)
    sealed(first)
    with pytest.raises(SpoolInUseError, match=r"another daemon has sealed epoch 1 .* stop the other"):
        second.seal(epoch_of(1, record()), LARGE, now=NOW)
    assert spool.manifest(1).writer == first.writer
    assert (len(spool.storage.list("segments")), spool.storage.list("cuts")) == (1, [])
    assert len(list(spool.batches(spool.manifest(1).files[0]))) == 1


def test_a_daemon_whose_unfinished_manifest_another_has_swept_says_so(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = writer_of(spool), writer_of(spool)

    def swept(path: str, data: bytes) -> None:
        monkeypatch.undo()
        sealed(first)
        raise SpoolError(f"{path} cannot be written: its temporary file is gone")

    monkeypatch.setattr(spool.storage, "create", swept)
    with pytest.raises(SpoolInUseError, match=r"another daemon has sealed epoch 1 .* stop the other"):
        second.seal(epoch_of(1, record()), LARGE, now=NOW)
    assert (spool.manifest(1).writer, len(spool.storage.list("segments"))) == (first.writer, 1)


def test_a_daemon_that_wakes_up_late_cannot_create_a_number_that_was_pruned(spool: Spool) -> None:
    sealed(writer_of(spool), 2)
    late, other = writer_of(spool), writer_of(spool)
    sealed(other, 4)
    consumers.record(spool, "c", 6, now=NOW)
    assert other.retention.prune(now=NOW, grace=0) == 5
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        sealed(late)
    assert numbers(spool) == [6]
    assert Spool(spool.storage).latest() == 6


def test_a_daemon_that_wakes_up_late_prunes_nothing(spool: Spool) -> None:
    sealed(writer_of(spool), 2)
    late, other = writer_of(spool), writer_of(spool)
    sealed(other, 4)
    consumers.record(spool, "c", 6, now=NOW)
    other.retention.prune(now=NOW, grace=0)
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        late.retention.prune(now=NOW, grace=0)
    assert (spool.floor(), numbers(spool)) == (6, [6])


def test_a_floor_that_another_daemon_has_set_stays(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 5)
    consumers.record(spool, "c", 3, now=NOW)
    late, other = writer_of(spool), writer_of(spool)
    assert other.retention.prune(now=NOW, grace=0) == 3
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        late.retention._set_floor(2, None)
    assert spool.floor() == 4


def test_of_two_first_starts_the_second_leaves_the_spool_to_the_first(spool: Spool) -> None:
    header = spool.header()
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        initialize(spool, NAME, AT + 1, "now", [])
    assert spool.header() == header


def test_a_header_is_replaced_only_if_it_is_the_one_that_was_read(spool: Spool) -> None:
    before = spool.storage.read("spool.json").to_pybytes()
    anew = initialize(spool, NAME, AT + 1, "-1s", [], before=before)
    assert anew == spool.header()
    assert (anew.start, anew.spool_id) == (AT + 1, SpoolHeader.model_validate_json(before).spool_id)
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        initialize(spool, NAME, AT + 2, "-2s", [], before=before)
    assert anew == spool.header()


def test_a_header_and_epochs_of_two_spools_are_refused_with_one_line(spool: Spool) -> None:
    sealed(writer_of(spool))
    ours = spool.header().spool_id
    other = spool.header().model_copy(update={"spool_id": "of another"})
    spool.storage.replace("spool.json", to_json(other))
    with pytest.raises(SpoolMismatchError, match=rf"spool\.json of .* is of spool of another, its epoch 1 of {ours}"):
        checkpoint(spool, spool.header())


def test_a_manifest_below_the_floor_does_not_count_and_is_swept(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    ghost = spool.storage.read(manifest_path(1)).to_pybytes()
    consumers.record(spool, "c", 3, now=NOW)
    writer.retention.prune(now=NOW, grace=0)
    spool.storage.create(manifest_path(1), ghost)
    assert Spool(spool.storage).latest() == 3
    sealed(writer_of(spool))
    assert numbers(spool) == [3, 4]
