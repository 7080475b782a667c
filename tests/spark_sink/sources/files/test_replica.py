"""The files of the sink as `spanner-cdc verify` reads them; what it cannot compare exactly is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from connector.config.replicas import Selection
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig
from connector.config.sinks import sink_type
from connector.core.records import ColumnType
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.spool.consumers import record as record_consumer
from spark_sink.errors import EventFileError, SinkError
from spark_sink.sinks.files.config import CONSUMER, FilesConfig
from spark_sink.sinks.files.replica import FilesReplica
from spark_sink.sources.files.files import read_opencdc
from tests.spark_sink.sinks.files.written import BY_MINUTE, written, written_as
from tests.spark_sink.spools import KEY, START, SpoolMaker, record

DATASTREAM = EnvelopeConfig()
SOURCE = SourceConfig(project="p", instance="instance", database="d", change_stream="Everything")


def tables(*names: str) -> dict[str, TableSchema]:
    return {name: TableSchema(name, (), ()) for name in names}


def delivered(spool: SpoolMaker) -> None:
    """The sink is done with all epochs."""
    latest = spool.spool.latest()
    identity = spool.spool.manifest(latest).identity
    record_consumer(spool.spool, CONSUMER, latest, now=START, at=identity)


def replica(spool: SpoolMaker, root: Path) -> FilesReplica:
    return FilesReplica(FilesConfig(path=str(root)), spool.path)


def test_the_changes_of_some_tables_are_read_up_to_what_the_sink_has_delivered(
    spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.seal(record(START + 5, [1, 2]), record(START + 6, [3], table="music.Albums"))
    written(spool, tmp_path / "out")
    delivered(spool)
    found = replica(spool, tmp_path / "out")
    assert found.delivered == spool.spool.manifest(1).watermark_high
    assert [batch.column("object").to_pylist() for batch in found.changes(tables("Singers"), Selection())] == [
        ["Singers", "Singers"]
    ]
    assert list(found.changes(tables("Others"), Selection())) == []


def test_tables_have_spanners_names_where_files_name_them_otherwise(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.seal(record(START + 5, [1, 2]), record(START + 6, [3], table="music.Albums"))
    written(spool, tmp_path / "out", replace(BY_MINUTE, object_names="schema_table"))
    delivered(spool)
    sink = FilesConfig(path=str(tmp_path / "out"), object="schema_table")
    found = FilesReplica(sink, spool.path)
    names = [
        batch.column("object").to_pylist() for batch in found.changes(tables("Singers", "music.Albums"), Selection())
    ]
    assert sorted(names) == [["Singers", "Singers"], ["music.Albums"]]


def test_gzipped_files_are_read_and_count_as_ten_times_their_size(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(2, rows=4)
    paths = written_as(spool, tmp_path / "out", "jsonl", compressed=True)
    delivered(spool)
    found = replica(spool, tmp_path / "out")
    assert found.size({}) == 10 * sum(Path(path).stat().st_size for path in paths)
    assert sum(batch.num_rows for batch in found.changes(tables("Singers"), Selection())) == 8


def test_before_anything_is_delivered_there_is_nothing_to_compare(spool: SpoolMaker, tmp_path: Path) -> None:
    spool.fill(1)
    with pytest.raises(SinkError, match="the sink has delivered no epoch"):
        replica(spool, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "envelope", "message"),
    [
        ({"endpoint": "http://127.0.0.1:1"}, DATASTREAM, r"sink\.endpoint"),
    ],
)
def test_files_that_cannot_be_compared_are_refused(
    options: dict[str, str], envelope: EnvelopeConfig, message: str, spool: SpoolMaker, tmp_path: Path
) -> None:
    sink = FilesConfig.model_validate({"path": str(tmp_path), **options})
    with pytest.raises(ConfigurationError, match=message):
        sink_type("files").replica(sink, SOURCE, spool.path, envelope, SparkConfig())


def test_bigquerys_changelog_is_refused(spool: SpoolMaker) -> None:
    kind = sink_type("bigquery")
    sink = kind.config_type.model_validate({"type": "bigquery", "dataset": "replica", "mode": "changelog"})
    with pytest.raises(ConfigurationError, match="tables of the mode changelog cannot be verified"):
        kind.replica(sink, SOURCE, spool.path, DATASTREAM, SparkConfig())


def test_an_avro_update_that_omits_columns_says_that_null_is_ambiguous(spool: SpoolMaker, tmp_path: Path) -> None:
    changes = [
        ("INSERT", "NEW_VALUES"), ("UPDATE", "NEW_VALUES"), ("UPDATE", "OLD_AND_NEW_VALUES"), ("UPDATE", "NEW_ROW"),
        ("DELETE", "NEW_VALUES"),
    ]  # fmt: skip
    records = [
        replace(record(START + 5 + number, mod_type=mod_type, values={}), value_capture_type=capture)
        for number, (mod_type, capture) in enumerate(changes)
    ]
    spool.seal(*records)
    written_as(spool, tmp_path / "out", "avro")
    delivered(spool)
    found = replica(spool, tmp_path / "out")
    kinds = [
        metadata["mod_type"]
        for batch in found.changes(tables("Singers"), Selection())
        for metadata in batch.column("source_metadata").to_pylist()
    ]
    assert kinds == ["INSERT", "PARTIAL", "PARTIAL", "UPDATE", "DELETE"]
    assert found.precision.timestamp == 1000


def test_columns_of_avro_files_have_spanners_names(spool: SpoolMaker, tmp_path: Path) -> None:
    columns = (KEY, ColumnType("näme", '{"code":"STRING"}', False, 2))
    spool.seal(record(START + 5, columns=columns, values={"näme": "x"}))
    written_as(spool, tmp_path / "out", "avro", timestamps="text")
    delivered(spool)
    sink = FilesConfig(path=str(tmp_path / "out"), format="avro", timestamps="text")
    found = FilesReplica(sink, spool.path)
    schema = TableSchema.of("Singers", columns)
    payloads = [
        json.loads(text)
        for batch in found.changes({"Singers": schema}, Selection())
        for text in batch.column("payload").to_pylist()
    ]
    assert payloads == [{"Id": 1, "näme": "x"}]
    assert found.precision.timestamp == 1


@pytest.mark.parametrize("form", ["opencdc-jsonl", "opencdc-protobuf"])
@pytest.mark.parametrize("compressed", [False, True])
def test_opencdc_records_are_read_as_changes_in_commit_order(
    form: str, compressed: bool, spool: SpoolMaker, tmp_path: Path
) -> None:
    spool.seal(
        record(START + 5, [1], sequence=3),
        record(START + 6, [1], mod_type="UPDATE", values={"Name": None}),
        record(START + 7, [1], mod_type="DELETE"),
    )
    written_as(spool, tmp_path / "out", form, compressed=compressed)
    delivered(spool)
    found = replica(spool, tmp_path / "out")
    (batch,) = found.changes(tables("Singers"), Selection())
    assert [
        (keys[1:], metadata["mod_type"], json.loads(payload))
        for keys, metadata, payload in zip(
            *(batch.column(name).to_pylist() for name in ("sort_keys", "source_metadata", "payload")), strict=True
        )
    ] == [
        ([str(START + 5), "00000003", "0"], "INSERT", {"Id": 1, "Name": "n"}),
        ([str(START + 6), "00000000", "0"], "UPDATE", {"Id": 1, "Name": None}),
        ([str(START + 7), "00000000", "0"], "DELETE", {"Id": 1}),
    ]
    assert found.precision.is_opencdc


RECORD = b'{"operation":"create","metadata":{%b},"key":{},"payload":{"after":{"a":"secret"}}}\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.opencdc.jsonl", b'{"operation":"create","secret":1}\n'),
        ("a.opencdc.jsonl", b"secret\n"),
        ("a.opencdc.jsonl", RECORD % b'"opencdc.collection":"T","opencdc.createdAt":"x"'),
        ("a.opencdc.pb", b"\x06secret"),
        ("a.opencdc.pb", b"\x7fsecret"),
        ("a.opencdc.pb", b"\xff\xff\xff\xff\xff\xff"),
        ("a.opencdc.pb", b"\x00"),
        ("a.opencdc.pb", b"\x02\x10\x01"),
        ("a.opencdc.pb.gz", b"secret"),
    ],
)
def test_a_file_that_holds_no_records_is_named_without_its_contents(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EventFileError, match=rf"^cannot read {path}") as caught:
        list(read_opencdc(str(path)))
    assert "secret" not in str(caught.value)
