"""`reload` beside a running daemon and without one: what takes effect does so between two epochs, whatever comes."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGTERM

import pytest
import yaml

from connector.config import load
from connector.core.timestamps import SECOND, format_rfc3339
from connector.daemon.states.daemon import living
from connector.daemon.states.reloading import no_others, reloading
from connector.reader.stopping import StopRequest
from connector.spool.backfill.excluded_tables import excluded_ranges
from connector.spool.reading import Spool
from connector.spool.requests.reload import (
    ReloadAnswer,
    answer_reload,
    reload_answer_of,
    reload_request_of,
    request_reload,
    withdraw_reload,
)
from connector.telemetry.metrics import ReaderMetrics
from emulator import CommittedMod, SampleDatabase, Scenario
from tests.connector.daemon.sink_runs import in_a_loop, until
from tests.connector.daemon.states.histories import served
from tests.integration.commands import Background, configuration, manifests, reading, run, watermark
from tests.integration.delivered import Mod, in_spanners_encoding, of_rows, rows


def edited(config: Path, section: str, **options: object) -> None:
    """Changes options of a configuration file; None removes one."""
    node = yaml.safe_load(config.read_text())
    node.setdefault(section, {}).update(options)
    node[section] = {name: value for name, value in node[section].items() if value is not None}
    config.with_suffix(".new").write_text(yaml.safe_dump(node))
    config.with_suffix(".new").rename(config)


def answered(spool: Path) -> ReloadAnswer:
    found = reload_answer_of(Spool.at(spool))
    assert found is not None
    return found


def of_tables(scenario: Scenario, keeps: Callable[[CommittedMod], bool]) -> dict[Mod, int]:
    return dict(in_spanners_encoding(filter(keeps, scenario.committed), "NEW_ROW"))


def delivered(spool: Path) -> dict[Mod, int]:
    """The mods of a spool, whose epochs are numbered and follow one another without a gap."""
    kept = manifests(spool)
    assert [one.epoch for one in kept] == list(range(1, len(kept) + 1))
    for before, after in pairwise(kept):
        assert before.watermark_high == after.watermark_low < after.watermark_high
    return dict(of_rows(row for manifest in kept for row in rows(spool, manifest)))


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", ["IMMUTABLE_KEY_RANGE", pytest.param("MUTABLE_KEY_RANGE", marks=pytest.mark.slow)])
def test_tables_are_added_and_dropped_between_two_epochs_while_their_rows_are_written(
    tmp_path: Path, mode: str
) -> None:
    spool, since = tmp_path / "spool", 0
    with served(25, mode) as (scenario, sample):
        config = bounded(tmp_path, sample, scenario, tables={"include": ["Albums", "AllTypes"]})
        with reading(config) as daemon:
            daemon.until(lambda: watermark(spool) > scenario.history.origin, "an epoch")
            edited(config, "source", tables={"include": ["Albums", "Singers", "Albmus"]}, heartbeat="2s")
            done = run("reload", config)
            assert done.code == 0, done.err
            answer = answered(spool)
            since = answer.after
            assert (answer.applied, answer.faults) == (True, [])
            assert done.out.decode() == (
                f"{config} is reloaded: source.heartbeat, source.tables;"
                f" they hold for what was committed after {format_rfc3339(since)}\n"
                "warning: source.tables: 'Albmus' matches no table that change stream"
                f" {sample.change_stream} watches\n"
            )
            assert daemon.wait().code == 0, daemon.said
            assert "the configuration is reloaded" in daemon.said
    assert scenario.history.origin < since < scenario.history.horizon

    def keeps(mod: CommittedMod) -> bool:
        was_before = mod.commit_timestamp_ns <= since
        return mod.table in ({"Albums", "AllTypes"} if was_before else {"Albums", "Singers"})

    assert delivered(spool) == of_tables(scenario, keeps)
    assert since in [manifest.watermark_high for manifest in manifests(spool)]


@pytest.mark.long
def test_what_is_not_applied_is_named_a_pause_answers_too_and_a_killed_daemons_request_is_harmless(
    tmp_path: Path,
) -> None:
    spool, salt = tmp_path / "spool", "0123456789abcdef"
    columns = {"hash": {"Singers.LastName": {"salt": salt}}}
    with served(60) as (scenario, sample):
        config = bounded(tmp_path, sample, scenario, end=None, columns=columns, tables={"include": ["Albums"]})
        with reading(config) as daemon:
            daemon.until(lambda: watermark(spool) > scenario.history.origin, "an epoch")
            assert run("reload", config).out.decode() == f"nothing has changed in {config}\n"

            edited(config, "source", rpc_priority="low", tables={"include": ["Singers"]})
            edited(config, "status", port=1)
            assert refused(config) == (
                "nothing is applied; source.rpc_priority, status.port: needs a restart."
                " Restart the service, which continues where it was."
            )
            assert answered(spool).options["source.tables"] == "applied"

            edited(config, "source", rpc_priority=None, columns={"hash": {"Singers.LastName": {"salt": salt * 2}}})
            assert refused(config) == (
                "nothing is applied; status.port: needs a restart; source.columns: refused for this spool."
                " Set what is refused back, or take a new spool.path."
            )
            assert salt not in (spool / "reloaded.json").read_text()

            edited(config, "status", port=99_999)
            assert (invalid := run("reload", config)).code == 2
            assert invalid.complaint.startswith("spanner-cdc: status.port: ")
            assert "the configuration is reloaded" not in daemon.said

            assert run("pause", config, "--wait").code == 0
            edited(config, "status", port=0)
            edited(config, "source", columns=columns)
            done = run("reload", config)
            since = answered(spool).after
            assert (done.code, since) == (0, watermark(spool)), done.err
            assert run("resume", config).code == 0
            daemon.until(lambda: delivered_tables(spool) == {"Albums", "Singers"}, "rows of the table that was added")
            daemon.signal(SIGKILL)
            daemon.process.wait()
        request_reload(Spool.at(spool), 1)
        edited(config, "source", tables={"include": ["AllTypes"]})
        with reading(config) as daemon:
            daemon.until(lambda: reload_request_of(Spool.at(spool)) is None, "an answer")
            assert (answered(spool).applied, answered(spool).options) == (True, {})
            daemon.stop()
    assert no_daemon(config) == (
        f"no daemon runs that holds the spool at {spool}: nothing is reloaded."
        " The next one that is started reads the configuration as it is then."
    )
    assert not (spool / "reload.json").exists()
    assert [one.up_to for one in excluded_ranges(Spool.at(spool)) if one.lacks("Singers")] == [since]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_reloads_pauses_stops_and_kills_under_load_lose_nothing_of_the_tables_that_stay(
    tmp_path: Path, seed: int
) -> None:
    random, spool, mode = Random(seed), tmp_path / "spool", ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")[seed % 2]
    with served(60, mode) as (scenario, sample):
        config = bounded(tmp_path, sample, scenario, end=None, tables={"include": ["Albums"]})
        daemon = Background("read", config, log=tmp_path / "0.log")
        for number in range(1, 11):
            daemon.await_log(" INFO reading ")
            others = random.sample(["AllTypes", "Readings", "Order", "Singers"], random.randint(0, 3))
            edited(config, "source", tables={"include": ["Albums", *others]}, workers=random.choice([1, 1, 2]))
            what = random.choice(["reload", "pause", "term", "kill", "kill in a reload", "pause in a reload"])
            if what == "reload":
                assert run("reload", config).code == 0, daemon.said
                continue
            if " in a " in what:  # the daemon looks once a second
                request_reload(Spool.at(spool), number)
                time.sleep(random.uniform(0, 1.5))
            if "pause" in what:
                assert run("pause", config, "--wait").code == 0, daemon.said
                assert run("reload", config).code == 0, daemon.said
                run("resume", config)
                continue
            daemon.signal(SIGTERM if what == "term" else SIGKILL)
            daemon.process.wait()
            daemon = Background("read", config, log=tmp_path / f"{number}.log")
        daemon.await_log(" INFO reading ")
        assert daemon.stop(SIGTERM).code == 0, daemon.said
        edited(config, "source", end=format_rfc3339(scenario.history.horizon))
        assert run("read", config).code == 0
    found = {mod: count for mod, count in delivered(spool).items() if mod[1] == "Albums"}
    assert found == of_tables(scenario, lambda mod: mod.table == "Albums")
    assert delivered(spool).keys() <= of_tables(scenario, lambda mod: True).keys()
    assert reload_request_of(Spool.at(spool)) is None


def refused(config: Path) -> str:
    done = run("reload", config)
    assert done.code == 5, done
    return done.complaint.removeprefix("spanner-cdc: ")


def no_daemon(config: Path) -> str:
    done = run("reload", config)
    assert done.code == 1, done
    return done.complaint.removeprefix("spanner-cdc: ")


def delivered_tables(spool: Path) -> set[str]:
    return {table for manifest in manifests(spool) for table in manifest.tables}


def test_a_command_takes_back_its_own_request_alone(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path)
    first, second = request_reload(spool, 1), request_reload(spool, 2)
    withdraw_reload(spool, first)
    assert reload_request_of(spool) == second
    answer_reload(spool, first, ReloadAnswer(request=first.id, answered=3, config="c.yaml", applied=True))
    assert reload_request_of(spool) == second
    withdraw_reload(spool, second)
    withdraw_reload(spool, second)
    assert reload_request_of(spool) is None
    assert answered(tmp_path).request == first.id


@in_a_loop
async def test_the_answer_has_the_timestamp_after_which_reading_began_where_nothing_is_sealed_yet(
    tmp_path: Path,
) -> None:
    file, spool, stop = tmp_path / "c.yaml", Spool.at(tmp_path / "spool"), StopRequest(drain_timeout=SECOND)
    file.write_text("source: {project: p, instance: in, database: d, change_stream: S}\n")
    before = load(file)
    edited(file, "source", tables={"include": ["Albums"]})
    request, metrics = request_reload(spool, 1), ReaderMetrics(start=7)
    async with living(spool, stop) as life, reloading(before, spool, life, metrics, no_others) as reloads:
        await until(lambda: reload_request_of(spool) is None)
        assert reloads.config == load(file)
    answer = answered(tmp_path / "spool")
    assert (answer.request, answer.applied, answer.after) == (request.id, True, 7)


def test_documents_of_a_later_version_are_a_request_without_an_id_and_no_answer(tmp_path: Path) -> None:
    spool = Spool.at(tmp_path)
    assert (reload_request_of(spool), reload_answer_of(spool)) == (None, None)
    for name in ("reload.json", "reloaded.json"):
        (tmp_path / name).write_text("[]")
    request = reload_request_of(spool)
    assert request is not None
    assert (request.id, reload_answer_of(spool)) == ("", None)
    answer_reload(spool, request, ReloadAnswer(request="", answered=1, config="c.yaml"))
    assert reload_request_of(spool) is None


def bounded(folder: Path, sample: SampleDatabase, scenario: Scenario, **source: object) -> Path:
    bounds = {"start": format_rfc3339(scenario.history.origin), "end": format_rfc3339(scenario.history.horizon)}
    return configuration(folder, sample, source={**bounds, **source})
