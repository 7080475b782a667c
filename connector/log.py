"""Structured logs on stderr, as text for people or as JSON for machines: constant messages with fields.

A line of JSON has ``severity`` (Google Cloud Logging's names), ``time`` (RFC 3339), ``message`` and ``action``, a name
that stays when a message is reworded, beside the fields. A row's values are never logged; fields are names, counts and
timestamps. Of an exception only frames and types are logged, because its message may hold a value.
"""

import logging
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TextIO

import orjson

STYLE = "SPANNER_CDC_LOG"
"""The environment variable that says how a process logs that Spark has started: ``json,verbose``."""

HCLOG = "hclog"
"""A value of it for a plugin: this process and those that it starts write their JSON as go-hclog does."""

_HCLOG_LEVELS = {"WARNING": "warn", "CRITICAL": "error"}

SEVERITY = {"WARN": "WARNING", "FATAL": "CRITICAL", "NOTSET": "DEFAULT"}
"""Google Cloud Logging's names of levels that have others."""

CLEARED = "\r\x1b[K"
"""Clears the line of a terminal."""

_RESERVED = frozenset({"severity", "time", "message", "action", "logger", "exception"})
_WORDS = 6
"""The most words of a message that an action is made of."""


ACTIONS = {
    "a_partitions_end_is_confirmed_by": "partition_end_confirmed",
    "a_partitions_query_broke_and_is": "query_retried",
    "a_partitions_query_is_sent_again": "query_sent_again",
    "a_record_is_late": "late_record",
    "a_table_without_a_key_cannot": "table_without_key",
    "a_transaction_is_incomplete": "transaction_incomplete",
    "a_worker_does_not_respond_and": "worker_killed",
    "a_worker_has_died_and_is": "worker_replaced",
    "an_epochs_events_are_missing_for": "epoch_is_a_gap",
    "at_this_speed_spanner_will_not": "backfill_too_slow",
    "no_status_page_is_served": "status_page_failed",
    "nothing_is_pruned": "consumers_of_another_copy",
    "pruning_the_spool_failed": "prune_failed",
    "spanners_clock_cannot_be_read": "clock_failed",
    "the_backfill_has_ended_with_an": "backfill_failed",
    "the_daemon_is_done": "daemon_done",
    "the_end_has_been_reached_already": "end_reached_already",
    "the_spool_continues_after_a_gap": "spool_has_a_gap",
    "the_spool_is_full_and_the": "spool_full",
    "the_watermark_is_no_longer_stalled": "watermark_advanced",
    "the_watermark_is_stalled_while_spanners": "watermark_stalled",
    "the_sinks_output_has_a_limitation": "sink_warning",
}
"""The actions of messages whose first words make no good name; where a message is reworded, its words change here."""


class Log:
    """A module's logger: ``log.info("epoch sealed", epoch=7)``.

    A field ``action`` names the action; without it the first words of the message do (:func:`action_of`). A message
    that is not constant needs one.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: object) -> None:
        """Logs details, for debugging."""
        self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: object) -> None:
        """Logs normal operation."""
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: object) -> None:
        """Logs what people should know, and what the process copes with."""
        self._logger.warning(message, extra={"fields": fields})

    def error(self, message: str, **fields: object) -> None:
        """Logs what people must look at."""
        self._logger.error(message, extra={"fields": fields})


def action_of(message: str) -> str:
    """The action of a constant message: its words up to the first mark, at most six, in snake case."""
    clause = re.split(r"[:;,.(]", message.replace("'", ""), maxsplit=1)[0]
    words = "_".join(re.findall(r"[a-z0-9]+", clause.lower())[:_WORDS]) or "log"
    return ACTIONS.get(words, words)


def _with_paths(value: object) -> object:
    """The value of a field, such as a hint or an error, with the paths of the commands that it names."""
    return _named[0](str(value)) if isinstance(value, str | BaseException) else value


class _Formatter(logging.Formatter):
    def _timestamp(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @staticmethod
    def _fields(record: logging.LogRecord) -> dict[str, object]:
        fields = getattr(record, "fields", None)
        return {name: _with_paths(value) for name, value in fields.items()} if isinstance(fields, dict) else {}

    @staticmethod
    def _message(record: logging.LogRecord) -> str:
        """The message, without texts of exceptions that a library repeats, because they may hold a row's values."""
        message = _named[0](record.getMessage())
        return message if hasattr(record, "fields") else re.split(r"exception=|Traceback \(", message)[0]

    @staticmethod
    def _action(record: logging.LogRecord, fields: dict[str, object]) -> str:
        if not hasattr(record, "fields"):
            return record.name.partition(".")[0]
        return str(fields.pop("action", "")) or action_of(record.msg)

    @staticmethod
    def _exception(record: logging.LogRecord) -> str:
        return whereabouts(record.exc_info[1]) if record.exc_info and record.exc_info[1] else ""

    def _line_of_json(self, record: logging.LogRecord, head: dict[str, object]) -> str:
        """An object that begins with ``head``; then come the action, the logger and the fields."""
        fields = self._fields(record)
        node = {
            **head,
            "action": self._action(record, fields),
            "logger": record.name,
            **{f"{name}_" if name in _RESERVED else name: value for name, value in fields.items()},
        }
        if exception := self._exception(record):
            node["exception"] = exception
        return orjson.dumps(node, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextFormatter(_Formatter):
    """``2026-01-31T12:00:00.000Z INFO epoch sealed epoch=7``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        given = self._fields(record)
        self._action(record, given)
        fields = "".join(f" {name}={_quoted(value)}" for name, value in given.items())
        line = f"{self._timestamp(record)} {record.levelname} {self._message(record)}{fields}"
        exception = self._exception(record)
        return f"{line}\n{exception}" if exception else line


class JsonFormatter(_Formatter):
    """One JSON object a line: severity, time, message, action, logger and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        head: dict[str, object] = {
            "severity": SEVERITY.get(record.levelname, record.levelname),
            "time": self._timestamp(record),
            "message": self._message(record),
        }
        return self._line_of_json(record, head)


class HclogFormatter(_Formatter):
    """One JSON object a line as go-hclog writes it, for a program that has started this one as a plugin."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; with other than six digits of a second it would be no line of hclog's."""
        head: dict[str, object] = {
            "@level": _HCLOG_LEVELS.get(record.levelname, record.levelname.lower()),
            "@message": self._message(record),
            "@timestamp": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return self._line_of_json(record, head)


def _json_formatter() -> JsonFormatter | HclogFormatter:
    return HclogFormatter() if os.environ.get(STYLE) == HCLOG else JsonFormatter()


class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines to stderr, each over the line of progress that is drawn on the terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        if drawn_on() is self.stream:
            self.stream.write(CLEARED)
        super().emit(record)


_named: list[Callable[[str], str]] = [str]
_drawn: list[TextIO] = []


def drawn_on() -> TextIO | None:
    """The terminal on whose last line progress is drawn; None if there is none."""
    return _drawn[0] if _drawn else None


def draw(screen: TextIO, text: str) -> None:
    """Draws a line of progress, as far as it fits; an empty text removes it.

    The cursor stays in its first column, so that a line of a log is written over it.
    """
    _drawn[:] = [screen] if text else []
    fitting = text[: shutil.get_terminal_size().columns - 1]
    with suppress(OSError):  # the terminal has gone
        screen.write(f"{CLEARED}{fitting}\r" if text else CLEARED)
        screen.flush()


def _quoted(value: object) -> str:
    text = str(value)
    return orjson.dumps(text).decode() if not text or any(c in text for c in ' "=\n') else text


def whereabouts(error: BaseException) -> str:
    """The traceback of an exception and of its causes, causes first: frames and types.

    Their messages are omitted, because these may hold a row's values.
    """
    return "".join(_whereabouts(error, set()))


def _whereabouts(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen:  # a group may be the cause of one of its members
        return
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    for earlier in (*([cause] if cause else []), *(error.exceptions if isinstance(error, BaseExceptionGroup) else [])):
        yield from _whereabouts(earlier, seen)
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}\n"


def say(program: str, line: str, *, action: str, level: int = logging.INFO, **fields: object) -> None:
    """Logs a program's line on stderr: for people with time, level and the program, or as JSON with the fields.

    Args:
        program: that logs it.
        line: for people, complete without the fields.
        action: its name.
        level: of :mod:`logging`.
        fields: for machines.
    """
    if _is_json():
        _put(_json_formatter().format(_record(program, level, line, {"action": action, **fields})))
    else:
        _put(TextFormatter().format(_record(program, level, f"{program}: {line}", {"action": action})))


def complain(program: str, line: str, *, action: str, error: BaseException | None = None, **fields: object) -> None:
    """Prints the error that ends a program on stderr: as ``program: line`` for people, or as JSON with the fields.

    Args:
        program: that ends.
        line: for people, complete without the fields.
        action: its name.
        error: whose frames and types are printed too, without messages.
        fields: for machines.
    """
    frames = whereabouts(error) if error else ""
    if _is_json():
        node = {"action": action, **fields, **({"frames": frames} if frames else {})}
        _put(_json_formatter().format(_record(program, logging.ERROR, line, node)))
    else:
        _put(f"{frames}{program}: {_named[0](line)}")


def _record(program: str, level: int, line: str, fields: dict[str, object]) -> logging.LogRecord:
    record = logging.LogRecord(program, level, "", 0, line, None, None)
    record.fields = fields
    return record


def _put(text: str) -> None:
    cleared = CLEARED if drawn_on() is sys.stderr else ""
    with suppress(OSError):  # a stderr that cannot be written must not change what the process does
        sys.stderr.write(f"{cleared}{text}\n")
        sys.stderr.flush()


def style() -> tuple[bool, bool]:
    """The logging style of this process, to start another likewise: (as JSON, verbose)."""
    return _is_json(), logging.getLogger("connector").isEnabledFor(logging.DEBUG)


def style_arguments() -> list[str]:
    """The arguments with which a process logs as this process does."""
    as_json, verbose = style()
    return [*(["--log-format", "json"] if as_json else []), *(["--verbose"] if verbose else [])]


def _is_json() -> bool:
    return any(
        isinstance(handler.formatter, (JsonFormatter, HclogFormatter)) for handler in logging.getLogger().handlers
    )


def configure(*, json: bool, verbose: bool, named: Callable[[str], str] = str) -> None:
    """Sends the logs of this process to stderr.

    Args:
        json: an object a line instead of text.
        verbose: details, too.
        named: makes the text that is logged of each message, such as one with paths in the commands it names.
    """
    _named[:] = [named]
    handler = _Handler(sys.stderr)
    handler.setFormatter(_json_formatter() if json else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(json)
    for name in ("connector", "spark_sink"):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)


def terminal() -> TextIO | None:
    """The terminal to which this process writes its logs as text; None if it writes them elsewhere, or as JSON."""
    is_text = any(isinstance(handler.formatter, TextFormatter) for handler in logging.getLogger().handlers)
    return sys.stderr if is_text and sys.stderr.isatty() else None


def pass_on() -> None:
    """Has Python processes that this one starts through Spark log as it does."""
    as_json, verbose = style()
    os.environ[STYLE] = f"{'json' if as_json else 'text'}{',verbose' if verbose else ''}"


def _configure_from_environment() -> None:
    """Configures a process that Spark has started; others have arguments."""
    given = os.environ.get(STYLE)
    if given and not logging.getLogger().handlers:
        configure(json=given.startswith("json"), verbose=given.endswith("verbose"))


_configure_from_environment()
