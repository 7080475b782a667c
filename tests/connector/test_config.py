"""The configuration: every error at once, each naming its field."""

import re
import traceback
from pathlib import Path

import pytest

from connector.config.backfill_rules import BackfillRules
from connector.config.loading import load, validated
from connector.config.values import parse_duration, parse_size, resolve_timestamp
from connector.core.timestamps import SECOND, parse
from connector.errors import ConfigurationError
from spark_sink.sinks.bigquery.config import BigQueryConfig
from spark_sink.sinks.files.config import FilesConfig

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "Everything"}


def errors(**sections: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        validated(sections)
    return caught.value.errors


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


def test_the_emulator_is_the_configured_one_else_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    assert validated({"source": SOURCE}).source.emulator_host is None
    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "localhost:1")
    assert validated({"source": SOURCE}).source.emulator_host == "localhost:1"
    assert validated({"source": {**SOURCE, "emulator_host": "localhost:2"}}).source.emulator_host == "localhost:2"


def test_sealing_and_the_sink_keep_the_pace_of_a_heartbeat_below_a_second_unless_they_have_their_own() -> None:
    def pace(**sections: object) -> tuple[int, int]:
        config = validated({"source": {**SOURCE, "heartbeat": "100ms"}, **sections})
        return config.spool.seal_interval, config.spark.trigger_interval

    assert pace() == (SECOND // 10, SECOND // 10)
    assert pace(spool={"seal_interval": "3s"}, spark={"trigger": "2s"}) == (3 * SECOND, 2 * SECOND)
    assert pace(spool={"path": "./elsewhere"}) == (SECOND // 10, SECOND // 10)
    slow = validated({"source": {**SOURCE, "heartbeat": "10s"}})
    assert (slow.spool.seal_interval, slow.spark.trigger_interval) == (SECOND, SECOND)


def test_all_errors_are_reported_at_once_by_field() -> None:
    found = errors(source={**SOURCE, "heartbeat": "50ms", "start": "soon", "project": ""}, spool={"pth": "x"})
    assert [error.split(":")[0] for error in found] == [
        "source.project",
        "source.start",
        "source.heartbeat",
        "spool.pth",
    ]
    assert "no such option" in found[-1]


def test_files_can_be_avro() -> None:
    sink = validated({"source": SOURCE, "sink": {"format": "avro", "timestamps": "text", "schema_files": True}}).sink
    assert isinstance(sink, FilesConfig)
    assert (sink.format, sink.timestamps, sink.schema_files) == ("avro", "text", True)
    assert FilesConfig().timestamps == "micros"
    (error,) = errors(source=SOURCE, sink={"format": "parquet"})
    assert error.startswith("sink.format:")
    (error,) = errors(source=SOURCE, sink={"schema_files": True}, envelope={"format": "opencdc"})
    assert "schema_files" in error


def test_a_bigquery_sink_needs_a_dataset_and_merges_by_default() -> None:
    sink = validated({"source": SOURCE, "sink": {"type": "bigquery", "dataset": "replica_{schema}"}}).sink
    assert isinstance(sink, BigQueryConfig)
    assert (sink.mode, sink.max_staleness, sink.dead_letters) == ("merge", 3600 * SECOND, "./dead-letters/bigquery")
    assert sink.prune_by_keys
    assert errors(source=SOURCE, sink={"type": "bigquery"}) == ["sink.dataset: is needed"]
    wrong = {"type": "bigquery", "dataset": "a-b", "mode": "upsert", "path": "./events", "max_staleness": "2d"}
    found = errors(source=SOURCE, sink=wrong)
    assert [error.partition(":")[0] for error in found] == [
        "sink.dataset",
        "sink.mode",
        "sink.max_staleness",
        "sink.path",
    ]


def test_an_unknown_sink_is_rejected_with_the_list_of_registered_ones() -> None:
    assert errors(source=SOURCE, sink={"type": "kafka"}) == [
        "sink.type: 'kafka' is none of files, bigquery, spanner, tables"
    ]


def test_bigquery_takes_the_datastream_envelope_only() -> None:
    sink = {"type": "bigquery", "dataset": "d"}
    (error,) = errors(source=SOURCE, sink=sink, envelope={"format": "opencdc"})
    assert error.startswith("envelope.format: opencdc")


def test_a_missing_field_is_named() -> None:
    assert errors(source={"project": "p"}) == [
        "source.instance: is needed",
        "source.database: is needed",
        "source.change_stream: is needed",
    ]


def test_an_end_before_the_start_is_refused() -> None:
    (error,) = errors(source={**SOURCE, "start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"})
    assert "before start" in error


@pytest.mark.parametrize("workers", [0, -1, 65, 1.5, "many", True])
def test_an_invalid_number_of_workers_is_rejected(workers: object) -> None:
    (error,) = errors(source={**SOURCE, "workers": workers})
    assert error.startswith("source.workers: ")


def test_a_change_stream_name_that_is_not_an_identifier_is_rejected() -> None:
    (error,) = errors(source={**SOURCE, "change_stream": "x) UNION SELECT"})
    assert error.startswith("source.change_stream:")


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
def test_an_invalid_duration_is_rejected(text: object) -> None:
    with pytest.raises(ValueError, match="not a valid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("250MB", 250_000_000), ("10GiB", 10 * 2**30), ("64 MiB", 2**26), (7, 7), ("1KB", 1000)]
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


def test_relative_timestamps_are_resolved_by_spanners_clock() -> None:
    now = parse("2026-01-01T00:00:00Z")
    assert resolve_timestamp("now", now) == now
    assert resolve_timestamp("-15m", now) == now - 900 * SECOND
    assert resolve_timestamp("2025-01-01T00:00:00.000000001Z", now) == parse("2025-01-01T00:00:00Z") + 1


def test_the_environment_fills_in_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source: {project: '${P_NAME}', instance: in, database: d, change_stream: S}")
    monkeypatch.setenv("P_NAME", "mine")
    assert load(path).source.project == "mine"
    monkeypatch.delenv("P_NAME")
    with pytest.raises(ConfigurationError, match="no variable P_NAME"):
        load(path)


@pytest.mark.parametrize("text", ["a: [", "just text", ""])
def test_an_invalid_file_is_rejected_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a: b", "#x", "'", '"', "]", "*x", "!x", "- x", "{a: b}", "x\ny: z", "null", "${HOME}", "007"]
)
@pytest.mark.parametrize("form", ["source: {{database_role: {0}, {1}}}", "source:\n  database_role: {0}  # {0}\n  {2}"])
def test_a_variable_is_one_value_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, form: str
) -> None:
    monkeypatch.setenv("VALUE", text)
    others = [f"{name}: {value}" for name, value in SOURCE.items()]
    path = tmp_path / "c.yaml"
    path.write_text(form.format("${VALUE}", ", ".join(others), "\n  ".join(others)), encoding="utf-8")
    assert load(path).source.database_role == text


def test_a_variable_becomes_what_its_option_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("N", "3")
    monkeypatch.setenv("YES", "true")
    path = tmp_path / "c.yaml"
    source = ", ".join(f"{name}: {value}" for name, value in SOURCE.items())
    path.write_text(
        f"source: {{{source}, workers: ${{N}}, backfill: ${{YES}}}}\nstatus: {{port: ${{N}}}}", encoding="utf-8"
    )
    config = load(path)
    assert (config.source.workers, config.source.backfill, config.status.port) == (3, BackfillRules(), 3)


def test_a_variable_in_a_section_that_a_command_does_not_need_need_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    source = "source: {project: my-project, instance: my-instance, database: d, change_stream: S}"
    path.write_text(f"{source}\nsink: {{path: '${{NO_SUCH}}'}}\n")
    assert load(path, lambda _: ("source", "spool")).source.change_stream == "S"
    with pytest.raises(ConfigurationError, match=r"sink\.path: the environment has no variable NO_SUCH"):
        load(path)


def test_a_variable_that_is_missing_is_reported_with_its_option_but_not_in_a_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH", raising=False)
    path = tmp_path / "c.yaml"
    path.write_text(
        "# ${NO_SUCH}\nsource: {project: '${NO_SUCH}'}\nsink: {tables: [x, '${NO_SUCH}']}", encoding="utf-8"
    )
    with pytest.raises(ConfigurationError) as raised:
        load(path)
    assert raised.value.errors == [
        f"{path}: {option}: the environment has no variable NO_SUCH" for option in ("source.project", "sink.tables")
    ]


@pytest.mark.parametrize(
    ("node", "meant"),
    [
        ({"source": {**SOURCE, "databse_role": "x"}}, "source.database_role"),
        ({"sorce": {}}, "source"),
        ({"source": {**SOURCE, "tables": {"includes": []}}}, "source.tables.include"),
        ({"sink": {"type": "bigquery", "dataset": "d", "mod": "merge"}}, "sink.mode"),
        ({"checkpoint": "./checkpoint"}, "spark.checkpoint"),
        ({"source": {**SOURCE, "max_bytes": "1GB"}}, "spool.max_bytes"),
    ],
)
def test_an_unknown_option_is_reported_with_the_one_that_was_meant(node: dict[str, object], meant: str) -> None:
    (found,) = [error for error in errors(**{"source": SOURCE, **node}) if "no such option" in error]
    assert found.endswith(f"; did you mean {meant}?")


def test_an_option_like_no_other_comes_without_a_suggestion() -> None:
    assert errors(source=SOURCE, spool={"zzzz": 1}) == ["spool.zzzz: there is no such option"]


def test_sparks_configuration_takes_numbers_and_booleans() -> None:
    given = {"a": True, "b": 4, "c": 0.5, "d": "1g"}
    assert validated({"source": SOURCE, "spark": {"config": given}}).spark.config == {
        "a": "true", "b": "4", "c": "0.5", "d": "1g",
    }  # fmt: skip
    (error,) = errors(source=SOURCE, spark={"config": {"a": None}})
    assert error.startswith("spark.config.a: ")


@pytest.mark.parametrize(
    ("text", "problem"),
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
def test_a_yaml_error_does_not_show_values(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(f"source:\n  database_role: {text}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=re.escape(problem)) as raised:
        load(path)
    shown = "".join(traceback.format_exception(raised.value))
    assert str(raised.value).startswith(f"{path} is not YAML")
    assert "hunter2" not in shown


def test_a_yaml_error_has_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source:\n  project: a: b\n", encoding="utf-8")
    with pytest.raises(
        ConfigurationError, match=r"is not YAML: line 2, column 13: mapping values are not allowed here"
    ):
        load(path)


def test_a_timestamp_without_quotes_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("source: {project: p, instance: in, database: d, change_stream: S, start: 2026-01-01T00:00:00Z}")
    with pytest.raises(ConfigurationError, match="quotes"):
        load(path)


def test_late_records_stop_the_reader_or_become_dead_letters() -> None:
    assert validated({"source": {**SOURCE, "late_records": "dead-letter"}}).source.late_records == "dead-letter"
    assert "source.late_records" in errors(source={**SOURCE, "late_records": "drop"})[0]


@pytest.mark.parametrize(
    ("sink", "envelope", "error"),
    [
        ({"object": "schema_table"}, "opencdc", "sink.object: schema_table needs the datastream envelope"),
        ({"arrays": "multidimensional"}, "datastream", "sink.arrays: multidimensional needs format avro"),
        ({"arrays": "nested"}, "datastream", "sink.arrays: Input should be"),
    ],
)
def test_an_option_that_does_not_fit_the_envelope_or_format_is_rejected(
    sink: dict[str, object], envelope: str, error: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validated({"source": SOURCE, "sink": sink, "envelope": {"format": envelope}})
    assert error in str(caught.value)


def test_options_of_files_have_the_defaults_of_the_contract() -> None:
    sink = validated({"source": SOURCE}).sink
    assert isinstance(sink, FilesConfig)
    assert (sink.object, sink.arrays, sink.dead_letters) == ("table", "json", "./dead-letters/files")


def test_a_tilde_is_the_home_folder_in_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    config = validated(
        {
            "source": SOURCE,
            "spool": {"path": "~/spool"},
            "sink": {"path": "~/events", "dead_letters": "~/letters"},
            "spark": {"checkpoint": "~/checkpoint"},
        }
    )
    assert isinstance(config.sink, FilesConfig)
    found = (config.spool.path, config.sink.path, config.sink.dead_letters, config.spark.checkpoint)
    assert found == ("/home/ada/spool", "/home/ada/events", "/home/ada/letters/files", "/home/ada/checkpoint")
    tables = validated({"source": SOURCE, "sink": {"type": "tables", "path": "~/lake"}})
    assert tables.sink.model_dump()["path"] == "/home/ada/lake"


def test_a_home_folder_that_does_not_exist_is_rejected() -> None:
    (error,) = errors(source=SOURCE, spool={"path": "~nobody-of-this-name/spool"})
    assert "spool.path: '~nobody-of-this-name/spool': there is no such home folder" in error


@pytest.mark.parametrize("text", ["spool: {}\nspool: {}", "spool:\n  path: a\n  path: secret"])
def test_an_option_that_is_given_twice_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"line [23], column [13]: an option is given twice") as caught:
        load(path)
    assert "secret" not in str(caught.value)


def test_a_backfill_is_a_switch_or_its_rules() -> None:
    def backfill(value: object) -> object:
        return validated({"source": {**SOURCE, "backfill": value}}).source.backfill

    for off in (False, None, "no"):
        assert backfill(off) is None
    switches: tuple[object, ...] = (True, "true", {})
    for on in switches:
        assert backfill(on) == BackfillRules()
    rules = {"exclude": ["Log*"], "where": {"Singers": "Name = 'a)' AND (Id > 1)"}, "max_tasks": 2}
    assert backfill(rules) == BackfillRules(("Log*",), {"Singers": "Name = 'a)' AND (Id > 1)"}, 2)


def test_a_condition_of_a_backfill_that_cannot_stand_between_parentheses_is_refused() -> None:
    def fault(where: object) -> str:
        (found,) = errors(source={**SOURCE, "backfill": {"where": {"A": where}}})
        return found

    assert fault("a = 1) OR (b = 1") == "source.backfill: where.A: its parentheses do not match"
    assert fault("where a = 1") == "source.backfill: where.A: write the condition without WHERE"
    assert fault(" ") == "source.backfill: where.A: the condition is empty: omit it to deliver every row"
    assert fault("a; b") == "source.backfill: where.A: a condition has no semicolon"
    assert errors(source={**SOURCE, "backfill": {"max_tasks": 0}}) == [
        "source.backfill.max_tasks: Input should be greater than or equal to 1"
    ]
    assert errors(source={**SOURCE, "backfill": "often"}) == [
        "source.backfill: write true, false, or its options exclude, where, max_tasks and new_tables"
    ]
    on_executors = validated({"source": {**SOURCE, "backfill": {"new_tables": True}, "reader": "executors"}})
    assert on_executors.source.backfill is not None
    assert on_executors.source.backfill.new_tables


def test_columns_are_patterns_over_columns_and_the_salt_is_in_no_text_of_them() -> None:
    salt = "0123456789abcdef"
    columns = {"exclude": ["Users.Secret", "*.Ssn"], "hash": {"Users.Email": {"algorithm": "sha256", "salt": salt}}}
    config = validated({"source": {**SOURCE, "columns": columns}})
    assert config.source.columns.rules is not None
    assert config.source.columns.rules.hash[0].salt == salt
    texts = [repr(config), str(config.source), config.source.model_dump_json(), repr(config.source.address)]
    assert not [text for text in texts if salt in text]
    assert validated({"source": SOURCE}).source.columns.rules is None
    assert validated({"source": SOURCE}).source.rules_fingerprint is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"exclude": ["Email"]}, "source.columns.exclude: 'Email' names no column: write Table.Column"),
        ({"hash": {"A.b": {"algorithm": "md5", "salt": "0123456789abcdef"}}}, "Input should be 'sha256'"),
        ({"hash": {"A.b": {"salt": "hunter2"}}}, "source.columns.hash.A.b.salt: is shorter than 16 characters"),
        ({"hash": {"A.b": {}}}, "source.columns.hash.A.b.salt: is needed"),
        ({"hash": {"A.b": "hunter2"}}, "source.columns.hash.A.b: write its options below it"),
        ({"excluded": ["A.b"]}, "source.columns.excluded: there is no such option"),
    ],
)
def test_rules_for_columns_that_are_not_valid_are_refused_without_the_salt(
    columns: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validated({"source": {**SOURCE, "columns": columns}})
    (error,) = caught.value.errors
    assert message in error
    everything = "".join(traceback.format_exception(caught.value))  # as --verbose prints it
    assert "hunter2" not in everything
    assert "0123456789abcdef" not in everything


def test_tables_are_not_created_as_the_source_has_them_where_columns_are_excluded() -> None:
    (error,) = errors(
        source={**SOURCE, "columns": {"exclude": ["A.b"]}},
        sink={"type": "spanner", "database": "other", "create_tables": True},
    )
    assert error.startswith("sink.create_tables: ")


@pytest.mark.parametrize(
    ("labels", "why"),
    [({"Team": "a"}, "Team: 'a' is not a valid label"), ({"team": "A b"}, "not a valid label"),
     ({"a-b": "c"}, "not a valid label"), ({f"l{n}": "" for n in range(65)}, "at most 64 labels")],
)  # fmt: skip
def test_labels_are_those_of_google_cloud(labels: dict[str, str], why: str) -> None:
    source = {"project": "p", "instance": "in", "database": "d", "change_stream": "s"}
    assert validated({"source": {**source, "labels": {"team": "sales-eu", "env": ""}}}).source.labels["env"] == ""
    with pytest.raises(ConfigurationError, match=why):
        validated({"source": {**source, "labels": labels}})
