"""A reload beside a sink whose application also reads: only what was edited in the file differs."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from connector.config.loading import Config
from connector.config.reloading.comparison import outcomes
from connector.errors import SpoolError
from spark_sink import run
from spark_sink.run import Events


def test_the_scheduler_of_an_application_that_reads_and_delivers_is_no_edit_of_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_session, of_reader = list[Config](), list[Config]()

    @contextmanager
    def running(config: Config, events: Events, *, verbose: bool) -> Iterator[tuple[None, threading.Event]]:
        of_session.append(config)
        yield None, threading.Event()

    def beside(config: Config, spark: object, events: Events) -> AbstractContextManager[Events]:
        of_reader.append(config)
        raise SpoolError("that is enough")

    def guarded(work: Any, *, verbose: bool) -> int:
        with pytest.raises(SpoolError, match="enough"):
            work(SimpleQueue())
        return 1

    for name, stub in {"running": running, "guarded": guarded, "configure_log": lambda _: None}.items():
        monkeypatch.setattr(run, name, stub)
    file = tmp_path / "config.yaml"
    file.write_text(
        "source: {project: p, instance: in, database: d, change_stream: S, reader: executors}\n"
        f"spool: {{path: {tmp_path / 'spool'}}}\nsink: {{path: {tmp_path / 'out'}}}\n"
        f"spark: {{checkpoint: {tmp_path / 'checkpoint'}}}\n"
    )
    assert run.main([str(file)], lambda _: beside) == 1
    (session,), (reader,) = of_session, of_reader
    assert session.spark.config == {"spark.scheduler.mode": "FAIR"}
    assert outcomes(reader, reader.again()) == {}
