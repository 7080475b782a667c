"""Probes of change streams, against a scripted server of both partition modes: what they say is what it does."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from connector.config import SourceConfig
from connector.core.dialects import DIALECTS
from connector.core.timestamps import SECOND
from emulator import Scenario, ScriptedServer
from emulator.scenario.placements import DEFAULT
from emulator.scenario.scenario import steady
from emulator.scripted.row_types import read_function
from emulator.workload.tables import Dialect
from spark_sink.self_test.probes import change_stream, open_questions, placements
from spark_sink.self_test.probes.change_stream import (
    Asking,
    HeldQuery,
    ProbedRange,
    bounded_queries,
    heartbeats,
    refusals,
)
from spark_sink.self_test.report import Observation, SelfTestVerdict
from tests.connector.spanner.omni.served import Authority, mutual, source_of
from tests.connector.spanner.snapshot import scripted
from tests.emulator.subjects import sample_of

Mode = Literal["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"]
LATE = "a query that ends in two hours ({})"
NAMES = {"googlesql": "GOOGLE_STANDARD_SQL", "postgresql": "POSTGRESQL"}


@contextmanager
def served(
    scenario: Scenario, edition: str, begins: int, folder: Path
) -> Iterator[tuple[ScriptedServer, SourceConfig]]:
    """A server of an edition, and the source that it is."""
    if edition == "cloud":
        with ScriptedServer.started(scenario, begins=begins) as server:
            yield server, scripted.source_of(server)
        return
    named = replace(scenario, project="default", instance="default")
    authority = Authority.named(folder, "authority")
    of_clients = "certificates" in edition
    credentials, options = None, {}
    if "plain" not in edition:
        credentials = authority.credentials(authority.issue("server"), of_clients=of_clients)
        tls = mutual(authority, authority.issue("client")) if of_clients else {"ca": str(authority.ca)}
        options = {"tls": tls}
    with ScriptedServer.started(named, begins=begins, credentials=credentials) as server:
        yield server, source_of(server, start="now", end=None, **options)


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    ("dialect", "mode", "edition"),
    [
        ("googlesql", "IMMUTABLE_KEY_RANGE", "cloud"),
        ("postgresql", "MUTABLE_KEY_RANGE", "cloud"),
        ("googlesql", "MUTABLE_KEY_RANGE", "omni in plain text"),
        ("postgresql", "IMMUTABLE_KEY_RANGE", "omni with TLS"),
        ("postgresql", "MUTABLE_KEY_RANGE", "omni with certificates of clients"),
    ],
)
def test_what_a_scripted_server_does_is_seen(
    dialect: Dialect, mode: Mode, edition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_stream, "HEARTBEAT", SECOND // 2)
    now = time.time_ns()
    scenario = Scenario.generate(3, origin=now - 20 * SECOND, seconds=15, dialect=dialect, mode=mode, churn=3)
    history = scenario.history
    with served(scenario, edition, now, tmp_path) as (server, source):
        asking = Asking(source, DIALECTS[NAMES[dialect]], mode)
        commits = sorted(record.commit_timestamp for record in history.in_commit_order())
        range_ = ProbedRange(history.origin, history.origin, history.horizon, commits[len(commits) // 2])
        held = HeldQuery(asking, now)
        with held.held():
            seen = asyncio.run(bounded_queries(asking, range_))
            for seconds in (2.0, 15.0, 60.0):  # a busy machine may need long for two
                monkeypatch.setattr(change_stream, "WATCHED", seconds)
                beats = asyncio.run(heartbeats(asking, server.now))
                if "apart" in beats.detail:
                    break
            seen.append(beats)
            seen += asyncio.run(refusals(asking, range_, now))
            seen += asyncio.run(open_questions.of_queries(asking, server.now))
            seen.append(asyncio.run(open_questions.after_splits(asking, range_, history.origin)))
        seen.append(held.observation())
    found = {one.about: one for one in seen}
    assert found[f"both bounds of a query are inclusive ({mode})"].verdict is SelfTestVerdict.CONFIRMED, found
    assert "OK" in found[f"the initial query ({mode})"].detail
    assert found["a start in an hour"].detail.startswith("OUT_OF_RANGE: ")
    assert found["an unknown partition token"].detail.startswith("INVALID_ARGUMENT: ")
    assert "s apart" in found[f"heartbeats asked each 0.5 s ({mode})"].detail, found
    assert found[f"a heartbeat of 100 ms ({mode})"].detail.startswith("accepted: "), found
    assert found[f"a read that is directed to READ_ONLY replicas ({mode})"].detail.startswith("accepted: "), found
    assert " partitions start, " in found[f"after AddSplitPoints ({mode})"].detail
    late = [one.detail for one in seen if one.about in (f"a query without an end ({mode})", LATE.format(mode))]
    assert len(late) == (2 if mode == "MUTABLE_KEY_RANGE" else 0)
    assert all(detail.startswith("INVALID_ARGUMENT: ") for detail in late), late
    assert found["a silent query whose connection is pinged"].verdict is not SelfTestVerdict.CONFIRMED


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_placements_and_the_functions_that_read_them_are_listed(dialect: Dialect) -> None:
    now = time.time_ns()
    scenario = Scenario.generate(
        3, origin=now - 20 * SECOND, seconds=15, dialect=dialect, mode="MUTABLE_KEY_RANGE", placements=2
    )
    with ScriptedServer.started(scenario, begins=now) as server:
        sample = sample_of(server)
        found = {one.about: one.detail for one in placements.listed(sample.database, [sample.change_stream], now)}
    functions = found["the read functions of INFORMATION_SCHEMA"].split("; ")
    assert len(functions) >= 3
    assert all(sample.change_stream.lower() in one.lower() for one in functions)
    assert found["the read functions of INFORMATION_SCHEMA as of some seconds ago"] == "; ".join(functions)
    assert len(found["the placements of INFORMATION_SCHEMA"].split("; ")) >= 2


def asked_of_functions(scenario: Scenario, now: int) -> list[Observation]:
    with ScriptedServer.started(scenario, begins=now) as server:
        asking = Asking(scripted.source_of(server), DIALECTS[NAMES[scenario.dialect]], scenario.mode)
        return asyncio.run(placements.functions(asking, now))


@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_the_function_of_each_placement_is_asked_and_its_answer_is_printed_word_for_word(dialect: Dialect) -> None:
    now = time.time_ns()
    scenario = steady(
        3,
        origin=now - 20 * SECOND,
        seconds=15,
        partitions=4,
        records_per_second_per_partition=1,
        dialect=dialect,
        mode="MUTABLE_KEY_RANGE",
        placements=["europe"],
    )
    of_default, of_europe = (
        read_function(dialect, "MUTABLE_KEY_RANGE", scenario.change_stream, name) for name in (DEFAULT, "europe")
    )
    found = {one.about: one.detail for one in asked_of_functions(scenario, now)}
    for name, function in ((DEFAULT, of_default), ("europe", of_europe)):
        first = found.pop(f"the initial query of placement {name}, by {function}")
        assert "PartitionStart" in first
        assert first.endswith("; OK")
        assert found.pop(f"a partition of placement {name}, by {function}").endswith("; OK")
    stranger = found.pop(f"a partition of placement {DEFAULT}, by {of_europe}")
    assert stranger.startswith("no records; INVALID_ARGUMENT: Partition token ")
    assert stranger.endswith(" does not belong to the placement TVF")
    assert not found


def test_a_stream_without_functions_of_placements_is_one_line() -> None:
    now = time.time_ns()
    scenario = Scenario.generate(3, origin=now - 20 * SECOND, seconds=15, dialect="googlesql", mode="MUTABLE_KEY_RANGE")
    (found,) = asked_of_functions(replace(scenario, placements=None), now)
    assert found == placements.no_functions("the change stream has none: INFORMATION_SCHEMA lists no placement's")
    assert found.verdict is SelfTestVerdict.NOT_PROBED
