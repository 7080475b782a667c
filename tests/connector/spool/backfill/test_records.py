"""The backfills of a spool, and the tables that are not done."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from connector.errors import SpoolError, SpoolInUseError, UnreachableError, VersionRetentionError
from connector.spool.backfill.documents import (
    Backfill,
    BackfillAnnouncement,
    BackfillProgress,
    TableProgress,
    TableState,
)
from connector.spool.backfill.records import (
    backfills,
    check_not_continued,
    find,
    healing,
    record,
    spool_of,
    unfinished_names,
    unfinished_tables,
    withdraw,
    write_progress,
)
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool, SpoolHeader, to_json
from connector.spool.storage.local import LocalStore
from tests.connector.spool.backfill.builders import (
    SOURCE,
    T,
    planned,
    recorded,
    schema,
    segment,
    spool_with_start,
)


def report(spool: Spool, number: int, states: dict[str, TableState], *, lost: bool = False) -> None:
    tables = tuple(TableProgress(table=table, state=state) for table, state in states.items())
    write_progress(spool_of(spool, number), BackfillProgress(updated=T, tables=tables, lost=lost))


def test_a_backfill_is_a_spool_of_its_own_with_the_same_source(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    document = recorded(spool, header, "A", "B")
    (one,) = backfills(spool)
    assert one.document == document
    own = one.spool.check_source(SOURCE)
    assert own.start == T
    assert own.spool_id != header.spool_id
    assert one.spool.schema(document.tables[0].schema_key) == schema("A")


def test_dead_letters_of_a_backfill_find_their_schemas_in_the_streams_spool(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "New")
    assert spool.has_schema(schema("New").key)


def test_a_recording_that_was_killed_before_its_last_write_is_repeated_under_the_same_number(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    first = recorded(spool, header, "A")
    (tmp_path / "backfills/1/backfill.json").unlink()
    assert backfills(spool) == []
    again = recorded(spool, header, "A", at=T + 5000)
    assert (again.number, again.timestamp) == (1, T + 5000)
    assert spool_of(spool, 1).header().start == T + 5000
    assert first.tables == again.tables


def test_two_processes_cannot_record_at_once(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    with (
        spool.storage.locked("backfills/recording.lock", "taken"),
        pytest.raises(SpoolInUseError, match="another process records a backfill"),
    ):
        recorded(spool, header, "A")


def test_a_backfill_that_another_process_has_recorded_meanwhile_is_not_overwritten(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)

    def late(own: Spool, _: Backfill) -> None:
        own.storage.create("backfill.json", b"another's")

    with pytest.raises(SpoolInUseError, match="another process has recorded backfill 1 meanwhile"):
        record(spool, header, [schema("A")], timestamp=lambda: T, why="command", dialect="googlesql", now=T, fill=late)
    assert spool_of(spool, 1).storage.read("backfill.json").to_pybytes() == b"another's"


def test_a_recording_whose_last_answer_was_lost_is_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, header = spool_with_start(tmp_path)
    create = LocalStore.create

    def unanswered(store: LocalStore, path: str, data: bytes) -> None:
        create(store, path, data)
        if path == "backfill.json":
            raise FileExistsError(path)

    monkeypatch.setattr(LocalStore, "create", unanswered)
    document = recorded(spool, header, "A")
    assert [one.document for one in backfills(spool)] == [document]


def test_a_table_is_unfinished_until_its_rows_are_delivered(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    assert unfinished_tables(spool) == frozenset()
    recorded(spool, header, "A", "B")
    assert unfinished_tables(spool) == {"A", "B"}
    report(spool, 1, {"A": "done", "B": "read"})
    assert unfinished_tables(spool) == {"B"}
    report(spool, 1, {"A": "done", "B": "done"})
    assert unfinished_tables(spool) == frozenset()


def test_the_timestamp_is_chosen_once_the_tables_are_unfinished(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    before: list[frozenset[str]] = []

    def timestamp() -> int:
        before.append(unfinished_tables(spool))
        return T

    record(spool, header, [schema("A"), schema("B")], timestamp=timestamp, why="command", dialect="googlesql", now=T)
    assert before == [{"A", "B"}]
    report(spool, 1, {"A": "done", "B": "done"})
    assert unfinished_tables(spool) == frozenset()


def test_a_recording_that_was_killed_after_its_announcement_leaves_the_tables_unfinished(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)

    def timestamp() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(spool, header, [schema("A")], timestamp=timestamp, why="command", dialect="googlesql", now=T)
    assert backfills(spool) == []
    assert unfinished_tables(spool) == {"A"}


def test_what_a_killed_recording_has_announced_is_withdrawn_by_the_next_daemon(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)

    def timestamp() -> int:
        withdraw(spool)
        assert unfinished_tables(spool) == {"A"}, "its process is alive"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(spool, header, [schema("A")], timestamp=timestamp, why="command", dialect="googlesql", now=T)
    assert unfinished_tables(spool) == {"A"}
    withdraw(spool)
    assert unfinished_tables(spool) == frozenset()


def test_tables_do_not_count_as_unfinished_if_the_timestamp_cannot_be_chosen(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)

    def timestamp() -> int:
        raise UnreachableError("Spanner does not answer")

    with pytest.raises(UnreachableError):
        record(spool, header, [schema("A")], timestamp=timestamp, why="command", dialect="googlesql", now=T)
    assert unfinished_tables(spool) == frozenset()


def test_a_recording_whose_lock_another_process_has_taken_over_leaves_the_others_announcement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, header = spool_with_start(tmp_path)

    @contextmanager
    def lost(*_: object) -> Iterator[Callable[[], None]]:
        def check() -> None:
            raise SpoolInUseError("the lease has run out, and another process records")

        yield check

    monkeypatch.setattr(LocalStore, "locked", lost)
    with pytest.raises(SpoolInUseError, match="the lease has run out"):
        recorded(spool, header, "A")
    assert unfinished_tables(spool) == {"A"}, "a sink has to remember deletes for the other's backfill"


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that whoever comes next takes over, as leases in a bucket whose holders were paused for longer."""
    holders: Counter[str] = Counter()

    @contextmanager
    def locked(_: LocalStore, path: str, taken: str) -> Iterator[Callable[[], None]]:
        holders[path] += 1
        own = holders[path]

        def check() -> None:
            if holders[path] != own:
                raise SpoolInUseError(taken)

        yield check

    monkeypatch.setattr(LocalStore, "locked", locked)


def recorded_and_read(spool: Spool, header: SpoolHeader) -> None:
    """Records a backfill as another process does, and reads a partition of it."""
    document = recorded(spool, header, "A")
    planned(spool, document, {"A": 1})
    own = spool_of(spool, document.number)
    file = segment(own, "A", [1, 2], epoch=1)
    BackfillWriter(own, own.header(), document).seal(BackfillPart(table="A", plan=1, partition=0), [file], now=T)


def files_of(own: Spool) -> list[int]:
    return [len(list(own.storage.list(folder))) for folder in ("plans", "manifests", "segments")]


@pytest.mark.usefixtures("leases")
@pytest.mark.parametrize("when", ["while its rows are written", "while its timestamp is chosen"])
def test_a_recording_that_was_paused_for_too_long_deletes_nothing_of_the_backfill_that_another_process_recorded(
    tmp_path: Path, when: str
) -> None:
    spool, header = spool_with_start(tmp_path)

    def timestamp() -> int:
        if when == "while its timestamp is chosen":
            recorded_and_read(spool, header)
        return T

    def fill(*_: object) -> None:
        recorded_and_read(spool, header)
        raise UnreachableError("Spanner does not answer")

    error = UnreachableError if when == "while its rows are written" else SpoolInUseError
    with pytest.raises(error):
        record(spool, header, [schema("A")], timestamp=timestamp, why="repair", dialect="googlesql", now=T, fill=fill)
    assert files_of(spool_of(spool, 1)) == [1, 1, 1]
    assert spool_of(spool, 1).storage.exists("announced.json")
    assert unfinished_tables(spool) == {"A"}


@pytest.mark.usefixtures("leases")
def test_a_withdrawal_that_was_paused_for_too_long_deletes_nothing_of_the_backfill_that_another_process_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, header = spool_with_start(tmp_path)
    own, exists = spool_of(spool, 1), LocalStore.exists
    own.storage.replace("announced.json", to_json(BackfillAnnouncement(tables=("A",))))

    def paused(store: LocalStore, path: str) -> bool:
        found = exists(store, path)
        if path == "backfill.json" and not found:
            monkeypatch.setattr(LocalStore, "exists", exists)
            recorded_and_read(spool, header)
        return found

    monkeypatch.setattr(LocalStore, "exists", paused)
    withdraw(spool)
    assert files_of(own) == [1, 1, 1]
    assert own.storage.exists("announced.json")


def test_a_lost_backfills_tables_are_unfinished_until_the_one_that_continues_it_is_done(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B")
    report(spool, 1, {"A": "done", "B": "failed"}, lost=True)
    assert unfinished_tables(spool) == {"B"}
    recorded(spool, header, "B", at=T + 10_000, continues=1)
    assert unfinished_tables(spool) == {"B"}
    report(spool, 2, {"B": "done"})
    assert unfinished_tables(spool) == frozenset()


def test_a_backfill_that_another_one_continues_is_not_delivered_any_more(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    check_not_continued(spool, 1)
    recorded(spool, header, "A", at=T + 10_000, continues=1)
    check_not_continued(spool, 2)
    with pytest.raises(SpoolError, match=r"backfill 1 of the spool at .* is continued by backfill 2"):
        check_not_continued(spool, 1)


def test_a_gap_is_healed_for_the_tables_that_were_read_after_it(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A", "B")
    report(spool, 1, {"A": "done", "B": "read"})
    known = backfills(spool)
    assert healing(known, T - 1, ["A", "B", "C"]) == ("A",)
    assert healing(known, T, ["A", "B", "C"]) == ()


def test_a_damaged_document_is_one_clear_line(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    (tmp_path / "backfills/1/backfill.json").write_text('{"version": 1}')
    with pytest.raises(SpoolError, match=r"corrupt file .*backfills/1/backfill.json: it is not a valid backfill"):
        find(spool, 1)


def test_of_two_processes_that_decided_by_the_same_backfills_one_records(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    with pytest.raises(SpoolInUseError, match="another process has recorded a backfill"):
        record(spool, header, [schema("A")], after=0, timestamp=lambda: T, why="command", dialect="googlesql", now=T)
    assert len(backfills(spool)) == 1


@pytest.mark.parametrize("error", [VersionRetentionError("too old"), KeyboardInterrupt()], ids=["failed", "killed"])
def test_a_recording_that_fails_or_is_killed_leaves_no_segments(spool_path: str, error: BaseException) -> None:
    spool, header = spool_with_start(spool_path)

    def fill(own: Spool, _: Backfill) -> None:
        segment(own, "A", [1, 2], epoch=1)
        assert own.storage.list("segments")
        raise error

    with pytest.raises(type(error)):
        record(spool, header, [schema("A")], timestamp=lambda: T, why="repair", dialect="googlesql", now=T, fill=fill)
    withdraw(spool)
    assert unfinished_tables(spool) == frozenset()
    assert list(spool_of(spool, 1).storage.list("segments")) == []


def test_a_backfill_that_is_not_done_has_a_name_until_another_one_continues_it(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    assert unfinished_names(backfills(spool)) == ("backfill 1",)
    record(spool, header, [schema("A")], timestamp=lambda: T, why="repair", dialect="googlesql", now=T, continues=1)
    assert unfinished_names(backfills(spool)) == ("repair 2",)
    report(spool, 2, {"A": "done"})
    assert unfinished_names(backfills(spool)) == ()
