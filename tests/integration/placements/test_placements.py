"""A stream with a read function for each placement: what is printed and sealed, and what is refused."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from typing import get_args

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from connector.spool.manifest import FUNCTIONS_VERSION
from emulator import SampleDatabase, Scenario, ScriptedServer
from emulator.scenario.history import Change
from emulator.scenario.placements import DEFAULT, Placements
from emulator.workload.tables import Dialect
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration, manifests, options, reading, run, tail
from tests.integration.contract import Event
from tests.integration.delivered import assert_delivered, in_unified_types, of_events, rows
from tests.spark_sink.reading.windows.windows import brief_placement

CAPTURE = "NEW_ROW_AND_OLD_VALUES"
dialects = pytest.mark.parametrize("dialect", get_args(Dialect))


def placed(dialect: Dialect, *, seed: int = 8, seconds: float = 60, passed: float = 90) -> Scenario:
    """Returns a scenario of which some seconds have passed; some of its placements are added, and left, meanwhile."""
    origin = time.time_ns() - int(passed * SECOND)
    scenario = Scenario.generate(
        seed,
        origin=origin,
        seconds=seconds,
        dialect=dialect,
        mode="MUTABLE_KEY_RANGE",
        value_capture_type=CAPTURE,
        churn=30,
        placements=4,
    )
    assert any(one.created > origin for one in places_of(scenario).each)
    assert any(one.emptied for one in places_of(scenario).each)
    return scenario


def places_of(scenario: Scenario) -> Placements:
    assert scenario.placements is not None
    return scenario.placements


@contextmanager
def served(scenario: Scenario) -> Iterator[SampleDatabase]:
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        yield sample_of(server)


def config(folder: Path, sample: SampleDatabase, scenario: Scenario, **source: object) -> Path:
    history = scenario.history
    folder.mkdir(exist_ok=True)
    bounds = {"start": format_rfc3339(history.origin), "end": format_rfc3339(history.horizon)}
    return configuration(folder, sample, source={**bounds, **source})


def transactions(events: list[Event]) -> set[str]:
    return {str(event["source_metadata"]["server_transaction_id"]) for event in events}


@pytest.mark.long(but=1)
@dialects
def test_tail_prints_all_placements_in_commit_order(dialect: Dialect) -> None:
    scenario = placed(dialect)
    history = scenario.history
    with served(scenario) as sample:
        done = tail(sample, "--start", format_rfc3339(history.origin), "--end", format_rfc3339(history.horizon))
        assert done.code == 0, done.err
        committed = [one for mod in scenario.committed for one in in_unified_types([mod], sample, CAPTURE)]
    assert [mod for event in done.events for mod in of_events([event])] == committed


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("dialect", "workers"), [("googlesql", 1), ("postgresql", 2)])
def test_a_killed_daemon_continues_with_every_placement(dialect: Dialect, workers: int, tmp_path: Path) -> None:
    scenario = placed(dialect, seconds=75, passed=60)
    with served(scenario) as sample:
        path = config(tmp_path, sample, scenario, workers=workers)
        with reading(path) as daemon:
            daemon.until(lambda: len(manifests(tmp_path / "spool")) > 1, "seals")
            daemon.stop(SIGKILL)
        done = run("read", path)
    assert done.code == 0, done.err
    assert " ERROR " not in done.err
    assert_delivered(tmp_path / "spool", scenario.committed, value_capture_type=CAPTURE)
    assert {one.version for one in manifests(tmp_path / "spool")} == {FUNCTIONS_VERSION}


@pytest.mark.long(but=1)
@dialects
def test_some_placements_are_read_and_the_spool_says_which(dialect: Dialect, tmp_path: Path) -> None:
    scenario = placed(dialect)
    one = next(place.name for place in places_of(scenario).each if place.name != DEFAULT and place.emptied is None)
    with served(scenario) as sample:
        path = config(tmp_path, sample, scenario, placements=[one], late_records="stop")
        done = run("read", path)
        assert done.code == 0, done.err
        shown = run("spool", tmp_path / "spool").out.decode()
        again = run("check", config(tmp_path, sample, scenario))
        other = run("read", config(tmp_path, sample, scenario, placements=[DEFAULT]))
        unknown = run("check", config(tmp_path / "new", sample, scenario, placements=["mars"]))
    partitions = scenario.history.partitions.values()
    records = [(event, each.placement) for each in partitions for event in each.events if isinstance(event, Change)]
    found = [row for manifest in manifests(tmp_path / "spool") for row in rows(tmp_path / "spool", manifest)]
    assert transactions(found) == {event.server_transaction_id for event, place in records if place == one}
    assert len(found) == sum(len(event.mods) for event, place in records if place == one)
    assert f"  placements: {one}\n" in shown
    assert again.code == 2
    assert f"is of the placements {one}, not of all placements" in again.err + again.out.decode()
    assert other.code == 2
    assert f"is of the placements {one}, not of the placements {DEFAULT}" in other.err
    assert unknown.code == 2
    assert "there is no read function of placement 'mars'; known are: " in unknown.err + unknown.out.decode()


@pytest.mark.long
def test_rows_of_other_placements_are_not_read_by_a_backfill(tmp_path: Path) -> None:
    scenario = placed("googlesql")
    with served(scenario) as sample:
        path = configuration(tmp_path, sample, source={"placements": [DEFAULT], "backfill": True})
        for command in ("check", "read", "backfill"):
            done = run(command, path)
            assert done.code == 2, done.err
            assert "source.placements: rows of Albums, " in done.err, command
            assert "would be read in every placement: set source.backfill.where" in done.err
    assert not (tmp_path / "spool" / "backfills").exists()


def test_a_spool_of_one_function_is_not_read_on_with_several(tmp_path: Path) -> None:
    scenario = placed("googlesql")
    plain = replace(scenario, placements=None)
    with served(plain) as sample:
        history = scenario.history
        middle = format_rfc3339((history.origin + history.horizon) // 2)
        path = config(tmp_path, sample, plain, end=middle)
        assert run("read", path).code == 0
    assert {one.version for one in manifests(tmp_path / "spool")} == {1}
    with served(scenario) as sample:
        done = run("read", config(tmp_path, sample, scenario))
    assert done.code == 2
    assert "is of a change stream with one read function alone, not of all placements" in done.complaint


def test_placements_of_a_stream_without_the_option_are_refused(tmp_path: Path) -> None:
    scenario = replace(placed("googlesql"), placements=None)
    with served(scenario) as sample:
        done = run("read", config(tmp_path, sample, scenario, placements=["default"]))
    assert done.code == 2
    assert "has no option per_placement_tvf" in done.complaint


@pytest.mark.long(but=1)
@dialects
def test_discover_and_check_name_the_functions(dialect: Dialect, tmp_path: Path) -> None:
    scenario = placed(dialect)
    with served(scenario) as sample:
        checked = run("check", config(tmp_path, sample, scenario))
        shown = run("discover", *options(sample))
        described = json.loads(run("discover", *options(sample), "--json").out)
    assert checked.code == 0, checked.err
    prefix = "READ_Everything" if dialect == "googlesql" else "read_proto_bytes_Everything"
    names = sorted(one.name for one in places_of(scenario).each)
    assert sorted(described[0]["read_functions"]) == names
    assert described[0]["read_functions"][DEFAULT].lower() == f"{prefix}_{DEFAULT}".lower()
    assert f"  placement {DEFAULT}: {described[0]['read_functions'][DEFAULT]}" in shown.out.decode()


@pytest.mark.long
def test_an_audit_reads_the_placements_that_the_spool_is_of(tmp_path: Path) -> None:
    scenario = placed("googlesql", seconds=30)
    with served(scenario) as sample:
        path = config(tmp_path, sample, scenario, placements=[DEFAULT])
        assert run("read", path).code == 0
        by_file = run("audit", path)
        by_path = run("audit", tmp_path / "spool", host=sample.host)
        other = run("audit", config(tmp_path, sample, scenario))
    assert by_file.code == 0, by_file.out.decode() + by_file.err
    assert by_path.code == 0, by_path.out.decode() + by_path.err
    assert other.code == 2
    assert f"is of the placements {DEFAULT}, not of all placements" in other.err


@pytest.mark.long
def test_a_placement_that_came_and_went_while_the_daemon_was_down_is_a_gap_on_record(tmp_path: Path) -> None:
    """Nothing is read on in silence; from the gap on, everything is read."""
    scenario, gone = brief_placement(time.time_ns() - 70 * SECOND)
    origin, emptied = scenario.history.origin, scenario.emptied[gone.name]
    with ScriptedServer.started(scenario, begins=origin + 3 * SECOND, speed=0.05) as server:
        path = config(tmp_path, sample_of(server), scenario, end=format_rfc3339(origin + 2 * SECOND))
        done = run("read", path)
        assert done.code == 0, done.err
    with ScriptedServer.started(scenario, begins=emptied + SECOND) as server:
        server.engine.drop_placement(gone.name)
        path = config(tmp_path, sample_of(server), scenario)
        before = manifests(tmp_path / "spool")
        lost = run("read", path)
        assert manifests(tmp_path / "spool") == before
        command = re.search(r"spanner-cdc (spool \S+ --restart-at \S+Z)\.$", lost.complaint)
        assert command is not None, lost.complaint
        restarted = run(*command[1].split())
        assert restarted.code == 0, restarted.err
        done = run("read", path)
        assert done.code == 0, done.err
    assert lost.code == 3
    assert f"placement {gone.name} was dropped before it was read" in lost.complaint
    low, high = before[-1].watermark_high, manifests(tmp_path / "spool")[len(before)].watermark_high
    found = [row for manifest in manifests(tmp_path / "spool") for row in rows(tmp_path / "spool", manifest)]
    assert len(found) == sum(not low < mod.commit_timestamp_ns <= high for mod in scenario.committed)


@pytest.mark.long
def test_a_placement_that_was_dropped_amid_its_records_is_a_gap_on_record(tmp_path: Path) -> None:
    """Its partitions are in the spool's cut: they cannot be read on, and a later run is no different."""
    scenario, gone = brief_placement(time.time_ns() - 70 * SECOND)
    emptied = scenario.emptied[gone.name]
    middle = (gone.created + emptied) // 2
    with ScriptedServer.started(scenario, begins=middle + SECOND // 10, speed=0.05) as server:
        path = config(tmp_path, sample_of(server), scenario, end=format_rfc3339(middle))
        done = run("read", path)
        assert done.code == 0, done.err
    with ScriptedServer.started(scenario, begins=emptied + SECOND) as server:
        server.engine.drop_placement(gone.name)
        path = config(tmp_path, sample_of(server), scenario)
        for _ in range(2):
            lost = run("read", path)
            assert lost.code != 0
            assert "is gone, and not all of it was read" in lost.complaint
            assert "spanner-cdc spool SPOOL --restart-at TIMESTAMP, later than that." in lost.complaint
        restarted = run("spool", tmp_path / "spool", "--restart-at", format_rfc3339(server.now))
        assert restarted.code == 0, restarted.err
        done = run("read", path)
        assert done.code == 0, done.err
    found = [row for manifest in manifests(tmp_path / "spool") for row in rows(tmp_path / "spool", manifest)]
    assert 0 < len(found) < len(scenario.committed)
