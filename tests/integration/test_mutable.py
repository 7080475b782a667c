"""A stream of partition mode MUTABLE_KEY_RANGE gives exactly what a stream of the other mode would give."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import CommittedMod, SampleDatabase, Scenario, ScriptedServer
from emulator.scenario.history import History, Partition
from emulator.workload.tables import Dialect
from tests.emulator.subjects import sample_of
from tests.integration.commands import configuration, manifests, options, run, tail
from tests.integration.contract import Event, assert_in_commit_order, assert_valid
from tests.integration.delivered import Mod, assert_delivered, in_unified_types, of_events, rows

CAPTURE = "NEW_ROW_AND_OLD_VALUES"
dialects = pytest.mark.parametrize("dialect", get_args(Dialect))


def mutable(dialect: Dialect, *, origin: int, seconds: float) -> Scenario:
    scenario = Scenario.generate(
        7,
        origin=origin,
        seconds=seconds,
        dialect=dialect,
        mode="MUTABLE_KEY_RANGE",
        value_capture_type=CAPTURE,
        churn=30,
    )
    assert all(scenario.churn[kind] > 3 for kind in ("starts", "ends", "moves"))
    return scenario


def in_the_other_mode(scenario: Scenario) -> Scenario:
    """Returns the same records on the only partition of a stream of partition mode IMMUTABLE_KEY_RANGE."""
    history = scenario.history
    one = Partition("one", history.origin, events=[*history.in_commit_order()])
    other = History("IMMUTABLE_KEY_RANGE", history.origin, history.horizon, {one.token: one})
    return replace(scenario, mode=other.mode, history=other)


@contextmanager
def served(scenario: Scenario) -> Iterator[SampleDatabase]:
    """Serves the scenario in real time; yields a sample database that names it."""
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        yield sample_of(server)


def bounds(scenario: Scenario) -> dict[str, str]:
    return {"start": format_rfc3339(scenario.history.origin), "end": format_rfc3339(scenario.history.horizon)}


def events_of(scenario: Scenario) -> list[Event]:
    """Returns what `tail` prints of a whole scenario, without the read timestamps."""
    with served(scenario) as sample:
        done = tail(sample, *(part for name, value in bounds(scenario).items() for part in (f"--{name}", value)))
    assert done.code == 0, done.err
    for event in done.events:
        assert_valid(event, sample)
    assert_in_commit_order(done.events)
    assert b"KEY_RANGE" not in done.out
    return [{name: value for name, value in event.items() if name != "read_timestamp"} for event in done.events]


def in_order(mods: Iterable[CommittedMod], sample: SampleDatabase) -> list[Mod]:
    return [one for mod in mods for one in in_unified_types([mod], sample, CAPTURE)]


@pytest.mark.long(but=1)
@dialects
def test_tail_prints_what_was_committed_in_commit_order_as_for_the_other_mode(dialect: Dialect) -> None:
    scenario = mutable(dialect, origin=time.time_ns() - 90 * SECOND, seconds=60)
    events = events_of(scenario)
    with served(scenario) as sample:
        assert [mod for event in events for mod in of_events([event])] == in_order(scenario.committed, sample)
    assert events == events_of(in_the_other_mode(scenario))


def parsed(row: Event) -> Event:
    """Returns a row without the epoch and with its JSON parsed, because its text depends on the mode."""
    content = {name: json.loads(row[name] or "null") for name in ("payload", "before")}
    return {**row, **content, "epoch": None}


@pytest.mark.long(but=1)
@dialects
def test_a_spool_of_it_is_a_spool_of_the_other_mode(dialect: Dialect, tmp_path: Path) -> None:
    scenario = mutable(dialect, origin=time.time_ns() - 90 * SECOND, seconds=60)
    found = []
    for each in (scenario, in_the_other_mode(scenario)):
        folder = tmp_path / each.mode
        folder.mkdir()
        with served(each) as sample:
            config = configuration(folder, sample, source=bounds(each))
            assert run("check", config).code == 0
            assert run("read", config).code == 0
        kept = assert_delivered(folder / "spool", scenario.committed, value_capture_type=CAPTURE)
        assert b"KEY_RANGE" not in b"".join(path.read_bytes() for path in folder.rglob("spool/**/*.json"))
        found.append([parsed(row) for manifest in kept for row in rows(folder / "spool", manifest)])
    assert found[0] == found[1]


@pytest.mark.long(but=1)
@dialects
def test_read_follows_it_while_keys_move(dialect: Dialect, tmp_path: Path) -> None:
    scenario = mutable(dialect, origin=time.time_ns(), seconds=7)
    with served(scenario) as sample:
        config = configuration(tmp_path, sample, source=bounds(scenario), spool={"seal_interval": "100ms"})
        assert run("read", config).code == 0
    assert_delivered(tmp_path / "spool", scenario.committed, value_capture_type=CAPTURE)
    assert len(manifests(tmp_path / "spool")) > 5


@dialects
def test_discover_reports_the_partition_mode(dialect: Dialect) -> None:
    with served(mutable(dialect, origin=time.time_ns(), seconds=1)) as sample:
        (stream,) = json.loads(run("discover", *options(sample), "--json").out)
        assert stream["partition_mode"] == "MUTABLE_KEY_RANGE"
        assert b"MUTABLE_KEY_RANGE" in run("discover", *options(sample)).out
