"""The files of the sink as `spanner-cdc verify` reads them; what it cannot compare exactly is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from connector.config.replicas import Selection
from connector.config.sections import EnvelopeConfig, SourceConfig
from connector.config.sinks import sink_type
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.spool.consumers import record as record_consumer
from spark_sink.errors import SinkError
from spark_sink.files.config import CONSUMER, FilesConfig
from spark_sink.files.replica import FilesReplica
from tests.spark_sink.files.written import BY_MINUTE, written, written_as
from tests.spark_sink.spools import START, SpoolMaker, record

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
        sink_type("files").replica(sink, SOURCE, spool.path, envelope)


def test_bigquerys_changelog_is_refused(spool: SpoolMaker) -> None:
    kind = sink_type("bigquery")
    sink = kind.config_type.model_validate({"type": "bigquery", "dataset": "replica", "mode": "changelog"})
    with pytest.raises(ConfigurationError, match="tables of the mode changelog cannot be verified"):
        kind.replica(sink, SOURCE, spool.path, DATASTREAM)
