"""A replica of one server of Spanner Omni in another: backfill, changes, audit and verify.

The servers are emulators with Omni's names, behind relays that end TLS: the scripted server cannot be written.
"""

import ssl
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector.core.timestamps import SECOND, format_rfc3339
from emulator import SampleDatabase, Workload
from tests.connector.spanner.omni.relayed import context_of, relayed
from tests.connector.spanner.omni.served import Authority, mutual
from tests.integration.commands import Background, run
from tests.integration.servers import MakeDatabase
from tests.spark_sink.sinks.spanner.samples import SPARK, empty, rows_of

Server = tuple[str, Mapping[str, object]]
"""Its address, and the options with which it is reached."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Authority.named(folder, "authority")


def connection(kind: str, host: str, authority: Authority, stack: ExitStack) -> Server:
    """A connection to the server at ``host``, in plain text, with TLS, or with TLS for clients with a certificate."""
    if kind == "plain":
        return host, {}
    issued = authority.issue(f"server-of-{kind}")
    context: ssl.SSLContext = context_of(authority, issued, of_clients=kind == "mutual")
    tls = mutual(authority, authority.issue("client")) if kind == "mutual" else {"ca": str(authority.ca)}
    return stack.enter_context(relayed(host, context)), {"tls": tls}


def section(sample: SampleDatabase, server: Server, **options: object) -> dict[str, object]:
    return {"edition": "omni", "endpoint": server[0], "database": sample.database_id, **server[1], **options}


def written(folder: Path, source: Mapping[str, object], sink: Mapping[str, object]) -> Path:
    node: dict[str, Any] = {
        "source": {"change_stream": "Everything", **source},
        "spool": {"path": str(folder / "spool"), "seal_interval": "100ms"},
        "sink": {"type": "spanner", "dead_letters": str(folder / "dead"), **sink},
        "spark": {**SPARK, "checkpoint": str(folder / "checkpoint")},
        "status": {"port": 0},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(node))
    return path


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize(
    ("source_by", "sink_by", "dialect", "reader"),
    [
        ("tls", "mutual", "googlesql", "process"),
        pytest.param("plain", "plain", "postgresql", "process", marks=pytest.mark.slow),
        pytest.param("mutual", "tls", "googlesql", "executors", marks=pytest.mark.slow),
    ],
)
def test_a_replica_in_another_server_has_every_row_and_audit_and_verify_find_no_difference(
    database: MakeDatabase,
    authority: Authority,
    tmp_path: Path,
    source_by: str,
    sink_by: str,
    dialect: str,
    reader: str,
) -> None:
    names = {"project": "default", "instance": "default", "dialect": dialect}
    source, replica = database(**names), database(**names)
    empty(replica)
    workload = Workload(source, seed=5, average_size=8)
    workload.run(mods=80)
    end = format_rfc3339(time.time_ns() + 45 * SECOND)
    with ExitStack() as stack:
        there = connection(source_by, source.host, authority, stack)
        here = connection(sink_by, replica.host, authority, stack)
        config = written(
            tmp_path,
            section(source, there, start="now", end=end, backfill=True, reader=reader),
            section(replica, here, create_tables=True),
        )
        checked = run("check", config)
        assert checked.code == 0, checked.err + checked.out.decode()
        with Background("run", config, log=tmp_path / "log") as service:
            service.await_log("backfill recorded")
            workload.run(mods=40)
            done = service.wait(timeout=400)
        assert done.code == 0, done.err
        audited, verified = run("audit", config), run("verify", config)
    assert audited.code == 0, audited.out.decode() + audited.err
    assert verified.code == 0, verified.out.decode() + verified.err
    assert rows_of(replica) == rows_of(source)
    assert not (tmp_path / "dead").exists()
    assert "PRIVATE KEY" not in done.err
