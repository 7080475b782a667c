"""The whole reader on Spanner Omni: the daemon, its worker processes, tail, discover and check."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from connector.core.timestamps import SECOND
from connector.errors import ConfigurationError
from connector.reader.change_stream import opened
from connector.spanner.workers.frames import WorkerSetup
from connector.spanner.workers.pool import Workers
from connector.spool.reading import Spool
from connector.telemetry.metrics import ReaderMetrics
from emulator import ScriptedServer
from spark_sink.reading.windows.task import WindowSetup
from tests.connector.spanner.omni.served import Authority, mutual, node_of, serving_omni, source_of

TOKEN = "hunter2-secret-token"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "certificates"
    folder.mkdir()
    return Authority.named(folder, "authority")


def ran(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command, in an environment with an emulator and without Google's credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment = kept | {"SPANNER_EMULATOR_HOST": "127.0.0.1:9", "GOOGLE_APPLICATION_CREDENTIALS": "/nonexistent"}
    command = [sys.executable, "-m", "connector", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)


def mods(server: ScriptedServer) -> int:
    return len(server.engine.scenario.committed)


def written(folder: Path, source: dict[str, Any]) -> Path:
    config = folder / "config.json"
    config.write_bytes(
        orjson.dumps({"source": source, "spool": {"path": str(folder / "spool")}, "status": {"port": 0}})
    )
    return config


@pytest.mark.long(but=1)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_daemon_reads_all_with_a_certificate_and_a_token(
    tmp_path: Path, authority: Authority, workers: int
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    tls = mutual(authority, authority.issue("reader"))
    with serving_omni(authority.credentials(authority.issue("server"), of_clients=True)) as server:
        server.want_token(TOKEN)
        config = written(tmp_path, node_of(server, tls=tls, token_file=str(token), workers=workers))
        checked = ran("check", "--for", "read", str(config))
        done = ran("read", "--verbose", str(config))
    assert (checked.returncode, done.returncode) == (0, 0), checked.stderr + done.stderr
    spool = Spool.at(tmp_path / "spool")
    rows = sum(file.rows for manifest in spool.manifests(1, spool.latest()) for file in manifest.files)
    assert rows == mods(server)
    kept = b"".join(file.read_bytes() for file in (tmp_path / "spool").rglob("*") if file.is_file())
    assert TOKEN.encode() not in kept
    for text in (checked.stdout, checked.stderr, done.stdout, done.stderr):
        assert TOKEN not in text
        assert "PRIVATE KEY" not in text


@pytest.mark.long
def test_tail_and_discover_in_plain_text_and_with_tls(authority: Authority) -> None:
    for credentials, tls in (
        (None, []),
        (authority.credentials(authority.issue("server")), ["--tls-ca", str(authority.ca)]),
    ):
        with serving_omni(credentials) as server:
            node = node_of(server)
            named = ["--edition", "omni", "--endpoint", server.host, "--database", node["database"], *tls]
            of_range = ["--change-stream", node["change_stream"], "--start", node["start"], "--end", node["end"]]
            tailed = ran("tail", *named, *of_range)
            found = ran("discover", *named, "--json")
        assert tailed.returncode == found.returncode == 0, tailed.stderr + found.stderr
        assert tailed.stdout.count("\n") == mods(server)
        assert orjson.loads(found.stdout)[0]["change_stream"] == node["change_stream"]


@pytest.mark.long
def test_a_configuration_that_does_not_fit_the_server_ends_with_code_2_and_one_line(
    tmp_path: Path, authority: Authority
) -> None:
    with serving_omni(authority.credentials(authority.issue("server"))) as server:
        done = ran("read", str(written(tmp_path, node_of(server))))
        checked = ran("check", "--for", "read", str(tmp_path / "config.json"))
        named = ran("tail", "--edition", "omni", "--database", "d", "--change-stream", "S", "--project", "p")
    assert (done.returncode, checked.returncode, named.returncode) == (2, 2, 2), checked.stdout
    assert f"source.tls: the server at {server.host} wants encryption: set source.tls" in done.stderr
    assert "--project: 'p': edition omni has only default" in named.stderr
    assert "wants encryption" in checked.stdout + checked.stderr


@pytest.mark.long
def test_a_worker_that_cannot_read_a_file_ends_the_reader_as_a_configuration_does(
    tmp_path: Path, authority: Authority
) -> None:
    async def main(server: ScriptedServer) -> None:
        source = source_of(server, tls={"ca": str(authority.ca)})
        async with opened(source) as stream:
            assert source.address.omni is not None
            assert source.tls is not None
            omni = replace(source.address.omni, tls=replace(source.tls, ca=str(tmp_path / "gone.pem")))
            setup = WorkerSetup(
                replace(stream.address, database=replace(source.address, omni=omni)), json_logs=False, verbose=False
            )
            async with asyncio.timeout(300), Workers(setup, 1, ReaderMetrics()).running():
                raise AssertionError("the worker started")

    with (
        serving_omni(authority.credentials(authority.issue("server"))) as server,
        pytest.raises(ConfigurationError, match=r"source\.tls\.ca: .*gone\.pem: No such file") as caught,
    ):
        asyncio.run(main(server))
    assert caught.value.exit_code == 2


def test_an_address_travels_to_executors_as_it_is(tmp_path: Path, authority: Authority) -> None:
    tls = mutual(authority, authority.issue("reader"))

    async def main(server: ScriptedServer) -> WindowSetup:
        async with opened(source_of(server, tls=tls)) as stream:
            return WindowSetup.of(stream, str(tmp_path))

    with serving_omni(authority.credentials(authority.issue("server"), of_clients=True)) as server:
        setup = asyncio.run(main(server))
        assert WindowSetup.from_json(setup.to_json()) == setup
        assert setup.stream.database == source_of(server, tls=tls).address
        assert setup.stream.heartbeat == SECOND
