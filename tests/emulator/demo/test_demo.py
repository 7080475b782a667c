"""The demo without an emulator, and its verdict."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from emulator import CommittedMod, EmulatorNotFoundError
from emulator.demo import source
from emulator.demo.plain_stream import committed_identity
from emulator.demo.skipped import Judgement, Skip
from emulator.demo.verdict import Delivered, compare
from emulator.workload.tables import Dialect

ROOT = Path(__file__).parents[3]
WITHOUT_SDK_FOLDERS = """
from emulator.demo.__main__ import main
from emulator.official import binary

binary._SDK_FOLDERS = ()
main()
"""


def hidden(folder: Path) -> dict[str, str]:
    """Environment variables with which neither an emulator nor a Docker engine is found."""
    for name in ("gateway_main", "gcloud"):  # programs that do not belong to an emulator
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name != "SPANNER_EMULATOR_HOST"}
    paths = {"PATH": f"{folder}{os.pathsep}{env['PATH']}", "CLOUDSDK_ROOT_DIR": str(folder)}
    return env | paths | {"DOCKER_HOST": f"unix://{folder}/none.sock"}


@pytest.mark.long
@pytest.mark.spark
def test_without_an_emulator_the_demo_runs_on_a_scripted_server_and_says_so(tmp_path: Path) -> None:
    output = tmp_path / "output"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK_FOLDERS, "--output", str(output), "--mods", "400", "--churn", "4"],
        cwd=ROOT,
        env=hidden(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    description = "a scripted Spanner server, because neither a Spanner emulator nor a Docker engine was found"
    assert done.stderr.splitlines()[0] == f"the demo runs against {description}"
    assert f"source                     {description}" in done.stdout
    assert "Everything committed was delivered, once, in commit order." in done.stdout
    assert list((output / "events").rglob("*.jsonl"))


def test_an_emulator_that_the_environment_names_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(**_settings: int) -> None:
        raise EmulatorNotFoundError("no emulator answers there")

    monkeypatch.setenv("SPANNER_EMULATOR_HOST", "127.0.0.1:1")
    monkeypatch.setattr(source, "find_or_start", absent)
    demo = source.demo_source("googlesql", mods=1, churn=1, scripted=False)
    with pytest.raises(EmulatorNotFoundError, match="answers there"), demo:
        pass


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", get_args(Dialect))
def test_a_scripted_demo_has_as_many_mods_and_partition_events_as_requested(dialect: Dialect) -> None:
    origin = time.time_ns()
    scenario = source._scenario(dialect, 20_000, 12, origin=origin)
    assert len(scenario.committed) >= 20_000
    assert all(scenario.churn[kind] > 0 for kind in ("splits", "merges", "moves"))
    assert scenario.churn.total() >= 12
    assert scenario.history.horizon == origin + 40 * 10**9


def delivered(mod: CommittedMod, epoch: int = 1) -> Delivered:
    at, number = mod.commit_timestamp_ns, mod.transaction
    return Delivered(committed_identity(mod), f"uuid {at}", (at, str(number), 0, 0), str(number), epoch, at + 10**6)


MODS = [CommittedMod(10**9 * at, at, "T", "INSERT", {"Id": str(at)}, {}, {}, {}) for at in range(1, 5)]
EVENTS = [delivered(mod, epoch) for epoch, mod in enumerate(MODS, 1)]


def test_a_verdict_is_good_if_every_mod_is_delivered_once_and_in_order() -> None:
    verdict = compare(MODS, EVENTS, ready=0)
    assert verdict.good
    assert (verdict.p50_ms, verdict.p99_ms) == (1.0, 1.0)
    assert compare(MODS, EVENTS, ready=10**12).p50_ms is None


def test_what_the_emulator_skipped_is_counted_and_is_not_lost() -> None:
    skip = Skip(MODS[0].commit_timestamp_ns, 1, "on a chop's end")
    verdict = compare(MODS, EVENTS[1:], ready=0, judgement=Judgement((skip,)))
    assert verdict.good
    assert (verdict.skipped, verdict.lost) == (1, 0)
    worse = compare(MODS, EVENTS[2:], ready=0, judgement=Judgement((skip,), 1, ("why",)))
    assert not worse.good
    assert (worse.skipped, worse.lost) == (1, 1)


def test_the_delivery_of_a_backlog_does_not_count_as_delay() -> None:
    late = replace(EVENTS[0], visible=MODS[2].commit_timestamp_ns)
    assert compare(MODS, [late, *EVENTS[1:]], ready=MODS[1].commit_timestamp_ns).p99_ms == 1.0
    assert compare(MODS, [late, *EVENTS[1:]], ready=0).p99_ms == 2000.0


@pytest.mark.parametrize(
    ("events", "error"),
    [
        (EVENTS[1:], "lost"),
        ([*EVENTS, EVENTS[0]], "twice"),
        ([*EVENTS, delivered(replace(MODS[0], table="U"))], "foreign"),
        ([*EVENTS[:2], replace(EVENTS[2], epoch=4), replace(EVENTS[3], epoch=3)], "out_of_order"),
        ([*EVENTS[:3], replace(EVENTS[3], transaction=EVENTS[2].transaction)], "split_transactions"),
    ],
)
def test_a_verdict_with_one_error_is_not_good(events: list[Delivered], error: str) -> None:
    verdict = compare(MODS, events, ready=0)
    assert not verdict.good
    assert getattr(verdict, error) > 0
