"""``spanner-cdc dead-letters list|replay CONFIG``, in a process of its own: the connector imports no sink.

A replay writes the dead letters file by file. Accepted dead letters are then removed from the file, so that a killed
replay loses nothing. It may write those of one file twice, and destinations are idempotent. The first SIGINT or SIGTERM
lets the current file finish, the second ends the replay at once.
"""

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pyarrow as pa

from connector import log
from connector.config.loading import Config, load
from connector.errors import SpannerCdcError, SpoolError, SpoolInUseError
from connector.progress import Progress
from connector.spool.reading import Spool
from connector.spool.sink_report import report_of
from connector.spool.storage.locations import absolute
from spark_sink.own_command import INTERRUPTED, configure_log, exit_code_of, print_line
from spark_sink.sinks.shared.dead_letters import DeadLetterFile, DeadLetters, Moved, Replay
from spark_sink.sinks.shared.known_schemas import UnknownColumns
from spark_sink.sinks.shared.replayed_spools import check_root, held, record_left, record_root, replayed_spool
from spark_sink.sinks.shared.sink_type import spark_sink_type

_log = log.Log(__name__)

Signals = list[int]
"""Signals that were received, while :func:`_signals` collects them."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    given = _parser().parse_args(arguments)
    configure_log(given)

    def work() -> int:
        config = load(given.config)
        store = DeadLetters.of(spark_sink_type(config), config.sink)
        if given.action == "list":
            _list(store, [file for file in store.files() if file.count], as_json=given.json)
            with suppress(SpoolError):  # a list needs no spool
                check_root(Spool.at(absolute(config.spool.path)), config.sink.name, store)
            return 0
        return _replay(config, store, given.table, is_moved=given.moved)

    return exit_code_of(work, verbose=given.verbose)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spanner-cdc dead-letters")
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("list", "replay"):
        command = actions.add_parser(action)
        command.add_argument("config", type=Path)
        command.add_argument("--log-format", choices=["text", "json"], default="text")
        command.add_argument("--verbose", action="store_true")
        if action == "list":
            command.add_argument("--json", action="store_true")
        else:
            command.add_argument("--table")
            command.add_argument("--moved", action="store_true")
    return parser


def _list(store: DeadLetters, files: Sequence[DeadLetterFile], *, as_json: bool) -> None:
    entries = _entries(files)
    if as_json:
        print_line(orjson.dumps([entry.to_json() for entry in entries], option=orjson.OPT_INDENT_2).decode())
        return
    if not entries:
        print_line(f"{store.root}: no dead letters")
        return
    total = _counted(sum(file.count for file in files), "dead letter")
    print_line(f"{store.root}: {total} in {_counted(len(files), 'file')}")
    for entry in entries:
        many = f"{_counted(entry.count, 'dead letter')} in {_counted(entry.files, 'file')}"
        print_line(f"  {entry.table}: {many}: {_on_one_line(entry.reason)}")


@dataclass(frozen=True, slots=True)
class ListLine:
    """A line of the list: a table's dead letters of one reason."""

    table: str
    reason: str
    count: int
    files: int

    def to_json(self) -> dict[str, str | int]:
        """With the names of ``spanner-cdc dead-letters list --json``."""
        return {"table": self.table, "reason": self.reason, "letters": self.count, "files": self.files}


def _entries(files: Sequence[DeadLetterFile]) -> list[ListLine]:
    """By table; the most frequent reason first."""
    counts, holding = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for file in files:
        for reason, count in file.reasons.items():
            counts[file.table, reason] += count
            holding[file.table, reason] += 1
    entries = [ListLine(*key, count, holding[key]) for key, count in counts.items()]
    return sorted(entries, key=lambda entry: (entry.table, -entry.count, entry.reason))


def _replay(config: Config, store: DeadLetters, table: str | None, *, is_moved: bool) -> int:
    spool = Spool.at(absolute(config.spool.path))
    if not is_moved:
        check_root(spool, config.sink.name, store)
    files = store.files(table)
    if not files:
        print_line(f"{store.root}: no dead letters{_of_table(store, table) if table is not None else ''}")
        return _resumed(config, store, spool, table, is_moved=is_moved)
    kind = spark_sink_type(config)
    again = (lambda: store.files(table)) if kind.repeats_replay else None
    unknown = UnknownColumns(spool)
    with kind.replay_into(config, config.sink) as replay, _signals() as received:
        in_order = kind.replays_in_order
        done = replayed(store, files, replay, received, again=again, in_order=in_order, look_at=unknown.warn)
        _record(config, store, spool, is_moved=is_moved)
    if received:
        return INTERRUPTED if signal.SIGINT in received else 0
    if done.waiting:
        print_line(
            "some dead letters belong to a micro-batch that is not finished: run the sink until it is,"
            " stop the sink, and replay again"
        )
    if done.changed:
        print_line("a file of dead letters was changed meanwhile, and the rest of its table waits for it: replay again")
    return 1 if done.rejected or done.waiting or done.changed else 0


def _record(config: Config, store: DeadLetters, spool: Spool, *, is_moved: bool) -> None:
    """Records what a store has left, and its root if it was moved; the locks of the sink are held."""
    try:
        left = store.files()
    except SpannerCdcError:
        return  # a replay of its table names the file that cannot be read
    record_left(spool, config.sink.name, store, left)
    if is_moved:
        record_root(spool, config.sink.name, store.root)


def _resumed(config: Config, store: DeadLetters, spool: Spool, table: str | None, *, is_moved: bool) -> int:
    """Ends a replay that has nothing to send, because dead letters were removed by hand; returns the exit code.

    A sink that runs keeps its report, unless a table is stopped or the store was moved: then it is to be stopped first.
    """

    def stopped() -> Collection[str]:
        found = report_of(spool, config.sink.name).stopped.keys()
        return found if table is None else found & {table}

    kind = spark_sink_type(config)
    if kind.resumes_emptied and stopped():
        with kind.replay_into(config, config.sink):
            _record(config, store, spool, is_moved=is_moved)
        return 1 if stopped() else 0
    if (table is None or is_moved) and spool.storage.exists("spool.json"):
        spool = replayed_spool(config, must_have_delivered=False)
        with nullcontext() if is_moved else suppress(SpoolInUseError), held(spool, config):
            _record(config, store, spool, is_moved=is_moved)
    return 0


def _of_table(store: DeadLetters, table: str) -> str:
    """The message that a table has no dead letters, with the tables that have some, in case of a typing error."""
    others = ", ".join(sorted({file.table for file in store.files()}))
    return f" of table {table}, but of {others}" if others else f" of table {table}"


@dataclass(slots=True)
class Replayed:
    """The result of a replay.

    Attributes:
        sent: dead letters that the destination accepted.
        rejected: those that it rejected again.
        waiting: those of a micro-batch that is not finished.
        changed: those of files that somebody has changed meanwhile, and that wait for these.
        left: files that were not tried.
    """

    sent: int = 0
    rejected: int = 0
    waiting: int = 0
    changed: int = 0
    left: int = 0


def replayed(
    store: DeadLetters,
    files: Sequence[DeadLetterFile],
    replay: Replay,
    received: Signals,
    *,
    again: Callable[[], Sequence[DeadLetterFile]] | None = None,
    in_order: bool = False,
    look_at: Callable[[pa.RecordBatch], None] = lambda _: None,
) -> Replayed:
    """Writes the dead letters of files in turn, until a signal is received, and prints the result.

    Args:
        store: where the files are.
        files: the files.
        replay: sends the dead letters.
        received: the signals that were received.
        again: lists the files once more, if dead letters that are rejected may be accepted after others: they are sent
            again as long as others were accepted.
        in_order: whether no dead letter of a table may be written before an earlier one.
        look_at: is called with the rows of each file before they are sent.

    Raises:
        SpannerCdcError: the destination cannot be reached, or a file cannot be read; what was written is kept.
    """
    there = Counter[str]()
    for file in files:
        there[file.table] += file.count
    replaying = _Replaying(store, replay, received, look_at, in_order, there)
    done = replaying.done
    try:
        with Progress(_log, "replaying dead letters", log.terminal(), sum(file.count for file in files)) as progress:
            rejected, accepted = replaying.send(files, progress), 0
            while again is not None and rejected and done.sent > accepted and not received:
                accepted, done.rejected = done.sent, 0
                rejected = replaying.send([file for file in again() if file.path in rejected], progress)
    finally:
        not_written = done.waiting + done.changed
        waiting = f", {not_written} not written" if not_written else ""
        why = " (`spanner-cdc dead-letters list` has the reasons)" if done.rejected else ""
        print_line(f"{_counted(done.sent, 'dead letter')} accepted, {done.rejected} rejected again{why}{waiting}")
        if done.left:
            print_line(f"{_counted(done.left, 'file')} not replayed")
    return done


@dataclass(slots=True)
class _Replaying:
    """Writes dead letters, file after file, and counts.

    Attributes:
        there: the dead letters of each table that are not written yet.
        done: the result so far.
    """

    store: DeadLetters
    replay: Replay
    received: Signals
    look_at: Callable[[pa.RecordBatch], None]
    in_order: bool
    there: Counter[str]
    done: Replayed = field(default_factory=Replayed)
    changed: set[str] = field(default_factory=set)

    def send(self, files: Sequence[DeadLetterFile], progress: Progress) -> set[str]:
        """Writes those of files, until a signal is received; returns the paths of files of which some were rejected."""
        done, tried = self.done, self.done.sent
        done.left = len(files)
        rejected: set[str] = set()
        for file in files:
            if self.received:
                break
            before = done.rejected
            self._send(file)
            if done.rejected > before:
                rejected.add(file.path)
            done.left -= 1
            tried += file.count
            progress.show(tried, accepted=done.sent, rejected=done.rejected)
        return rejected

    def _send(self, file: DeadLetterFile) -> None:
        try:
            rows = self._read(file)
        except FileNotFoundError:  # rewritten or removed meanwhile, as by an editor: left to the next replay
            if self.in_order:
                self.changed.add(file.table)
                self.done.changed += file.count
            return
        if not rows.num_rows:  # somebody has removed its lines
            self.replay.tried(file.table, left=self.there[file.table])
            self.store.remove(file)
            return
        self.look_at(rows)
        rejected = self.replay.send(file.name, rows)
        if rejected is None:
            self.done.waiting += rows.num_rows
            return
        again: dict[int, str] = {} if isinstance(rejected, Moved) else dict(rejected)
        kept = sorted(again)
        left = rejected.count if isinstance(rejected, Moved) else len(kept)
        self.done.sent += rows.num_rows - left
        self.done.rejected += left
        self.there[file.table] -= rows.num_rows - left
        # Before the last of them is removed: without dead letters there is no further replay.
        self.replay.tried(rows.column("object")[0].as_py(), left=self.there[file.table])
        self.store.replace(file, rows.take(pa.array(kept, pa.int64())), [again[index] for index in kept])

    def _read(self, file: DeadLetterFile) -> pa.RecordBatch:
        if file.table in self.changed:
            raise FileNotFoundError(file.path)
        return self.store.read(file)[0]


@contextmanager
def _signals() -> Iterator[Signals]:
    """Collects the first SIGINT or SIGTERM; a second one has its default effect."""
    received: Signals = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int, _: object) -> None:
        received.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _on_one_line(text: str) -> str:
    """The text without characters that are not printable."""
    return "".join(character if character.isprintable() else " " for character in text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
