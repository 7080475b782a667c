"""`spanner-cdc read` seals every committed mod, whenever it is stopped and restarted."""

import time
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

import pytest

from connector.core.timestamps import format_rfc3339
from connector.spool.reading import Spool
from emulator import Workload
from tests.integration.commands import configuration, manifests, reading, run, watermark
from tests.integration.delivered import assert_delivered, assert_sound
from tests.integration.servers import MakeDatabase
from tests.integration.workloads import last_commit, load

pytestmark = pytest.mark.emulator


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_read_ends_at_its_end_and_a_later_end_continues_from_there(
    dialect: str, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database(dialect=dialect)
    start = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=21)
    workload.run(seconds=3, rate=60)
    first = {"start": start, "end": last_commit(workload)}
    assert run("read", configuration(tmp_path, sample, source=first)).code == 0
    ended = assert_delivered(tmp_path / "spool", workload.committed, official=sample)[-1]
    assert ended.final
    assert format_rfc3339(ended.watermark_high) == first["end"]

    workload.run(seconds=3, rate=60)
    config = configuration(tmp_path, sample, source={"start": start, "end": last_commit(workload)})
    assert run("read", config).code == 0
    kept = assert_delivered(tmp_path / "spool", workload.committed, official=sample)
    assert kept[-1].epoch > ended.epoch

    again = run("read", config)
    assert again.code == 0
    assert len(manifests(tmp_path / "spool")) == len(kept)


@pytest.mark.long(but=1)
@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 0), (SIGINT, 130)])
def test_a_signal_drains_and_a_restart_continues_without_loss(
    number: Signals, code: int, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    start = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=22)
    with load(workload, rate=60), reading(configuration(tmp_path, sample, source={"start": start})) as daemon:
        daemon.until(lambda: len(manifests(tmp_path / "spool")) > 3, "some epochs")
        done = daemon.stop(number)
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert_sound(tmp_path / "spool", manifests(tmp_path / "spool"))
    config = configuration(tmp_path, sample, source={"start": start, "end": last_commit(workload)})
    assert run("read", config).code == 0
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


@pytest.mark.parametrize(("number", "code"), [(SIGTERM, 0), (SIGINT, 130)])
def test_a_signal_before_reading_has_started_ends_it_with_the_same_codes(
    number: Signals, code: int, database: MakeDatabase, tmp_path: Path
) -> None:
    config = configuration(tmp_path, database(), source={"emulator_host": "127.0.0.1:1"})
    with reading(config, until_reading=False) as daemon:
        daemon.await_log("status page")  # it waits for Spanner now
        assert daemon.stop(number).code == code


def test_start_now_is_resolved_once_whatever_happens_before_the_first_seal(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    workload = Workload(sample, seed=23)
    seldom = configuration(tmp_path, sample, spool={"seal_interval": "10m"})
    with reading(seldom) as daemon:
        started = Spool.at(tmp_path / "spool").header().start
        workload.run(mods=30)
        daemon.stop(SIGKILL)
    workload.run(mods=30)
    assert workload.committed[0].commit_timestamp_ns >= started
    assert run("read", configuration(tmp_path, sample, source={"end": last_commit(workload)})).code == 0
    assert Spool.at(tmp_path / "spool").header().start == started
    assert_delivered(tmp_path / "spool", workload.committed, official=sample)


def test_excluded_tables_have_no_rows_and_delay_nothing(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    start = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=24)
    workload.run(mods=80)
    tables = {"include": ["*"], "exclude": ["A*", "sales.*"]}
    source = {"start": start, "end": last_commit(workload), "tables": tables}
    assert run("read", configuration(tmp_path, sample, source=source)).code == 0
    delivered = {table for manifest in manifests(tmp_path / "spool") for table in manifest.tables}
    assert delivered == {mod.table for mod in workload.committed if not mod.table.startswith(("A", "sales."))}
    assert watermark(tmp_path / "spool") == workload.committed[-1].commit_timestamp_ns
