"""Probes of change streams, against a scripted server of both partition modes: what they say is what it does."""

import asyncio
import time
from typing import Literal

import pytest

from connector.config import SourceConfig
from connector.core.dialects import DIALECTS
from connector.core.timestamps import SECOND
from emulator import Scenario, ScriptedServer
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
from spark_sink.self_test.report import SelfTestVerdict
from tests.emulator.subjects import sample_of

Mode = Literal["IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"]
LATE = "a query that ends in two hours ({})"
NAMES = {"googlesql": "GOOGLE_STANDARD_SQL", "postgresql": "POSTGRESQL"}


@pytest.mark.parametrize(
    ("dialect", "mode"), [("googlesql", "IMMUTABLE_KEY_RANGE"), ("postgresql", "MUTABLE_KEY_RANGE")]
)
def test_what_a_scripted_server_does_is_seen(dialect: Dialect, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "HEARTBEAT", SECOND // 2)
    now = time.time_ns()
    scenario = Scenario.generate(3, origin=now - 20 * SECOND, seconds=15, dialect=dialect, mode=mode, churn=3)
    history = scenario.history
    with ScriptedServer.started(scenario, begins=now) as server:
        sample = sample_of(server)
        source = SourceConfig(
            project=sample.project,
            instance=sample.instance,
            database=sample.database_id,
            change_stream=sample.change_stream,
            emulator_host=sample.host,
        )
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
        found = {one.about: one.detail for one in placements.listed(sample.database, [sample.change_stream])}
    functions = found["the read functions of INFORMATION_SCHEMA"].split("; ")
    assert len(functions) >= 3
    assert all(sample.change_stream.lower() in one.lower() for one in functions)
    assert len(found["the placements of INFORMATION_SCHEMA"].split("; ")) >= 2
