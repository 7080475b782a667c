"""The daemon inside a Spark job: a child of the source's process that fills the spool.

It is the same ``spanner-cdc read`` that runs as a service. Its standard input is the lifeline: only the source's
process holds it open, so when that process is killed the daemon reads the end of its input and stops. A restarted query
may start its own daemon before that. The spool's lock refuses it, it ends with :data:`connector.errors.TRANSIENT`, and
it is started again until the orphaned daemon is gone.

A run that is to take what there is, and no more, lets the daemon read up to Spanner's clock of its start. The daemon
seals exactly there, and ends. No run waits for ever: a daemon that ends with an error ends the query with that error,
and so does one that seals nothing for :data:`SILENCE` seconds, whatever keeps it.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

import orjson

from connector.config.sections import SpoolConfig
from connector.core.health.states import END_REACHED, StreamState
from connector.errors import TRANSIENT, SpoolError, StreamError
from connector.spool import consumers
from connector.spool.lifecycle import pause_of, state_of
from connector.spool.reading import Spool
from connector.spool.summaries import HeldBytes
from spark_sink.sources.changes.options import InJobOptions
from spark_sink.sources.changes.read_limits import ReadAllAvailable, ReadLimit

DAEMON = (sys.executable, "-P", "-m", "connector", "read", "--stdin-lifeline")
UNTIL_NOW = "--until-now"
"""The daemon's option to end with Spanner's clock of its start."""

SILENCE = 300.0
"""Seconds without a new epoch after which a run up to now ends with an error.

A daemon that reads seals every minute at least, and restarts queries that are stalled for a minute.
"""

_NEARLY_FULL = SpoolConfig().max_bytes * 95 // 100
"""Bytes of a spool from which on the daemon may wait for its consumers."""

_TAKEOVER = 30.0
"""Seconds that an orphaned daemon has to end."""

_RETRY = 0.3
"""Seconds before the daemon is started again."""


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
        self._newest = 0
        self._heard_at = 0.0
        self.finished = False
        """True if the daemon has reached the requested end, or Spanner's clock if it reads no further."""
        self.ends_now = False
        """True if the daemon reads no further than Spanner's clock of its start."""

    def read_until_now(self) -> None:
        """Lets a daemon that is not started yet read up to Spanner's clock of its start, and no further."""
        self.ends_now = True

    def read_on(self) -> None:
        """Lets the daemon read on after :meth:`read_until_now`."""
        if self.ends_now:
            self.ends_now = self.finished = False

    def listen(self, newest: int) -> None:
        """Notes the newest epoch; a new one is a sign of life, and so is the first call after :meth:`rest`.

        Raises:
            StreamError: the daemon has sealed nothing for :data:`SILENCE` seconds.
        """
        now = time.monotonic()
        if newest != self._newest or not self._heard_at:
            self._newest, self._heard_at = newest, now
        elif now - self._heard_at >= SILENCE:
            raise StreamError(
                f"the reader inside the job has sealed nothing for {SILENCE:.0f} seconds{self._why_silent()}",
                hint="Its log is in the driver's standard error. Run the query again: it continues from there.",
            )

    def rest(self) -> None:
        """The daemon may be silent, because the query works on what it has sealed."""
        self._heard_at = 0.0

    def ensure(self) -> None:
        """Starts the daemon if it does not run, and checks how it ended if it has.

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
        if code == 0 and self._has_reached_its_end():
            self.finished = True
        elif code == 0:  # it was stopped by a signal, and the query continues
            self._retry_at = time.monotonic() + _RETRY
            self._give_up = 0.0
        elif code == TRANSIENT and time.monotonic() < self._give_up:
            self._retry_at = time.monotonic() + _RETRY
        else:
            raise StreamError(f"the reader inside the job ended with code {code}: {line or 'without a message'}")

    def _has_reached_its_end(self) -> bool:
        """True if a daemon that has ended without an error was not just stopped by a signal."""
        if not self.ends_now and not self._options.end:
            return False
        with suppress(SpoolError):
            return state_of(Spool.at(self._spool)).reason == END_REACHED
        return False

    def _why_silent(self) -> str:
        """The reason for the daemon's silence that it has recorded."""
        spool = Spool.at(self._spool)
        with suppress(SpoolError):
            record = state_of(spool)
            if record.retries:
                return f": {record.retries[-1].cause}"
            if record.state is StreamState.PAUSED and pause_of(spool) is not None:
                return f": it is paused, because {record.reason}"
        return ""

    def close(self) -> None:
        """Closes the lifeline and waits for the daemon. For tests: Spark kills the source's process instead."""
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
        config, end = os.pipe()  # a pipe, so that no file is left behind
        try:
            with os.fdopen(end, "wb") as written:
                written.write(config_document(self._options, self._spool))
            self._process = subprocess.Popen(  # noqa: S603
                [*self._command, *([UNTIL_NOW] if self.ends_now else []), f"/dev/fd/{config}"],
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


def reads_until_now(reader: InJobReader | None, limit: ReadLimit) -> bool:
    """True if there is a reader, and the run takes what there is until now, and no more.

    So does a micro-batch that is to take all: that of ``Trigger.Once``.
    """
    if reader is not None and isinstance(limit, ReadAllAvailable):
        reader.read_until_now()
    return reader is not None and reader.ends_now


def sealed_until_now(reader: InJobReader, spool: Spool, done: int, *, whole: bool, takes_empty: bool) -> int:
    """The newest epoch, once one after ``done`` has something to deliver; ``done`` if there is none until now.

    An epoch has something to deliver if it has rows, or is a gap, which is warned of.

    Args:
        reader: reads up to Spanner's clock.
        spool: where it seals.
        done: the last epoch that is done.
        whole: whether to wait until the reader is there, or the spool nearly full, where it may wait for its consumers.
        takes_empty: whether an epoch without changes is something to deliver, too.

    Raises:
        StreamError: the reader failed, or was silent for :data:`SILENCE` seconds.
    """
    seen, has_news = done, takes_empty
    held = _held_until(spool, done) if whole else HeldBytes()
    reader.rest()
    while True:
        reader.ensure()
        is_over = reader.finished  # asked first: what it has sealed until then is found
        newest = spool.latest()
        if newest > seen:
            has_news = has_news or any(one.rows or one.gap for one in spool.manifests(seen + 1, newest))
            if whole:
                held.add(spool.summaries(seen + 1, newest))
            seen = newest
        if whole and held.total >= _NEARLY_FULL:
            held = _held_until(spool, seen)
        if is_over or (has_news and newest > done and (not whole or held.total >= _NEARLY_FULL)):
            return seen if has_news else done
        reader.listen(newest)
        time.sleep(spool.storage.poll_interval)


def _held_until(spool: Spool, last: int) -> HeldBytes:
    """The bytes that a daemon keeps up to an epoch, without epochs that it may prune because every consumer is done.

    Raises:
        SpoolError: the spool cannot be read.
    """
    while True:
        held, floor = HeldBytes(), spool.floor()
        passed = min((one.epoch for one in consumers.consumers(spool)), default=0)
        try:
            held.add(spool.summaries(max(floor, passed + 1), last))
        except SpoolError:
            if spool.floor() == floor:
                raise
        else:
            return held


def config_document(options: InJobOptions, spool: str) -> bytes:
    """The daemon's configuration as JSON, which is valid YAML."""
    source = {
        "project": options.project,
        "instance": options.instance,
        "database": options.database,
        "change_stream": options.change_stream,
        "start": options.start,
        "end": options.end,
        "heartbeat": options.heartbeat,
        **options.server,
        "workers": 1,  # the cores are Spark's
    }
    return orjson.dumps(
        {
            "source": {name: value for name, value in source.items() if value},
            "spool": {"path": spool},
            "status": {"port": options.status_port},  # by default any: a job's readers must not fight for one
        },
        option=orjson.OPT_INDENT_2,
    )


class _LastLine:
    """Copies a daemon's standard error to this process's, and keeps its last line."""

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
