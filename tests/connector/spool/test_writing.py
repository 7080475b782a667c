from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from connector.core.changes import Changes
from connector.core.epoch import Epoch
from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.records import DataChangeRecord
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder, Source
from connector.errors import SpoolError, SpoolInUseError, SpoolMismatchError
from connector.spool import consumers
from connector.spool.cuts import INLINE
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool, SpoolHeader, manifest_path, schema_path, to_json
from connector.spool.retention import Retention
from connector.spool.summaries import held_bytes
from connector.spool.writing import Checkpoint, SpoolWriter, checkpoint, initialize, sole_writer
from connector.storage import store
from connector.storage.local import LocalStore
from connector.storage.store import FileStore
from tests.connector.builders import AT, COLUMNS, column, record

NAME = SourceName(project="p", instance="i", database="d", change_stream="s")
ENVELOPE = EnvelopeBuilder(Source("p", "i", "d", "s", "d"), stream_name=None, read_method="spanner-cdc")
SINGERS = TableSchema.of("Singers", COLUMNS)
CUT = (CutPartition("a", AT),)
LARGE = tuple(CutPartition(f"token{number}", AT) for number in range(INLINE + 1))
NOW = AT + 60 * SECOND


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


def everything(changes: Changes) -> Changes:
    return changes


def writer_of(spool: Spool, keeps: Callable[[Changes], Changes] = everything) -> SpoolWriter:
    """A writer as a daemon that starts has it."""
    fresh = Spool(spool.storage)
    header = fresh.check_source(NAME)
    return SpoolWriter(fresh, header, checkpoint(fresh, header), ENVELOPE, keeps)


def epoch_of(number: int, *records: DataChangeRecord) -> Epoch:
    low = AT - 1 + (number - 1) * SECOND
    return Epoch(low, low + SECOND, records, sum(one.size for one in records))


def sealed(writer: SpoolWriter, count: int = 1, *, now: int = NOW) -> None:
    """Seals as many epochs of one record each."""
    for _ in range(count):
        number = writer.epoch + 1
        one = record(commit_timestamp=AT + (number - 1) * SECOND, server_transaction_id=f"tx{number}")
        writer.seal(epoch_of(number, one), CUT, now=now)


def bytes_of(spool: Spool, *folders: str) -> int:
    """What the files of some folders of a spool take."""
    paths = [f"{folder}/{name}" for folder in folders for name in spool.storage.list(folder)]
    return sum(spool.storage.read(path).size for path in paths)


def numbers(spool: Spool) -> list[int]:
    return [int(name[:-5]) for name in spool.storage.list("manifests")]


def rows(spool: Spool, epoch: int) -> pa.Table:
    batches = [batch for file in spool.manifest(epoch).files for batch in spool.batches(file)]
    return pa.Table.from_batches(batches, SCHEMA)


# A new spool.


def test_a_new_spool_says_which_stream_it_holds_since_when_and_the_schemas_at_the_start(spool: Spool) -> None:
    header = Spool(spool.storage).check_source(NAME)
    assert (header.source, header.start, header.requested_start) == (NAME, AT, "now")
    assert header.schema_keys == {"Singers": SINGERS.key}
    assert spool.schema(SINGERS.key) == SINGERS
    assert (spool.latest(), spool.floor()) == (0, 1)


def test_reading_a_new_spool_begins_with_the_initial_query_at_its_start(spool: Spool) -> None:
    at = checkpoint(spool, spool.header())
    assert at == Checkpoint(0, AT - 1, (CutPartition("", AT),), (SINGERS,))


def test_where_there_is_no_spool_none_is_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Spool.at(tmp_path).header()


def test_a_spool_of_another_stream_is_refused(spool: Spool) -> None:
    other = NAME.model_copy(update={"change_stream": "other"})
    with pytest.raises(SpoolMismatchError, match="holds change stream p/i/d/s, not p/i/d/other") as raised:
        spool.check_source(other)
    assert raised.value.exit_code == 2


def test_a_spool_of_a_newer_version_is_refused_with_one_line(spool: Spool) -> None:
    node = orjson.loads(spool.storage.read("spool.json").to_pybytes())
    spool.storage.replace("spool.json", orjson.dumps(node | {"version": 2}))
    with pytest.raises(SpoolError, match="is of version 2, newer than this program's 1"):
        spool.header()


def test_a_header_without_its_fields_is_corrupt(spool: Spool) -> None:
    spool.storage.replace("spool.json", b'{"version":1}')
    with pytest.raises(SpoolError, match="fields are missing"):
        spool.header()


# A seal.


def test_a_sealed_epoch_has_its_rows_and_the_checkpoint_after_it(spool: Spool) -> None:
    writer = writer_of(spool)
    epoch = epoch_of(1, record(), record(record_sequence="00000002", table_name="Albums"))
    manifest = writer.seal(epoch, [CutPartition("b", AT + 5)], now=NOW)
    assert spool.latest() == writer.epoch == manifest.epoch == 1
    assert spool.manifest(1) == manifest
    assert (manifest.watermark_low, manifest.watermark_high, manifest.rows) == (epoch.low, epoch.high, 2)
    assert manifest.tables == {"Singers": 1, "Albums": 1}
    assert (manifest.files[0].first_commit_timestamp, manifest.files[0].last_commit_timestamp) == (AT, AT)
    assert (manifest.final, manifest.sealed_at) == (False, NOW)
    table = rows(spool, 1)
    assert table.column("object").to_pylist() == ["Singers", "Albums"]
    assert table.column("epoch").to_pylist() == [1, 1]
    at = checkpoint(spool, spool.header())
    assert (at.epoch, at.watermark, at.cut) == (1, epoch.high, (CutPartition("b", AT + 5),))
    assert {schema.table for schema in at.schemas} == {"Singers", "Albums"}


def test_epochs_are_numbered_from_one_without_gaps_also_over_restarts(spool: Spool) -> None:
    for _ in range(3):
        sealed(writer_of(spool), 2)
    assert numbers(spool) == [1, 2, 3, 4, 5, 6]
    manifests = list(spool.manifests(1, 6))
    assert all(one.watermark_high == other.watermark_low for one, other in pairwise(manifests))


def test_an_empty_epoch_has_no_file_and_moves_the_checkpoint(spool: Spool) -> None:
    manifest = writer_of(spool).seal(epoch_of(1), CUT, now=NOW, final=True)
    assert (manifest.files, manifest.rows, manifest.final) == ((), 0, True)
    assert spool.storage.list("segments") == []
    assert checkpoint(spool, spool.header()).watermark == AT - 1 + SECOND


def test_what_is_filtered_out_is_not_written(spool: Spool) -> None:
    writer = writer_of(spool, RecordFilter(exclude=["Albums"]))
    assert writer.seal(epoch_of(1, record(table_name="Albums")), CUT, now=NOW).files == ()
    assert writer.seal(epoch_of(2, record(), record(table_name="Albums")), CUT, now=NOW).tables == {"Singers": 1}


def test_a_large_epoch_is_written_in_several_batches_and_read_in_order(spool: Spool) -> None:
    some = [record(record_sequence=f"{n:08d}", size=3 * 1024 * 1024) for n in range(5)]
    (file,) = writer_of(spool).seal(epoch_of(1, *some), CUT, now=NOW).files
    assert len(list(spool.batches(file))) == 3
    sequences = [sort_keys[2] for sort_keys in rows(spool, 1).column("sort_keys").to_pylist()]
    assert sequences == [one.record_sequence for one in some]


def test_every_schema_that_a_row_names_is_written_also_one_that_lasted_for_a_part_of_an_epoch(spool: Spool) -> None:
    age, height = column("Age", "INT64", 3), column("Height", "INT64", 4)
    wider, widest = (*COLUMNS, age), (*COLUMNS, age, height)
    writer_of(spool).seal(epoch_of(1, record(column_types=wider), record(column_types=widest)), CUT, now=NOW)
    keys = rows(spool, 1).column("schema_key").to_pylist()
    assert [spool.schema(key).columns for key in keys] == [wider, widest]


def test_a_schema_is_known_again_after_a_restart(spool: Spool) -> None:
    wider = (*COLUMNS, column("Age", "INT64", 3))
    first = writer_of(spool).seal(epoch_of(1, record(column_types=wider)), CUT, now=NOW)
    second = writer_of(spool).seal(epoch_of(2, record()), CUT, now=NOW)
    assert first.schema_keys == second.schema_keys
    assert rows(spool, 1).column("schema_key") == rows(spool, 2).column("schema_key")


def test_the_size_of_what_is_kept_is_counted_also_after_a_restart(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    written = bytes_of(spool, "segments", "manifests")
    assert writer.bytes == writer_of(spool).bytes == held_bytes(spool.summaries(1, 3))
    assert written < writer.bytes < written + 3 * 300


# Crashes.


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


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

        for name in ("create", "replace"):
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
    sweep = Retention._sweep

    def paused(writer: Retention) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Retention, "_sweep", sweep)
            sealed(writer_of(spool))
        sweep(writer)

    monkeypatch.setattr(Retention, "_sweep", paused)
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


# Two daemons.


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
    assert spool.manifest(1).writer == first._writer
    assert (len(spool.storage.list("segments")), spool.storage.list("cuts")) == (1, [])
    assert len(list(spool.batches(spool.manifest(1).files[0]))) == 1


def test_a_daemon_that_wakes_up_late_cannot_create_a_number_that_was_pruned(spool: Spool) -> None:
    sealed(writer_of(spool), 2)
    late, other = writer_of(spool), writer_of(spool)
    sealed(other, 4)
    consumers.record(spool, "c", 6, now=NOW)
    assert other.prune(now=NOW, grace=0) == 5
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        sealed(late)
    assert numbers(spool) == [6]
    assert Spool(spool.storage).latest() == 6


def test_a_daemon_that_wakes_up_late_prunes_nothing(spool: Spool) -> None:
    sealed(writer_of(spool), 2)
    late, other = writer_of(spool), writer_of(spool)
    sealed(other, 4)
    consumers.record(spool, "c", 6, now=NOW)
    other.prune(now=NOW, grace=0)
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        late.prune(now=NOW, grace=0)
    assert (spool.floor(), numbers(spool)) == (6, [6])


def test_a_floor_that_another_daemon_has_set_stays(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 5)
    consumers.record(spool, "c", 3, now=NOW)
    late, other = writer_of(spool), writer_of(spool)
    assert other.prune(now=NOW, grace=0) == 3
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        late._retention._set_floor(2)
    assert spool.floor() == 4


def test_of_two_first_starts_the_second_leaves_the_spool_to_the_first(spool: Spool) -> None:
    header = spool.header()
    with pytest.raises(SpoolInUseError, match="another daemon has written"):
        initialize(spool, NAME, AT + 1, "now", [])
    assert spool.header() == header


def test_a_header_is_written_anew_only_in_place_of_the_one_that_was_read(spool: Spool) -> None:
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
    writer.prune(now=NOW, grace=0)
    spool.storage.create(manifest_path(1), ghost)
    assert Spool(spool.storage).latest() == 3
    sealed(writer_of(spool))
    assert numbers(spool) == [3, 4]


# Pruning.


def test_nothing_is_pruned_while_no_consumer_is_known(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    assert writer.prune(now=NOW, grace=0) == 0
    assert numbers(spool) == [1, 2, 3]


def test_what_every_consumer_has_passed_is_pruned_with_its_files(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 4)
    consumers.record(spool, "fast", 4, now=NOW)
    consumers.record(spool, "slow", 2, now=NOW)
    assert writer.prune(now=NOW, grace=0) == 2
    assert numbers(spool) == [3, 4]
    assert len(spool.storage.list("segments")) == 2
    assert spool.floor() == 3
    assert writer.bytes == held_bytes(spool.summaries(3, 4))
    assert writer.prune(now=NOW, grace=0) == 0


def test_the_newest_epoch_is_never_pruned(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 3, now=NOW)
    assert writer.prune(now=NOW, grace=0) == 2
    assert numbers(spool) == [3]
    assert checkpoint(Spool(spool.storage), spool.header()).epoch == 3


def test_an_epoch_is_kept_for_a_grace_period_after_its_seal(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 2)
    consumers.record(spool, "c", 2, now=NOW)
    assert writer.prune(now=NOW + 9, grace=10) == 0
    assert writer.prune(now=NOW + 10, grace=10) == 1


@pytest.mark.parametrize("grace", [0, 60 * SECOND])
def test_a_clock_that_was_set_back_by_hours_keeps_nothing_longer(spool: Spool, grace: int) -> None:
    writer = writer_of(spool)
    sealed(writer, 2)
    consumers.record(spool, "c", 2, now=NOW)
    assert writer.prune(now=NOW - 7 * 3600 * SECOND, grace=grace) == 1


def test_the_numbers_go_on_after_pruning_and_a_restart(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 3, now=NOW)
    writer.prune(now=NOW, grace=0)
    again = writer_of(spool)
    sealed(again)
    assert numbers(spool) == [3, 4]
    assert again.prune(now=NOW, grace=0) == 1
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
            writer.prune(now=NOW, grace=0)
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
    writer.prune(now=NOW, grace=0)
    assert found[0].epoch + 1 >= spool.floor()
    assert numbers(spool)[0] == spool.floor()
    assert list(spool.manifests(found[0].epoch + 1, 4))


# Reading.


def test_a_reader_that_waits_sees_epochs_as_they_are_sealed(spool: Spool) -> None:
    writer, reader = writer_of(spool), Spool(spool.storage)
    assert reader.latest() == 0
    sealed(writer)
    assert reader.latest() == 1
    sealed(writer, 2)
    assert reader.latest() == 3


def test_a_reader_that_slept_while_its_newest_epoch_was_pruned_finds_the_newest(spool: Spool) -> None:
    writer, reader = writer_of(spool), Spool(spool.storage)
    sealed(writer)
    assert reader.latest() == 1
    sealed(writer, 3)
    consumers.record(spool, "c", 4, now=NOW)
    writer.prune(now=NOW, grace=0)
    assert reader.latest() == 4


def test_an_epoch_that_was_pruned_is_told_with_what_is_kept(spool: Spool) -> None:
    writer = writer_of(spool)
    sealed(writer, 3)
    consumers.record(spool, "c", 2, now=NOW)
    writer.prune(now=NOW, grace=0)
    with pytest.raises(SpoolError, match=r"epoch 2 is not in the spool .* which keeps 3 to 3\. It was pruned"):
        list(spool.manifests(2, 3))


def test_a_manifest_under_another_number_is_corrupt(spool: Spool) -> None:
    sealed(writer_of(spool))
    spool.storage.create(manifest_path(2), spool.storage.read(manifest_path(1)).to_pybytes())
    with pytest.raises(SpoolError, match="it is the manifest of epoch 1"):
        spool.manifest(2)


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "delete"])
def test_a_damaged_segment_is_refused(spool: Spool, damage: str) -> None:
    sealed(writer_of(spool))
    (file,) = spool.manifest(1).files
    data = spool.storage.read(file.path).to_pybytes()
    match damage:
        case "flip":
            spool.storage.replace(file.path, data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "cut":
            spool.storage.replace(file.path, data[:-1])
        case "grow":
            spool.storage.replace(file.path, data + b"\0")
        case _:
            spool.storage.delete(file.path)
    with pytest.raises(SpoolError, match=r"corrupt file .*arrow: it"):
        list(spool.batches(file))


def test_a_schema_that_is_missing_or_damaged_is_told(spool: Spool) -> None:
    with pytest.raises(SpoolError, match="it is missing"):
        spool.schema("00")
    spool.storage.replace(schema_path("00"), b"{}")
    with pytest.raises(SpoolError, match="corrupt file"):
        spool.schema("00")


def test_a_schema_of_a_newer_version_is_refused_with_one_line(spool: Spool) -> None:
    node = orjson.loads(SINGERS.to_json()) | {"version": 2}
    spool.storage.replace(schema_path("00"), orjson.dumps(node))
    with pytest.raises(SpoolError, match="is of version 2, newer than this program's 1"):
        spool.schema("00")


def test_a_floor_that_names_no_epoch_is_corrupt(spool: Spool) -> None:
    spool.storage.replace("floor.json", b'{"version":1,"first":"x"}')
    with pytest.raises(SpoolError, match="it has no valid field first"):
        spool.floor()


def test_a_spool_tells_where_it_is(spool: Spool, spool_path: str) -> None:
    assert spool.path == spool_path
