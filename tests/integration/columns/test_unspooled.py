"""The commands without a spool leave out the columns that their options exclude."""

import asyncio
import io
import json
import time

from connector.conduit.settings import configuration_of
from connector.config.sections import EnvelopeConfig
from connector.core.timestamps import SECOND, format_rfc3339
from connector.reader.stopping import StopRequest
from connector.reader.tail import tail
from emulator import ScriptedServer
from emulator.scenario.scenario import Scenario, steady
from tests.integration.commands import run

NAMES = ("project", "instance", "database", "change_stream")
EXCLUDED = ("Accounts.Owner", "*.active")


def a_scenario() -> Scenario:
    origin = time.time_ns() - 20 * SECOND
    return steady(3, origin=origin, seconds=5, partitions=2, records_per_second_per_partition=5.0)


def assert_excluded(output: bytes, scenario: Scenario) -> None:
    rows = [json.loads(line)["payload"] for line in output.splitlines()]
    assert len(rows) == len(scenario.committed)
    assert set[str]().union(*rows) == {"AccountId", "Balance"}


def test_columns_that_the_options_of_tail_exclude_are_in_no_event() -> None:
    scenario = a_scenario()
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        named = [f"--{name.replace('_', '-')}={getattr(scenario, name)}" for name in NAMES]
        start, end = format_rfc3339(scenario.history.origin), format_rfc3339(scenario.history.horizon)
        excluded = [f"--exclude-column={pattern}" for pattern in EXCLUDED]
        done = run("tail", *named, "--start", start, "--end", end, *excluded, host=server.host)
        refused = run("tail", *named, "--start", start, "--exclude-column", "*.AccountId", host=server.host)
    assert done.code == 0, done.err
    assert_excluded(done.out, scenario)
    assert (refused.code, refused.out) == (2, b"")
    assert "matches Accounts.AccountId, a column of the key" in refused.complaint


def test_columns_that_the_settings_of_a_pipeline_exclude_are_in_no_record() -> None:
    out, scenario = io.BytesIO(), a_scenario()
    with ScriptedServer.started(scenario, begins=time.time_ns()) as server:
        named = {name: getattr(scenario, name) for name in NAMES}
        start = format_rfc3339(scenario.history.origin)
        settings = {**named, "start": start, "emulator_host": server.host, "columns.exclude": ", ".join(EXCLUDED)}
        source = configuration_of(settings).source
        source = source.model_copy(update={"end": format_rfc3339(scenario.history.horizon)})
        stop = StopRequest(drain_timeout=60 * SECOND)
        asyncio.run(asyncio.wait_for(tail(source, EnvelopeConfig(), out, stop), 300))
    assert_excluded(out.getvalue(), scenario)
