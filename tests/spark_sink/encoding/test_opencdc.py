"""Files of OpenCDC records that the file sink writes."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.config import validated
from connector.core.timestamps import SECOND
from connector.envelope.opencdc import OpenCdcWriter
from connector.errors import ConfigurationError
from spark_sink.sinks.files.complete_minutes import FOLDER
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import format_of
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, destination_at
from tests.connector.envelope.conduit import ConduitRecord, of_json, of_messages
from tests.spark_sink.processes import program
from tests.spark_sink.spools import NO_DEAD_LETTERS, START, SpoolMaker, record

JSONL, PROTOBUF = "opencdc-jsonl", "opencdc-protobuf"
formats = pytest.mark.parametrize(("form", "ending"), [(JSONL, "opencdc.jsonl"), (PROTOBUF, "opencdc.pb")])


def written(
    spool: SpoolMaker, root: Path, form: str, *, compressed: bool = False, rotate_bytes: int = 10**9
) -> list[Path]:
    shape = FileOptions(gzip=compressed, rotate_bytes=rotate_bytes, by_minute=True, format=form)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, NO_DEAD_LETTERS)
    groups = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=True)
    return [root / file.path for group in groups for file in writer.write(group)]


def records_in(path: Path) -> list[ConduitRecord]:
    data = gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()
    name = path.name.removesuffix(".gz")
    return list(of_messages(data)) if name.endswith(".pb") else [of_json(line) for line in data.splitlines()]


def held(spool: SpoolMaker) -> Iterator[ConduitRecord]:
    writer = OpenCdcWriter(spool.spool.schema)
    for manifest in spool.spool.manifests(1, spool.spool.latest()):
        for file in manifest.files:
            for batch in spool.spool.batches(file):
                yield from map(of_json, writer.lines(batch))


@pytest.fixture
def filled(spool: SpoolMaker) -> SpoolMaker:
    spool.seal(record(START + 5, range(300)), record(START + 6, [1], mod_type="DELETE"))
    spool.seal(record(START + 60 * SECOND, [2**62], table="music.Albums", mod_type="UPDATE"))
    return spool


@formats
def test_names_and_folders_are_datastreams_with_another_ending(
    spool: SpoolMaker, tmp_path: Path, form: str, ending: str
) -> None:
    spool.seal(record(START + 5, [1]))
    (file,) = written(spool, tmp_path, form)
    key = spool.spool.manifest(1).schema_keys["Singers"]
    folder = tmp_path / "d_Singers/2026/03/01/10/00"
    assert file == folder / f"{key}_spanner-cdc_{spool.spool_id}_1_0.{ending}"
    (packed,) = written(spool, tmp_path, form, compressed=True)
    assert packed == file.with_name(f"{file.name}.gz")


@formats
@pytest.mark.parametrize("compressed", [False, True])
def test_files_contain_each_record_once_in_commit_order(
    filled: SpoolMaker, tmp_path: Path, form: str, ending: str, compressed: bool
) -> None:
    files = written(filled, tmp_path, form, compressed=compressed, rotate_bytes=20_000)
    assert len(files) > 5
    assert [record for file in files for record in records_in(file)] == list(held(filled))
    assert all(file.stat().st_size <= 20_000 for file in files)


@formats
def test_a_replay_writes_the_same_bytes(filled: SpoolMaker, tmp_path: Path, form: str, ending: str) -> None:
    once, again = (written(filled, tmp_path / name, form, compressed=True) for name in ("a", "b"))
    assert [file.read_bytes() for file in once] == [file.read_bytes() for file in again]


def test_json_and_protobuf_files_have_the_same_content(filled: SpoolMaker, tmp_path: Path) -> None:
    lines, messages = (written(filled, tmp_path, form) for form in (JSONL, PROTOBUF))
    assert [records_in(file) for file in lines] == [records_in(file) for file in messages]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("form", "ending"), [(JSONL, "opencdc.jsonl"), pytest.param(PROTOBUF, "opencdc.pb", marks=pytest.mark.slow)]
)
def test_the_sinks_process_writes_the_configured_format(
    filled: SpoolMaker, tmp_path: Path, form: str, ending: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"source: {{project: project, instance: instance, database: d, change_stream: Everything}}\n"
        f"spool: {{path: {filled.path}}}\n"
        f"envelope: {{format: opencdc}}\n"
        f"sink: {{path: {tmp_path / 'out'}, format: {form.removeprefix('opencdc-')}, rotate_interval: 0}}\n"
        f"spark: {{master: 'local[2]', checkpoint: {tmp_path / 'checkpoint'}, config: {{spark.driver.memory: 768m}}}}\n"
    )
    with program(tmp_path / "log", "-m", "spark_sink", str(path)) as sink:
        sink.end_input()
        assert sink.code() == 0, sink.said()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and FOLDER not in path.parts]
    assert {path.name.partition(".")[2] for path in files} == {ending}
    found = [record for path in files for record in records_in(path)]
    assert sorted(found, key=lambda record: record.position) == sorted(held(filled), key=lambda each: each.position)


def configured(envelope: str, form: str) -> str:
    source = {"project": "p", "instance": "in", "database": "d", "change_stream": "s"}
    config = validated({"source": source, "envelope": {"format": envelope}, "sink": {"format": form}})
    assert isinstance(config.sink, FilesConfig)
    return format_of(config, config.sink)


def test_the_format_depends_on_the_sink_and_the_envelope() -> None:
    assert configured("datastream", "jsonl") == "jsonl"
    assert configured("datastream", "avro") == "avro"
    assert configured("opencdc", "jsonl") == JSONL
    assert configured("opencdc", "protobuf") == PROTOBUF


@pytest.mark.parametrize(("envelope", "form"), [("opencdc", "avro"), ("datastream", "protobuf")])
def test_a_format_of_the_other_envelope_is_rejected_with_the_valid_ones(envelope: str, form: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^sink.format: {form} needs the .* envelope: with .* write jsonl or"):
        configured(envelope, form)
