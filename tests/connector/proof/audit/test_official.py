"""A spool that was read from the official emulator, over the past, is what a second read of it returns."""

import asyncio
from pathlib import Path

import pytest

import connector
from connector.core.timestamps import format_rfc3339
from connector.spool.reading import Spool
from emulator import Workload
from tests.connector.proof.audit.altering import altered, transactions, without_transaction
from tests.integration.commands import configuration, run
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator


@pytest.mark.long(but=1)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_an_audit_of_the_official_emulator(dialect: str, database: MakeDatabase, tmp_path: Path) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=3)
    workload.run(mods=400)
    mods = workload.committed
    span = {
        "start": format_rfc3339(mods[0].commit_timestamp_ns),
        "end": format_rfc3339(mods[-1].commit_timestamp_ns),
    }
    config = configuration(tmp_path, sample, source=span)
    asyncio.run(connector.read(connector.load_config(config)))
    done = run("audit", config)
    assert (done.code, f"{len(mods)} mods" in done.out.decode()) == (0, True), done.out.decode() + done.err

    spool = Spool.at(tmp_path / "spool")
    epoch = next(one.epoch for one in spool.manifests(1, spool.latest()) if one.rows)
    altered(tmp_path / "spool", lambda rows: without_transaction(rows, transactions(rows)[0].as_py()), epoch=epoch)
    done = run("audit", tmp_path / "spool", host=sample.host)
    assert done.code == 1
    assert "1 findings (1 missing)" in done.out.decode(), done.out.decode()
