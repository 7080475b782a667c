"""``spanner-cdc dead-letters list|replay CONFIG``, in a process of its own: the command line knows no sinks.

A replay sends the letters file by file. Only what the destination took leaves the file, and only then, so whatever
kills it loses nothing; letters of one file may be sent once more then, which the destination has to bear. The
first SIGINT or SIGTERM lets the file under way finish, the second ends it at once.
"""

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa

from connector import log
from connector.config.loading import Config, load
from connector.config.sinks import sink_type
from connector.errors import told
from connector.storage.locations import absolute
from spark_sink.sink.dead_letters import DeadLetters, LetterFile, Replay
from spark_sink.sink.sink_type import spark_sink_type

_INTERRUPTED = 128 + signal.SIGINT
Signals = list[int]
"""Those that came, while :func:`_signals` collects them."""


def main(arguments: Sequence[str]) -> int:
    """Runs the command; returns the exit code."""
    given = _parser().parse_args(arguments)
    log.configure(json=given.log_format == "json", verbose=given.verbose)
    try:
        config = load(given.config)
        letters = _letters_of(config)
        if given.action == "list":
            return _list(letters, _files_of(letters, config), as_json=given.json)
        return _replay(config, letters, given.table)
    except BrokenPipeError:
        sys.stdout = None  # whoever read it has gone; there is nobody to flush to
        return 0
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - a fault of ours is one line, too
        line, code = told(error)
        if given.verbose:
            sys.stderr.write(log.whereabouts(error))
        sys.stderr.write(f"spanner-cdc: {line}\n")
        return code


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
    return parser


def _letters_of(config: Config) -> DeadLetters:
    places = sink_type(config.sink.type).locations(config.sink)
    endpoints = [place.endpoint for place in places if place.path == config.sink.dead_letters]
    return DeadLetters(absolute(config.sink.dead_letters), next(filter(None, endpoints), ""))


def _files_of(letters: DeadLetters, config: Config, table: str | None = None) -> list[LetterFile]:
    """The sink's own files: another of the same spool may have put its letters into the same place."""
    kind = spark_sink_type(config)
    return [file for file in letters.files(table) if kind.owns_dead_letters(file.name)]


def _list(letters: DeadLetters, files: Sequence[LetterFile], *, as_json: bool) -> int:
    entries = _entries(files)
    if as_json:
        _say(orjson.dumps(entries, option=orjson.OPT_INDENT_2).decode())
        return 0
    if not entries:
        _say(f"{letters.root}: no dead letters")
        return 0
    _say(f"{letters.root}: {_counted(sum(file.letters for file in files), 'dead letter')} in {_files(len(files))}")
    for entry in entries:
        many = f"{_counted(entry.letters, 'letter')} in {_files(entry.files)}"
        _say(f"  {entry.table}: {many}: {_on_one_line(entry.reason)}")
    return 0


@dataclass(frozen=True, slots=True)
class ListLine:
    """A line of the list: a table's letters of one reason."""

    table: str
    reason: str
    letters: int
    files: int


def _entries(files: Sequence[LetterFile]) -> list[ListLine]:
    """By table; the most frequent reason first."""
    letters, holding = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for file in files:
        for reason, count in file.reasons.items():
            letters[file.table, reason] += count
            holding[file.table, reason] += 1
    entries = [ListLine(*key, count, holding[key]) for key, count in letters.items()]
    return sorted(entries, key=lambda entry: (entry.table, -entry.letters, entry.reason))


def _replay(config: Config, letters: DeadLetters, table: str | None) -> int:
    files = _files_of(letters, config, table)
    if not files:
        _say(f"{letters.root}: no dead letters{_of_table(letters, config, table) if table is not None else ''}")
        return 0
    with spark_sink_type(config).replay_into(config, config.sink) as replay, _signals() as came:
        done = replayed(letters, files, replay, came)
    if came:
        return _INTERRUPTED if signal.SIGINT in came else 0
    if done.waiting:
        _say("letters of a micro-batch that is not done wait: let the sink run, and replay again")
    return 1 if done.refused or done.waiting else 0


def _of_table(letters: DeadLetters, config: Config, table: str) -> str:
    """Of which table there are none, and of which there are: a name is easily mistyped."""
    others = ", ".join(sorted({file.table for file in _files_of(letters, config)}))
    return f" of table {table}, but of {others}" if others else f" of table {table}"


@dataclass(slots=True)
class Replayed:
    """What a replay has done.

    Letters that went through, letters that were refused again, letters that have to wait, files that were not tried.
    """

    sent: int = 0
    refused: int = 0
    waiting: int = 0
    left: int = 0


def replayed(letters: DeadLetters, files: Sequence[LetterFile], replay: Replay, came: Signals) -> Replayed:
    """Sends the letters of files in turn, until a signal came, and says what became of them.

    Raises:
        SpannerCdcError: the destination cannot be reached, or a file cannot be read; what was done is done.
    """
    done = Replayed(left=len(files))
    there = Counter[str]()
    for file in files:
        there[file.table] += file.letters
    try:
        for file in files:
            if came:
                break
            _send(letters, file, replay, done, there)
            done.left -= 1
    finally:
        waiting = f", {done.waiting} not sent" if done.waiting else ""
        why = " (`spanner-cdc dead-letters list` tells why)" if done.refused else ""
        _say(f"{_counted(done.sent, 'letter')} went through, {done.refused} refused again{why}{waiting}")
        if done.left:
            _say(f"{_files(done.left)} not done")
    return done


def _send(letters: DeadLetters, file: LetterFile, replay: Replay, done: Replayed, there: Counter[str]) -> None:
    """Sends the letters of a file; ``there`` counts those of each table that are in the place."""
    try:
        rows, _ = letters.read(file)
    except FileNotFoundError:  # replayed by another, or just written anew: then it is for the next replay
        there[file.table] -= file.letters
        return
    refused = replay.send(file.name, rows)
    if refused is None:
        done.waiting += rows.num_rows
        return
    again = dict(refused)
    kept = sorted(again)
    done.sent += rows.num_rows - len(kept)
    done.refused += len(kept)
    there[file.table] -= rows.num_rows - len(kept)
    # Before the last of them is gone: with no letters, nobody would ever try again.
    replay.tried(rows.column("object")[0].as_py(), left=there[file.table])
    letters.replace(file, rows.take(pa.array(kept, pa.int64())), [again[index] for index in kept])


@contextmanager
def _signals() -> Iterator[Signals]:
    """Collects the first signal that asks for an end; the second does what it does to any program."""
    came: Signals = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def heard(number: int, _: object) -> None:
        came.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)

    for number in before:
        signal.signal(number, heard)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _files(number: int) -> str:
    return _counted(number, "file")


def _on_one_line(text: str) -> str:
    """A text that a terminal shows as it is."""
    return "".join(character if character.isprintable() else " " for character in text)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
