"""`Spool` reads what the daemon wrote, resumes after a checkpoint, and refuses to skip what is not there."""

import time
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import connector
from connector.core.timestamps import format_rfc3339
from connector.spool import gaps
from connector.spool.consumers import record
from connector.spool.reading import Spool as StoredSpool
from tests.connector.api.spools import SCENARIO, copied, prune, truncate, written_by_the_daemon
from tests.connector.api.streams import expected, rows_of


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_by_the_daemon(tmp_path_factory.mktemp("original") / "spool")


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return copied(original, tmp_path / "spool")


@pytest.mark.long
def test_every_transaction_is_read_once_and_whole(path: Path) -> None:
    spool = connector.Spool(path)
    epochs = list(spool.epochs())
    found = [transaction for epoch in epochs for transaction in epoch.transactions()]
    assert [rows_of(transaction) for transaction in found] == expected(SCENARIO)
    assert [epoch.number for epoch in epochs] == list(range(spool.first, spool.latest + 1))
    assert all(before.high == after.low for before, after in pairwise(epochs))
    assert {epoch.stream for epoch in epochs} == {spool.stream}
    assert pa.concat_tables(epoch.table() for epoch in epochs).num_rows == len(SCENARIO.committed)
    assert (epochs[-1].final, spool.path) == (True, str(path))


def test_epochs_are_the_same_when_they_are_read_again(path: Path) -> None:
    assert list(connector.Spool(path).epochs()) == list(connector.Spool(str(path)).epochs())


def test_a_checkpoint_gives_the_epochs_after_it(path: Path) -> None:
    spool = connector.Spool(path)
    epochs = list(spool.epochs())
    for epoch in epochs:
        assert list(spool.epochs(after=epoch.checkpoint)) == epochs[epoch.number :]


def test_a_checkpoint_of_the_stream_itself_is_not_one_of_the_spool(path: Path) -> None:
    spool = connector.Spool(path)
    first = next(spool.epochs())
    other = first.checkpoint.replace(first.identity, format_rfc3339(first.high) + "/another")
    with pytest.raises(connector.SpoolError, match="is another copy than the one of the checkpoint"):
        next(spool.epochs(after=other))


def test_an_older_copy_of_the_spool_is_refused(path: Path) -> None:
    *_, last = connector.Spool(path).epochs()
    truncate(path, last.number - 1)
    with pytest.raises(connector.SpoolError, match=f"its newest epoch is {last.number - 1}"):
        next(connector.Spool(path).epochs(after=last.checkpoint))


def test_epochs_that_were_deleted_after_the_checkpoint_are_named(path: Path) -> None:
    first, second, third, *_ = connector.Spool(path).epochs()
    prune(path, 3)
    spool = connector.Spool(path)
    assert spool.first == 3
    assert next(spool.epochs()).number == 3
    assert next(spool.epochs(after=second.checkpoint)) == third
    with pytest.raises(connector.SpoolError, match="epochs 2 to 2 were deleted"):
        next(spool.epochs(after=first.checkpoint))


def test_an_epoch_that_is_deleted_before_its_rows_are_read_says_so(path: Path) -> None:
    epoch = next(epoch for epoch in connector.Spool(path).epochs() if epoch.rows)
    prune(path, epoch.number + 1)
    with pytest.raises(connector.SpoolError, match=f"epoch {epoch.number} .* was deleted before it was read"):
        epoch.table()


def test_a_gap_has_no_rows_and_a_reason(path: Path) -> None:
    spool = connector.Spool(path)
    before = spool.latest
    gaps.restart_at(StoredSpool.at(path), SCENARIO.history.horizon + 10**9, now=time.time_ns() * 2)
    *_, gap = spool.epochs()
    assert (gap.number, gap.rows, gap.gap) == (before + 1, 0, gaps.REASON)
    assert list(gap.transactions()) == []


def test_consumers_are_listed_with_their_progress(path: Path) -> None:
    record(StoredSpool.at(path), "b", 3, now=30)
    record(StoredSpool.at(path), "a", 2, now=20)
    assert connector.Spool(path).consumers() == [
        connector.ConsumerProgress("a", 2, 20),
        connector.ConsumerProgress("b", 3, 30),
    ]


def test_a_path_without_a_spool_is_named(tmp_path: Path) -> None:
    spool = connector.Spool(tmp_path / "nothing")
    assert (spool.latest, spool.consumers()) == (0, [])
    with pytest.raises(connector.SpoolError, match=r"there is no spool at .*nothing"):
        next(spool.epochs())
