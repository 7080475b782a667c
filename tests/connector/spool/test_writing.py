"""A new spool, and what a seal writes."""

from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from connector.core.filters import RecordFilter
from connector.core.partitions import CutPartition
from connector.core.timestamps import SECOND
from connector.errors import SpoolError, SpoolMismatchError
from connector.spool.reading import Spool
from connector.spool.summaries import held_bytes
from connector.spool.writing import ResumePoint, checkpoint, initialize
from tests.connector.builders import AT, COLUMNS, column, record
from tests.connector.spool.sealing import CUT, NAME, NOW, SINGERS, bytes_of, epoch_of, numbers, rows, sealed, writer_of


@pytest.fixture
def spool(spool_path: str) -> Spool:
    spool = Spool.at(spool_path)
    initialize(spool, NAME, AT, "now", [SINGERS])
    return spool


# A new spool.


def test_a_new_spool_says_which_stream_it_holds_since_when_and_the_schemas_at_the_start(spool: Spool) -> None:
    header = Spool(spool.storage).check_source(NAME)
    assert (header.source, header.start, header.requested_start) == (NAME, AT, "now")
    assert header.schema_keys == {"Singers": SINGERS.key}
    assert spool.schema(SINGERS.key) == SINGERS
    assert (spool.latest(), spool.floor()) == (0, 1)


def test_reading_a_new_spool_begins_with_the_initial_query_at_its_start(spool: Spool) -> None:
    at = checkpoint(spool, spool.header())
    assert at == ResumePoint(0, AT - 1, (CutPartition("", AT),), (SINGERS,))


def test_where_there_is_no_spool_none_is_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Spool.at(tmp_path).header()


def test_a_header_of_an_older_program_has_no_default_schema_and_is_read(spool: Spool) -> None:
    before = spool.storage.read("spool.json").to_pybytes()
    initialize(spool, NAME, AT, "now", [SINGERS], default_schema="public", before=before)
    assert spool.header().default_schema == "public"
    node = orjson.loads(spool.storage.read("spool.json").to_pybytes())
    assert node.pop("default_schema") == "public"
    spool.storage.replace("spool.json", orjson.dumps(node))
    assert spool.header().default_schema is None
    sealed(writer_of(spool))
    assert numbers(spool) == [1]


def test_a_spool_of_another_stream_is_refused(spool: Spool) -> None:
    other = NAME.model_copy(update={"change_stream": "other"})
    with pytest.raises(SpoolMismatchError, match="holds change stream p/i/d/s, not p/i/d/other") as raised:
        spool.check_source(other)
    assert raised.value.exit_code == 2


def test_a_spool_of_a_newer_version_is_refused_with_one_line(spool: Spool) -> None:
    node = orjson.loads(spool.storage.read("spool.json").to_pybytes())
    spool.storage.replace("spool.json", orjson.dumps(node | {"version": 7}))
    with pytest.raises(SpoolError, match="is of version 7, newer than this program's 6"):
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
    assert writer.retention.bytes == writer_of(spool).retention.bytes == held_bytes(spool.summaries(1, 3))
    assert written < writer.retention.bytes < written + 3 * 300
