"""Structured logs on stderr, as text or JSON: constant messages with fields.

A row's values are never logged; fields are names, counts and timestamps.
"""

import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TextIO

import orjson


class Log:
    """A module's logger: ``log.info("epoch sealed", epoch=7)``."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: object) -> None:
        """Logs details, for the search for an error."""
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


class _Formatter(logging.Formatter):
    def _timestamp(self, record: logging.LogRecord) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @staticmethod
    def _fields(record: logging.LogRecord) -> dict[str, object]:
        fields = getattr(record, "fields", None)
        return fields if isinstance(fields, dict) else {}


class TextFormatter(_Formatter):
    """``2026-01-31T12:00:00.000Z INFO epoch sealed epoch=7``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = "".join(f" {name}={_quoted(value)}" for name, value in self._fields(record).items())
        line = f"{self._timestamp(record)} {record.levelname} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(_Formatter):
    """One JSON object a line: time, level, message, logger and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        node: dict[str, object] = {
            "time": self._timestamp(record),
            "level": record.levelname,
            "message": record.getMessage(),
            "logger": record.name,
            **self._fields(record),
        }
        if record.exc_info:
            node["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(node, default=str).decode()


def _quoted(value: object) -> str:
    text = str(value)
    return orjson.dumps(text).decode() if not text or any(c in text for c in ' "=\n') else text


def whereabouts(error: BaseException) -> str:
    """The traceback of an exception and of its causes, causes first: frames and types.

    Their messages are omitted, for these may hold a row's values.
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


def style() -> tuple[bool, bool]:
    """How this process logs, to start another likewise: whether as JSON, and whether verbosely."""
    as_json = any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)
    return as_json, logging.getLogger("connector").isEnabledFor(logging.DEBUG)


def configure(*, json: bool, verbose: bool) -> None:
    """Sends the logs of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for name in ("connector", "spark_sink"):
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else logging.INFO)


def terminal() -> TextIO | None:
    """The terminal to which this process writes its logs as text; None if it writes them elsewhere, or as JSON."""
    is_text = any(isinstance(handler.formatter, TextFormatter) for handler in logging.getLogger().handlers)
    return sys.stderr if is_text and sys.stderr.isatty() else None
