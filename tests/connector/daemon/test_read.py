"""The daemon before it reads."""

import asyncio
import threading
from pathlib import Path

import pytest

from connector.config import validated
from connector.core.timestamps import SECOND
from connector.daemon.read import read
from connector.reader.stopping import StopRequest
from connector.spool.reading import Spool


def test_a_daemon_that_is_cancelled_while_it_looks_for_the_spool_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, may_end = threading.Event(), threading.Event()

    def header(spool: Spool) -> None:
        looks.set()
        assert may_end.wait(60)
        raise FileNotFoundError

    source = {
        "project": "project",
        "instance": "instance",
        "database": "db",
        "change_stream": "Stream",
        "emulator_host": "localhost:1",
    }
    config = validated(
        {"source": source, "spool": {"path": str(tmp_path / "spool")}, "sink": {"path": str(tmp_path / "out")}}
    )

    async def main() -> None:
        reading = asyncio.create_task(read(config, StopRequest(drain_timeout=60 * SECOND)))
        assert await asyncio.to_thread(looks.wait, 60)
        reading.cancel()
        asyncio.get_running_loop().call_later(0.1, may_end.set)
        await asyncio.wait({reading})
        assert reading.cancelled()

    monkeypatch.setattr(Spool, "header", header)
    asyncio.run(main())
