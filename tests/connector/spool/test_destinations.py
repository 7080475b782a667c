"""The destinations of a spool's sinks are kept with their consumers."""

from pathlib import Path

import pytest

from connector.config import Config, validated
from connector.config.destination import check_kept, destination_of
from connector.errors import ConfigurationError
from connector.spool import consumers
from connector.spool.destinations import check_not_a_sink, keep_destination
from connector.spool.reading import Spool

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
DATASTREAM: dict[str, object] = {"format": "datastream"}
AT = "2026-03-01T10:00:00.000000Z/writer"


def config(folder: Path, envelope: dict[str, object] = DATASTREAM, **sink: object) -> Config:
    options = {"path": str(folder / "out"), **sink}
    if options.get("type") == "bigquery":
        del options["path"]
    return validated(
        {"source": SOURCE, "spool": {"path": str(folder / "spool")}, "sink": options, "envelope": envelope}
    )


def start(started: Config, *, delivered: bool) -> None:
    spool, name = Spool.at(started.spool.path), started.sink.name
    keep_destination(spool, name, destination_of(started))
    consumers.record(spool, name, 3 if delivered else 0, now=0, at=AT if delivered else "")


OTHERS: dict[str, dict[str, object]] = {
    "sink.path": {"path": "/elsewhere"},
    "sink.format": {"format": "avro"},
    "sink.object": {"object": "schema_table"},
    "envelope.format": {"envelope": {"format": "opencdc"}},
    "sink.type": {"type": "bigquery", "name": "files2", "dataset": "d"},
}


@pytest.mark.parametrize("option", OTHERS)
def test_another_destination_over_a_spool_that_a_sink_has_passed_is_refused_with_the_ways_to_continue(
    tmp_path: Path, option: str
) -> None:
    start(config(tmp_path, name=str(OTHERS[option].get("name", "files"))), delivered=True)
    with pytest.raises(ConfigurationError) as refused:
        check_kept(config(tmp_path, **OTHERS[option]))  # type: ignore[arg-type]
    line = str(refused.value)
    assert line.startswith(f"{option}: sink files")
    assert "To continue, set " + option in line
    assert "sink.name of its own" in line
    assert f"spanner-cdc spool {tmp_path / 'spool'} --forget files" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "other", [{"rotate_bytes": "1MB"}, {"rotate_interval": 0}, {"gzip": True}, {"schema_files": True}]
)
def test_options_that_leave_the_history_whole_may_change(tmp_path: Path, other: dict[str, object]) -> None:
    start(config(tmp_path), delivered=True)
    check_kept(config(tmp_path, **other))  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["project", "dataset", "prefix"])
def test_other_tables_of_bigquery_are_another_destination(tmp_path: Path, option: str) -> None:
    options = {"type": "bigquery", "project": "one", "dataset": "one", "prefix": "one", "mode": "merge"}
    start(config(tmp_path, **options), delivered=True)  # type: ignore[arg-type]
    check_kept(config(tmp_path, **{**options, "max_staleness": "1s"}))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=rf"sink.{option}: sink bigquery"):
        check_kept(config(tmp_path, **{**options, option: "two"}))  # type: ignore[arg-type]


def test_a_destination_may_be_corrected_before_anything_is_delivered(tmp_path: Path) -> None:
    start(config(tmp_path), delivered=False)
    start(config(tmp_path, path="/elsewhere"), delivered=True)
    with pytest.raises(ConfigurationError, match=r"sink.path"):
        check_kept(config(tmp_path))


def test_a_spool_of_an_older_program_has_its_destination_recorded_at_the_next_start(tmp_path: Path) -> None:
    consumers.record(Spool.at(tmp_path / "spool"), "files", 3, now=0, at=AT)
    start(config(tmp_path), delivered=True)
    with pytest.raises(ConfigurationError, match=r"sink.path"):
        check_kept(config(tmp_path, path="/elsewhere"))


def test_a_sink_that_is_forgotten_may_deliver_elsewhere(tmp_path: Path) -> None:
    start(config(tmp_path), delivered=True)
    consumers.forget(Spool.at(tmp_path / "spool"), "files")
    check_kept(config(tmp_path, path="/elsewhere"))


def test_two_sinks_of_a_spool_deliver_to_two_destinations_and_not_to_one(tmp_path: Path) -> None:
    start(config(tmp_path), delivered=True)
    check_kept(config(tmp_path, name="archive", path="/elsewhere"))
    with pytest.raises(ConfigurationError, match=r"sink files .* delivers to the same destination as archive"):
        check_kept(config(tmp_path, name="archive"))


def test_a_query_and_a_sink_do_not_share_a_name(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path / "spool")
    consumers.record(spool, "reports", 3, now=0, at=AT)
    with pytest.raises(ConfigurationError, match=r"reports is a consumer .* not a sink"):
        check_kept(config(tmp_path, name="reports"))
    start(config(tmp_path, name="archive"), delivered=True)
    with pytest.raises(ConfigurationError, match="the name of a sink of this spool"):
        check_not_a_sink(spool, "archive")


@pytest.mark.parametrize("name", ["bigquery", "default", "a.b", "../a", ""])
def test_a_sinks_name_is_checked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sink.*name"):
        config(tmp_path, name=name)


def test_a_sink_is_named_by_its_type_and_its_dead_letters_are_in_a_folder_of_its_name(tmp_path: Path) -> None:
    assert (config(tmp_path).sink.name, config(tmp_path).sink.dead_letters) == ("files", "./dead-letters/files")
    named = config(tmp_path, name="archive", dead_letters="gs://bucket/dead/").sink
    assert (named.name, named.dead_letters) == ("archive", "gs://bucket/dead/archive")
