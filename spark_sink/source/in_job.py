"""The daemon inside a Spark job: a child of the source's process that fills the spool.

It is the same ``spanner-cdc read`` that runs as a service. Its standard input is the lifeline: it is held open by
the source's process and nobody else, so when that is killed the daemon meets the end of its input and stops. A
restarted query may come before that; the spool's lock then refuses its daemon, which is started again until the
orphan is gone.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

import orjson

from connector.errors import SpoolError, StreamError
from spark_sink.source.options import InJobOptions

DAEMON = (sys.executable, "-m", "connector", "read", "--stdin-lifeline")
_IN_USE = "is written by another daemon"
_TAKEOVER = 30.0
"""Seconds that an orphaned daemon has to end."""
_RETRY = 0.3


class InJobReader:
    """Runs the daemon for a spool.

    Args:
        options: the change stream.
        spool: the spool's absolute path, or its URL.
        command: starts the daemon; the configuration's path is added.
    """

    def __init__(self, options: InJobOptions, spool: str, command: Sequence[str] = DAEMON) -> None:
        self._options = options
        self._spool = spool
        self._command = tuple(command)
        self._process: subprocess.Popen[str] | None = None
        self._stderr: _LastLine | None = None
        self._give_up = 0.0
        self._retry_at = 0.0
        self.finished = False
        """Whether the daemon has reached the end that was asked for."""
        self.refusals = 0
        """How often the spool was still another daemon's."""

    def ensure(self) -> None:
        """Starts the daemon the first time, and looks whether it lives every time.

        Raises:
            StreamError: it failed; the message is its last line.
        """
        if self.finished:
            return
        if self._process is None:
            if time.monotonic() >= self._retry_at:
                self._start()
            return
        code = self._process.poll()
        if code is None:
            return
        assert self._stderr is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        line = self._stderr.result().removeprefix("spanner-cdc: ")
        self._process = None
        if code == 0 and self._options.end:
            self.finished = True
        elif code == 0:  # somebody has stopped it, and the query goes on
            self._retry_at = time.monotonic() + _RETRY
            self._give_up = 0.0
        elif _IN_USE in line and time.monotonic() < self._give_up:
            self.refusals += 1
            self._retry_at = time.monotonic() + _RETRY
        else:
            raise StreamError(f"the reader inside the job ended with code {code}: {line or 'it said nothing'}")

    def close(self) -> None:
        """Cuts the lifeline and waits for the daemon; the source's process never does, it is killed."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            assert self._stderr is not None
            self._stderr.result()

    def _start(self) -> None:
        self._give_up = self._give_up or time.monotonic() + _TAKEOVER
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        config, end = os.pipe()  # which leaves no file behind
        try:
            with os.fdopen(end, "wb") as written:
                written.write(config_document(self._options, self._spool))
            self._process = subprocess.Popen(  # noqa: S603
                [*self._command, f"/dev/fd/{config}"],
                pass_fds=[config],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise SpoolError(f"cannot start the reader inside the job: {error}") from error
        finally:
            os.close(config)
        assert self._process.stderr is not None
        self._stderr = _LastLine(self._process.stderr)


def config_document(options: InJobOptions, spool: str) -> bytes:
    """The daemon's configuration; YAML takes JSON."""
    source = {
        "project": options.project,
        "instance": options.instance,
        "database": options.database,
        "change_stream": options.change_stream,
        "start": options.start,
        "end": options.end,
        "heartbeat": options.heartbeat,
        "emulator_host": options.emulator_host,
        "workers": 1,  # the cores are Spark's
    }
    return orjson.dumps(
        {
            "source": {name: value for name, value in source.items() if value},
            "spool": {"path": spool},
            "status": {"port": 0},  # any that is free: a job's readers must not fight for one
        },
        option=orjson.OPT_INDENT_2,
    )


class _LastLine:
    """Passes a daemon's standard error on and keeps its last line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._line = ""
        self._thread = threading.Thread(target=self._pump, name="in-job-reader-stderr", daemon=True)
        self._thread.start()

    def result(self) -> str:
        """The last line that was not empty."""
        self._thread.join(timeout=2)
        return self._line

    def _pump(self) -> None:
        with self._stream:
            for line in self._stream:
                self._line = line.strip() or self._line
                sys.stderr.write(line)
                sys.stderr.flush()
