"""Rows of a backfill in every format of the file sink."""

from pathlib import Path

import orjson
import pytest

from connector.spool.backfill.records import spool_of
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from spark_sink.sinks.shared.dead_letters import DeadLetters
from tests.connector.spool.backfill.builders import T, recorded, segment, spool_with_start
from tests.spark_sink.sinks.files.written import avro_events


@pytest.fixture
def own(tmp_path: Path) -> Spool:
    """The spool of a backfill with two partitions."""
    spool, header = spool_with_start(tmp_path / "spool")
    document = recorded(spool, header, "A", "B")
    own = spool_of(spool, document.number)
    writer = BackfillWriter(own, own.header(), document)
    for table in ("A", "B"):
        files = [segment(own, table, [1, 2, 3], epoch=writer.epoch + 1)]
        writer.seal(BackfillPart(table=table, plan=1, partition=0), files, now=T)
    return own


def written(own: Spool, out: Path, form: str) -> dict[str, bytes]:
    """Writes all epochs, a file each; returns the files by path."""
    options = FileOptions(gzip=False, rotate_bytes=10**9, by_minute=False, format=form)
    dead_letters = DeadLetters(str(out.parent / "dead"))
    writer = FileWriter(own, own.header().spool_id, destination_at(str(out)), options, dead_letters)
    for group in file_groups(own.manifests(1, own.latest()), by_minute=False):
        list(writer.write(group))
    assert writer.rejected == []
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.*")) if path.is_file()}


def test_json_lines_are_in_the_folder_of_the_backfills_minute(own: Spool, tmp_path: Path) -> None:
    files = written(own, tmp_path / "out", "jsonl")
    of_spool = own.header().spool_id
    assert [path.partition("/")[2].rpartition("/")[0] for path in files] == ["2026/03/01/10/00"] * 2
    assert [path.partition("_spanner-backfill_")[2] for path in files] == [
        f"{of_spool}_1_0.jsonl",
        f"{of_spool}_2_0.jsonl",
    ]
    event = orjson.loads(next(iter(files.values())).splitlines()[0])
    assert event["payload"] == {"Id": 1, "Name": "A1"}
    assert event["sort_keys"] == [T // 10**6, T, "00000000", 0]
    metadata = event["source_metadata"]
    assert (metadata["snapshot"], metadata["mod_type"], metadata["is_deleted"]) == (True, "INSERT", False)
    assert metadata["server_transaction_id"] is None
    assert metadata["number_of_records_in_transaction"] is None


def test_avro_holds_the_rows(own: Spool, tmp_path: Path) -> None:
    for path, data in written(own, tmp_path / "out", "avro").items():
        events = avro_events(tmp_path / "out" / path)
        assert data.startswith(b"Obj")
        assert [event["payload"]["Id"] for event in events] == [1, 2, 3]
        assert {event["source_metadata"]["snapshot"] for event in events} == {True}
        metadata = events[0]["source_metadata"]
        assert (metadata["server_transaction_id"], metadata["tx_id"]) == ("", "")
        assert metadata["number_of_records_in_transaction"] == 0


@pytest.mark.parametrize("form", ["opencdc-jsonl", "opencdc-protobuf"])
def test_opencdc_has_the_operation_snapshot(own: Spool, tmp_path: Path, form: str) -> None:
    files = written(own, tmp_path / "out", form)
    assert len(files) == 2
    if form == "opencdc-jsonl":
        record = orjson.loads(next(iter(files.values())).splitlines()[0])
        assert record["operation"] == "snapshot"
        assert record["payload"] == {"before": None, "after": {"Id": 1, "Name": "A1"}}
        assert record["key"] == {"Id": 1}
