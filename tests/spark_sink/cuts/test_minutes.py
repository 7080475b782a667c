"""A minute of files has a document once all files of it are there, once, whatever was killed."""

import re
from pathlib import Path

import orjson
import pytest

from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.errors import SpoolError
from connector.spool.consumers import MINUTES, forget
from connector.spool.consumers import record as record_consumer
from connector.spool.storage.local import LocalStore
from spark_sink.cuts_command import main
from spark_sink.sinks.files.complete_minutes import FOLDER
from spark_sink.sources.files.files import files_below
from tests.spark_sink.cuts.file_deliveries import FileDeliveries, documents
from tests.spark_sink.spools import START, SpoolMaker, record


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(spool: SpoolMaker, root: Path) -> FileDeliveries:
    return FileDeliveries(spool, str(root))


def two_tables(spool: SpoolMaker, minute: int, ids: range = range(3)) -> int:
    """Seals the epochs of a minute, in which two tables have changes; returns the last."""
    at = START + minute * MINUTE
    spool.seal(record(at + SECOND, ids), record(at + 2 * SECOND, [7], table="Albums"))
    spool.seal(record(at + 3 * SECOND, [9]))
    return spool.seal(high=at + MINUTE - 1)


def test_a_document_names_each_tables_files_with_their_rows_and_bytes(
    spool: SpoolMaker, root: Path, run: FileDeliveries
) -> None:
    last = two_tables(spool, 0)
    run.deliver(1, last)
    (path,) = (root / FOLDER).rglob("*.json")
    assert path.relative_to(root).as_posix() == "_complete/2026/03/01/10/00.json"
    data = path.read_bytes()
    assert data.count(b"\n") == 1
    node = orjson.loads(data)
    tables = node.pop("tables")
    assert node == {
        "version": 1,
        "minute": "2026-03-01T10:00:00.000000Z",
        "timestamp": "2026-03-01T10:00:59.999999999Z",
        "epoch": last,
        "spool_id": spool.spool_id,
        "sink": "files",
        "published_at": format_rfc3339(START + MINUTE - 1),
    }
    assert {name: (table["rows"], table["incomplete"]) for name, table in tables.items()} == {
        "Albums": (1, ""),
        "Singers": (4, ""),
    }
    for table in tables.values():
        assert table["bytes"] == sum((root / file).stat().st_size for file in table["files"])
        assert table["rows"] == sum((root / file).read_bytes().count(b"\n") for file in table["files"])


def test_the_bytes_of_compressed_files_are_those_that_are_stored(spool: SpoolMaker, root: Path) -> None:
    run = FileDeliveries(spool, str(root), gzip=True)
    files = run.deliver(1, two_tables(spool, 0, range(500)))
    assert [file.bytes for file in files] == [(root / file.path).stat().st_size for file in files]


def test_every_minute_that_the_watermark_has_passed_has_a_document_and_an_empty_one_names_no_files(
    spool: SpoolMaker, root: Path, run: FileDeliveries
) -> None:
    run.deliver(1, two_tables(spool, 0))
    last = spool.seal(high=START + 2 * MINUTE - 1)
    last = spool.seal(high=START + 3 * MINUTE - 1)
    last = spool.seal(high=START + 4 * MINUTE - 2)
    run.publish(last)
    found = documents(root)
    assert [name[-2:] for name in found] == ["00", "01", "02"], "of the open minute there is none"
    assert [sum(table.rows for table in one.tables.values()) for one in found.values()] == [5, 0, 0]
    assert all(set(one.tables) == {"Albums", "Singers"} for one in found.values())


def test_a_minute_that_comes_in_several_micro_batches_of_several_processes_has_one_document_of_all(
    spool: SpoolMaker, root: Path
) -> None:
    last = two_tables(spool, 0)
    files = []
    for epoch in range(1, last + 1):
        files += FileDeliveries(spool, str(root), by_minute=False).deliver(epoch, epoch)
        assert bool(documents(root)) == (epoch == last)
    (document,) = documents(root).values()
    assert document.files == {
        "Albums": (files[1].path,) if files[1].table == "Albums" else (files[0].path,),
        "Singers": tuple(sorted(file.path for file in files if file.table == "Singers")),
    }
    assert sum(table.rows for table in document.tables.values()) == 5


def test_a_sink_that_is_killed_between_the_document_and_its_record_leaves_the_same_document(
    spool: SpoolMaker,
    root: Path,
    run: FileDeliveries,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    last = two_tables(spool, 0)

    def killed(self: LocalStore, path: str, data: bytes) -> None:
        raise SpoolError(f"killed before {path}")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "replace", killed)
        with pytest.raises(SpoolError, match="killed before"):
            run.deliver(1, last)
    (path,) = (root / FOLDER).rglob("*.json")
    before = path.read_bytes()
    again = FileDeliveries(spool, str(root))
    again.write(1, last)
    again.publish(last, {"Albums": "it has dead letters"}, now=START + 9 * MINUTE)
    assert path.read_bytes() == before
    assert not caplog.records
    newest = again.store.newest()
    assert newest is not None
    assert newest.incomplete == {"Albums": "it has dead letters"}


def test_a_micro_batch_that_is_repeated_after_its_record_changes_nothing(spool: SpoolMaker, root: Path) -> None:
    at = START + 5 * SECOND
    spool.seal(record(at))
    for _ in range(2):
        FileDeliveries(spool, str(root)).deliver(1, 1)
    spool.seal(record(at + SECOND))
    last = spool.seal(high=START + MINUTE - 1)
    FileDeliveries(spool, str(root)).deliver(2, last)
    (document,) = documents(root).values()
    assert document.tables["Singers"].rows == 2
    assert len(document.tables["Singers"].files) == 2


def test_after_downtime_documents_come_hour_by_hour_and_a_kill_leaves_the_rest_to_the_next_run(
    spool: SpoolMaker, root: Path, run: FileDeliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.deliver(1, two_tables(spool, 0))
    for minute in range(1, 150):
        last = spool.seal(high=START + (minute + 1) * MINUTE - 1)
    create = LocalStore.create

    def killed(self: LocalStore, path: str, data: bytes) -> None:
        if path.endswith("11/30.json"):
            raise SpoolError("killed")
        create(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "create", killed)
        with pytest.raises(SpoolError, match="killed"):
            run.publish(last)
    newest = run.store.newest()
    assert newest is not None
    assert newest.epoch == 3
    before = len(documents(root))
    assert 60 < before < 150
    FileDeliveries(spool, str(root)).publish(last)
    assert len(documents(root)) == 150


def test_the_first_document_is_of_the_first_minute_of_which_every_file_is_known(spool: SpoolMaker, root: Path) -> None:
    """An earlier program has delivered the first epochs."""
    two_tables(spool, 0)
    first = spool.seal(record(START + MINUTE + 5 * SECOND)) + 1
    spool.seal(record(START + MINUTE + 9 * SECOND))
    spool.seal(high=START + 2 * MINUTE - 1)
    last = two_tables(spool, 2)
    FileDeliveries(spool, str(root)).deliver(first, last)
    assert [name[-2:] for name in documents(root)] == ["02"]


def test_the_minute_in_which_the_spool_begins_has_a_document_even_if_the_first_epochs_are_empty(
    spool: SpoolMaker, root: Path
) -> None:
    first = spool.seal(high=START + SECOND) + 1
    spool.seal(record(START + 2 * SECOND))
    last = spool.seal(high=START + MINUTE - 1)
    FileDeliveries(spool, str(root)).deliver(first, last)
    assert [name[-2:] for name in documents(root)] == ["00"]


def test_a_sink_of_an_idle_stream_begins_with_its_first_minute(spool: SpoolMaker, root: Path) -> None:
    run = FileDeliveries(spool, str(root))
    run.publish(spool.seal(high=START + SECOND))
    assert not documents(root)
    FileDeliveries(spool, str(root)).publish(spool.seal(high=START + MINUTE - 1))
    assert [name[-2:] for name in documents(root)] == ["00"]


def test_minutes_that_an_older_program_has_delivered_in_between_have_no_document(
    spool: SpoolMaker, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    FileDeliveries(spool, str(root)).deliver(1, two_tables(spool, 0))
    between = two_tables(spool, 1)
    last = two_tables(spool, 2)
    FileDeliveries(spool, str(root)).deliver(between + 1, last)
    assert [name[-2:] for name in documents(root)] == ["00", "02"]
    (warning,) = caplog.records
    assert "some minutes get no document" in warning.message


def test_the_last_look_of_a_sink_needs_none_of_the_epochs_that_were_pruned_since_it_began(
    spool: SpoolMaker, root: Path, run: FileDeliveries
) -> None:
    first = two_tables(spool, 0)
    run.deliver(1, first)
    last = two_tables(spool, 1)
    run.write(first + 1, last)
    record_consumer(spool.spool, "files", last, now=START)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    assert spool.spool.floor() > first + 1
    run.look_anew()
    run.publish(last)
    assert [name[-2:] for name in documents(root)] == ["00", "01"]


def test_the_first_document_is_written_although_the_first_epochs_are_pruned(
    spool: SpoolMaker, root: Path, run: FileDeliveries
) -> None:
    last = two_tables(spool, 0)
    run.write(1, last)
    record_consumer(spool.spool, "files", last, now=START)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    run.publish(last)
    assert [name[-2:] for name in documents(root)] == ["00"]


def test_the_last_look_writes_no_document_of_a_minute_that_another_process_has_delivered(
    spool: SpoolMaker, root: Path, run: FileDeliveries
) -> None:
    """Between the two locks of this process another one has written files, and was killed before it published them."""
    first = two_tables(spool, 0)
    run.deliver(1, first)
    second = two_tables(spool, 1)
    FileDeliveries(spool, str(root)).write(first + 1, second)
    last = spool.seal(high=START + 3 * MINUTE - 1)
    run.look_anew()
    run.publish(last)
    assert [name[-2:] for name in documents(root)] == ["00", "02"]


def test_the_last_look_warns_of_minutes_that_an_older_program_may_have_delivered(
    spool: SpoolMaker, root: Path, run: FileDeliveries, caplog: pytest.LogCaptureFixture
) -> None:
    """The epochs that would show it are pruned, and without a sink's report nothing else does."""
    run.deliver(1, two_tables(spool, 0))
    spool.seal(high=START + 2 * MINUTE - 2)
    spool.seal(high=START + 2 * MINUTE - 1)
    last = spool.seal(high=START + 3 * MINUTE - 1)
    record_consumer(spool.spool, "files", last, now=START)
    spool.writer.retention.prune(now=START + 10**13, grace=0)
    assert spool.spool.floor() == last
    run.look_anew()
    run.publish(last)
    assert [name[-2:] for name in documents(root)] == ["00", "02"]
    assert [entry.message for entry in caplog.records if "some minutes get no document" in entry.message]


def test_a_document_of_another_spool_stays_and_a_warning_names_it(
    tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = SpoolMaker(tmp_path / "a"), SpoolMaker(tmp_path / "b")
    FileDeliveries(one, str(root)).deliver(1, two_tables(one, 0))
    two_tables(other, 0)
    run = FileDeliveries(other, str(root))
    run.deliver(1, two_tables(other, 1))
    found = documents(root)
    assert [document.spool_id for document in found.values()] == [one.spool_id, other.spool_id]
    assert [entry.message for entry in caplog.records if "sink.path of its own" in entry.message]
    assert [cut.timestamp for cut in run.store.cuts()] == [START + 2 * MINUTE - 1]


def test_a_forgotten_sink_that_delivers_again_finds_its_documents(
    spool: SpoolMaker, root: Path, run: FileDeliveries, caplog: pytest.LogCaptureFixture
) -> None:
    last = two_tables(spool, 0)
    run.deliver(1, last)
    assert spool.spool.storage.exists(f"consumers/files{MINUTES}")
    forget(spool.spool, "files")
    assert not spool.spool.storage.exists(f"consumers/files{MINUTES}")
    FileDeliveries(spool, str(root)).deliver(1, last)
    assert len(documents(root)) == 1
    assert not caplog.records


def test_an_incomplete_table_has_the_reason(spool: SpoolMaker, root: Path, run: FileDeliveries) -> None:
    last = two_tables(spool, 0)
    run.write(1, last)
    run.publish(last, {"Albums": "its backfill is not done"})
    (document,) = documents(root).values()
    assert {name: table.incomplete for name, table in document.tables.items()} == {
        "Albums": "its backfill is not done",
        "Singers": "",
    }


def test_the_command_lists_the_complete_minutes_of_a_day(
    spool: SpoolMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "source: {project: project, instance: instance, database: d, change_stream: Everything}\n"
        f"spool: {{path: {spool.path}}}\nsink: {{path: {tmp_path / 'out'}}}\n"
    )
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == "no cut is published yet\n"
    run = FileDeliveries(spool, str(tmp_path / "out"))
    run.deliver(1, two_tables(spool, 0))
    last = spool.seal(high=START + (24 * 60 + 1) * MINUTE - 1)
    run.publish(last)
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24 * 60
    assert lines[0] == f"2026-03-01T10:01:59.999999999Z  epoch {last}  2 tables complete"
    assert main([str(path), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)[-1]["timestamp"] == "2026-03-02T10:00:59.999999999Z"


def test_readers_of_the_files_ignore_the_documents(spool: SpoolMaker, root: Path, run: FileDeliveries) -> None:
    files = run.deliver(1, two_tables(spool, 0))
    assert documents(root)
    assert [file.path for file in files_below(str(root), opencdc=True)] == sorted(str(root / one.path) for one in files)
    assert re.match("_", FOLDER), "Spark ignores folders whose names begin so"
