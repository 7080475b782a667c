"""The configuration: every fault at once, each naming its field."""

import re
import traceback
from pathlib import Path

import pytest

from connector.config import load, parse_duration, parse_size, resolve_moment, validated
from connector.core.timestamps import SECOND, parse
from connector.errors import ConfigurationError
from spark_sink.bigquery.config import BigQueryConfig
from spark_sink.files.config import FilesConfig

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "Everything"}


def faults(**sections: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        validated(sections)
    return caught.value.faults


def test_the_defaults_are_the_contracts() -> None:
    config = validated({"source": SOURCE})
    assert (config.source.start, config.source.end, config.source.heartbeat) == ("now", None, SECOND)
    assert config.source.rpc_priority == "high"
    assert config.source.workers is None
    assert config.source.late_records == "stop"
    assert (config.spool.path, config.spool.seal_interval, config.spool.max_bytes) == ("./spool", SECOND, 10 * 2**30)
    assert (config.envelope.format, config.envelope.read_method) == ("datastream", "spanner-cdc")
    assert isinstance(config.sink, FilesConfig)
    assert (config.sink.type, config.sink.path, config.sink.format) == ("files", "./events", "jsonl")
    assert (config.sink.rotate_bytes, config.sink.rotate_interval, config.sink.gzip) == (
        250_000_000,
        60 * SECOND,
        False,
    )
    assert (config.spark.master, config.spark.trigger) == ("local[*]", "1s")
    assert (config.status.host, config.status.port) == ("127.0.0.1", 8080)


def test_all_faults_are_told_at_once_by_field() -> None:
    found = faults(source={**SOURCE, "heartbeat": "500ms", "start": "soon", "project": ""}, spool={"pth": "x"})
    assert [fault.split(":")[0] for fault in found] == [
        "source.project",
        "source.start",
        "source.heartbeat",
        "spool.pth",
    ]
    assert "no such option" in found[-1]


def test_files_are_avro_where_that_is_asked_for() -> None:
    sink = validated({"source": SOURCE, "sink": {"format": "avro", "timestamps": "text", "schema_files": True}}).sink
    assert isinstance(sink, FilesConfig)
    assert (sink.format, sink.timestamps, sink.schema_files) == ("avro", "text", True)
    assert FilesConfig().timestamps == "micros"
    (fault,) = faults(source=SOURCE, sink={"format": "parquet"})
    assert fault.startswith("sink.format:")
    (fault,) = faults(source=SOURCE, sink={"schema_files": True}, envelope={"format": "opencdc"})
    assert "schema_files" in fault


def test_a_bigquery_sink_needs_a_dataset_and_merges_unless_told_otherwise() -> None:
    sink = validated({"source": SOURCE, "sink": {"type": "bigquery", "dataset": "replica_{schema}"}}).sink
    assert isinstance(sink, BigQueryConfig)
    assert (sink.mode, sink.max_staleness, sink.dead_letters) == ("merge", 3600 * SECOND, "./dead-letters")
    assert sink.prune_by_keys
    assert faults(source=SOURCE, sink={"type": "bigquery"}) == ["sink.dataset: is needed"]
    wrong = {"type": "bigquery", "dataset": "a-b", "mode": "upsert", "path": "./events", "max_staleness": "2d"}
    told = faults(source=SOURCE, sink=wrong)
    assert [fault.partition(":")[0] for fault in told] == [
        "sink.dataset",
        "sink.mode",
        "sink.max_staleness",
        "sink.path",
    ]


def test_a_sink_of_no_known_type_is_refused_with_those_that_there_are() -> None:
    assert faults(source=SOURCE, sink={"type": "kafka"}) == ["sink.type: 'kafka' is none of files, bigquery"]


def test_bigquery_takes_the_datastream_envelope_only() -> None:
    sink = {"type": "bigquery", "dataset": "d"}
    (fault,) = faults(source=SOURCE, sink=sink, envelope={"format": "opencdc"})
    assert fault.startswith("envelope.format: opencdc")


def test_a_missing_field_is_named() -> None:
    assert faults(source={"project": "p"}) == [
        "source.instance: is needed",
        "source.database: is needed",
        "source.change_stream: is needed",
    ]


def test_an_end_before_the_start_is_refused() -> None:
    (fault,) = faults(source={**SOURCE, "start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"})
    assert "before start" in fault


@pytest.mark.parametrize("workers", [0, -1, 65, 1.5, "many", True])
def test_a_number_of_workers_that_cannot_be_is_refused(workers: object) -> None:
    (fault,) = faults(source={**SOURCE, "workers": workers})
    assert fault.startswith("source.workers: ")


def test_a_name_that_is_no_identifier_never_meets_sql() -> None:
    (fault,) = faults(source={**SOURCE, "change_stream": "x) UNION SELECT"})
    assert fault.startswith("source.change_stream:")


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1s", SECOND),
        ("250ms", SECOND // 4),
        ("15m", 900 * SECOND),
        ("2h", 7200 * SECOND),
        ("0s", 0),
        (0, 0),
        ("1.5s", 3 * SECOND // 2),
    ],
)
def test_durations_are_nanoseconds(text: object, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "s", "1 week", "-1s", True])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a valid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("250MB", 250_000_000), ("10GiB", 10 * 2**30), ("64 MiB", 2**26), (7, 7), ("1KB", 1000)]
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


def test_moments_are_resolved_by_spanners_clock() -> None:
    now = parse("2026-01-01T00:00:00Z")
    assert resolve_moment("now", now) == now
    assert resolve_moment("-15m", now) == now - 900 * SECOND
    assert resolve_moment("2025-01-01T00:00:00.000000001Z", now) == parse("2025-01-01T00:00:00Z") + 1


def test_the_environment_fills_in_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source: {project: '${P_NAME}', instance: in, database: d, change_stream: S}")
    monkeypatch.setenv("P_NAME", "mine")
    assert load(path).source.project == "mine"
    monkeypatch.delenv("P_NAME")
    with pytest.raises(ConfigurationError, match="no variable P_NAME"):
        load(path)


@pytest.mark.parametrize("text", ["a: [", "just text", ""])
def test_what_is_no_configuration_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        ("hunter2: x", "mapping values are not allowed here"),
        ("*hunter2", "found undefined alias"),
        ("!hunter2 x", "could not determine a constructor for the tag"),
        ("!hunter2!x y", "found undefined tag handle"),
        ('"hunter2', "found unexpected end of stream"),
        ("@hunter2", "cannot start any token"),
        ("hunter2\x01", "special characters are not allowed"),
        ("2026-13-45", "it holds a date or a number that does not exist"),
    ],
)
def test_a_fault_of_yaml_is_told_without_what_the_environment_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str, problem: str
) -> None:
    monkeypatch.setenv("SECRET", secret)
    path = tmp_path / "c.yaml"
    path.write_text("source:\n  database_role: ${SECRET}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as raised:
        load(path)
    told = "".join(traceback.format_exception(raised.value))
    assert str(raised.value).startswith(f"{path} is not YAML")
    assert "hunter2" not in told


def test_a_fault_of_yaml_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source:\n  project: a: b\n", encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"is not YAML: line 2, column 13: mapping values are not allowed here"
    ):
        load(path)


def test_a_timestamp_without_quotes_is_told_to_get_them(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source: {project: p, instance: in, database: d, change_stream: S, start: 2026-01-01T00:00:00Z}")
    with pytest.raises(ConfigurationError, match="quotes"):
        load(path)


def test_late_records_stop_the_reader_or_become_dead_letters() -> None:
    assert validated({"source": {**SOURCE, "late_records": "dead-letter"}}).source.late_records == "dead-letter"
    assert "source.late_records" in faults(source={**SOURCE, "late_records": "drop"})[0]


@pytest.mark.parametrize(
    ("sink", "envelope", "fault"),
    [
        ({"object": "schema_table"}, "opencdc", "sink.object: schema_table needs the datastream envelope"),
        ({"arrays": "multidimensional"}, "datastream", "sink.arrays: multidimensional needs format avro"),
        ({"arrays": "nested"}, "datastream", "sink.arrays: Input should be"),
    ],
)
def test_what_only_some_files_can_look_like_is_refused_elsewhere(
    sink: dict[str, object], envelope: str, fault: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validated({"source": SOURCE, "sink": sink, "envelope": {"format": envelope}})
    assert fault in str(caught.value)


def test_files_look_like_before_unless_asked_otherwise() -> None:
    sink = validated({"source": SOURCE}).sink
    assert isinstance(sink, FilesConfig)
    assert (sink.object, sink.arrays, sink.dead_letters) == ("table", "json", "./dead-letters")
