"""`status`, `pause` and `resume` beside a running daemon and without one; nothing is lost, whatever comes between."""

import json
import time
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM

import pytest

from connector.core.health.states import SILENCE
from connector.core.timestamps import format_rfc3339
from connector.spool.lifecycle import errors_of, state_of
from connector.spool.reading import Spool
from emulator import SampleDatabase, Scenario
from tests.connector.daemon.states.histories import served
from tests.integration.commands import Background, configuration, reading, run, watermark
from tests.integration.delivered import assert_delivered


def configured(folder: Path, sample: SampleDatabase, scenario: Scenario, *, end: bool = True) -> Path:
    bounds = {"start": format_rfc3339(scenario.history.origin)}
    if end:
        bounds["end"] = format_rfc3339(scenario.history.horizon)
    return configuration(folder, sample, source=bounds)


def report(config: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("status", config, "--json").out)
    return found


def state(config: Path) -> str:
    return str(report(config)["state"]["name"])  # type: ignore[index]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", [pytest.param("IMMUTABLE_KEY_RANGE", marks=pytest.mark.slow), "MUTABLE_KEY_RANGE"])
def test_pause_resume_drain_and_kill_under_load_lose_nothing(tmp_path: Path, mode: str) -> None:
    random, spool = Random(mode), tmp_path / "spool"
    with served(40, mode) as (scenario, sample):
        config = configured(tmp_path, sample, scenario, end=False)  # no run ends before it is stopped
        daemon = Background("read", config, log=tmp_path / "0.log")
        daemon.until(lambda: watermark(spool) > 0, "an epoch")
        for number, what in enumerate(("pause", "term", "pause", "kill"), 1):
            time.sleep(random.uniform(0.1, 0.6))  # of commit time, which passes as the history is served
            if what == "pause":
                paused = run("pause", config, "--wait")
                assert b"Paused: " in paused.out, paused
                at = watermark(spool)
                assert state(config) == "Paused"
                if number == 3:  # restarted while it is paused
                    daemon.await_log("paused: nothing is read")  # it may just have been started
                    assert daemon.stop(SIGTERM).code == 0
                    assert state(config) == "Paused"
                    daemon = Background("read", config, log=tmp_path / f"{number}.log")
                    daemon.await_log("paused: nothing is read")
                assert watermark(spool) == at
                assert run("resume", config).out.startswith(b"resumed")
            elif what == "term":
                assert daemon.stop(SIGTERM).code == 0
                assert state(config) == "Not started"
                daemon = Background("read", config, log=tmp_path / f"{number}.log")
                daemon.await_log("status page")  # it handles signals
            else:
                daemon.signal(SIGKILL)
                daemon.process.wait()
        config = configured(tmp_path, sample, scenario)
        daemon = Background("read", config, log=tmp_path / "last.log")
        assert daemon.wait().code == 0, daemon.said
    assert_delivered(spool, scenario.committed, value_capture_type="NEW_ROW")
    assert report(config)["state"]["reason"] == "the configured end is reached"  # type: ignore[index]
    assert run("status", config).code == 0  # it has done all that it was to do


def test_status_is_of_use_to_somebody_who_has_never_seen_the_project(tmp_path: Path) -> None:
    with served(30) as (scenario, sample):
        config = configured(tmp_path, sample, scenario, end=False)
        nothing = run("status", config)
        assert (nothing.code, nothing.complaint) == (
            1,
            f"spanner-cdc: there is no spool at {tmp_path / 'spool'}. `spanner-cdc read {config}` creates one.",
        )
        with reading(config) as daemon:
            daemon.until(lambda: watermark(tmp_path / "spool") > 0, "an epoch")
            well = run("status", config)
            assert well.code == 0, well.out
            text = well.out.decode()
            assert text.startswith("Running since ")
            assert "replication is healthy" in text
            assert "of Spanner's default retention is used" in text
            assert run("status", tmp_path / "spool").code == 0
            daemon.stop(SIGTERM)
        stopped = run("status", config)
        assert stopped.code == 1
        assert stopped.out.decode().startswith("Not started since ")
        assert "the daemon was stopped" in stopped.out.decode()


def test_a_daemon_that_was_killed_is_a_failure_once_it_is_silent(tmp_path: Path) -> None:
    with served(20) as (scenario, sample), reading(configured(tmp_path, sample, scenario, end=False)) as daemon:
        daemon.until(lambda: str(state_of(Spool.at(tmp_path / "spool")).state) == "Running", "its state")
        daemon.signal(SIGKILL)
        daemon.process.wait()
    found = state_of(Spool.at(tmp_path / "spool"))
    later = found.as_seen(found.seen + SILENCE + 1, pause_requested=False)
    assert (str(found.state), str(later.state)) == ("Running", "Failed")


def test_an_error_that_ends_the_daemon_is_its_state_and_is_kept(tmp_path: Path) -> None:
    with served(5) as (scenario, sample):
        config = configuration(tmp_path, sample, source={"change_stream": "NoSuch", "start": "now"})
        assert scenario.committed is not None
        assert run("read", config).code == 2
    found = report(config)
    assert found["state"]["name"] == "Failed permanently"  # type: ignore[index]
    assert "NoSuch" in str(found["state"]["reason"])  # type: ignore[index]
    assert found["health"]["healthy"] is False  # type: ignore[index]
    paused = run("pause", config, "--wait")
    assert (paused.code, paused.complaint.startswith("spanner-cdc: the daemon has failed: ")) == (1, True)
    (event,) = errors_of(Spool.at(tmp_path / "spool"))
    assert (event.code, event.severity) == ("daemon_failed", "ERROR")
    listed = run("status", config, "--errors")
    assert listed.code == 1
    assert b" ERROR daemon_failed: " in listed.out


def test_a_configuration_of_another_stream_leaves_the_state_of_a_spool_alone(tmp_path: Path) -> None:
    with served(5) as (scenario, sample):
        config = configured(tmp_path, sample, scenario)
        assert run("read", config).code == 0
        before = (tmp_path / "spool" / "state.json").read_bytes()
        other = {"change_stream": "Another", "start": "now"}
        assert run("read", configuration(tmp_path, sample, source=other)).code == 2
    assert (tmp_path / "spool" / "state.json").read_bytes() == before


def test_resuming_what_is_not_paused_says_so(tmp_path: Path) -> None:
    with served(5) as (scenario, sample):
        config = configured(tmp_path, sample, scenario)
        assert run("read", config).code == 0
    assert run("resume", config).out == b"the stream was not paused\n"
    said = f"reads nothing until `spanner-cdc resume {config}`\n"
    assert run("pause", config, "--wait").out.endswith(said.encode())
    assert run("resume", config).out.startswith(b"resumed; no daemon runs")
