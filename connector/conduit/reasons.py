"""The reason why a pipeline does not run, in one line, with the names of Conduit's settings and a hint. Pure.

Errors are written for our own configuration and our own commands. A pipeline has no spool, its settings have no section
``source``, and where it has a position, the setting ``start`` is not used.
"""

import re

from connector.config.sections import SourceConfig
from connector.core.position import Position
from connector.core.timestamps import format_rfc3339
from connector.errors import (
    BeforeStreamError,
    ConfigurationError,
    DataLostError,
    SpannerCdcError,
    StreamGoneError,
    line_and_exit_code,
)

CREATE_AGAIN = "delete the pipeline and create it again"
"""The hint for a position that must be forgotten: Conduit keeps it as long as the pipeline."""

_SECTION = re.compile(rf"(?<![\w.'])source\.(?=(?:{'|'.join(SourceConfig.model_fields)})\b)")
_NOT_HERE = re.compile(r"\bspool\b|\bsealed\b|last epoch|late_records|envelope datastream")
"""Terms of our own commands: a sentence that advises one of them is omitted."""


def reason_of(error: Exception, after: Position | None) -> str:
    """The reason for an error that ends a call of Conduit's.

    Args:
        error: it.
        after: the position from which the pipeline reads, or None if it has none.
    """
    match error:
        case BeforeStreamError() if after is not None:
            later = "a later start" if error.earliest is None else f"start {format_rfc3339(error.earliest)}"
            return (
                f"the pipeline's position, {format_rfc3339(after.commit_timestamp)}, is older than change stream"
                f" {after.stream}: it or its database was created again since, or its retention period was raised."
                f" Changes committed in between are not in the stream. Nothing was skipped. To continue without them,"
                f" {CREATE_AGAIN} with {later}"
            )
        case DataLostError() if after is not None:
            later = (
                "a later start"
                if error.earliest is None
                else f"a start some minutes after {format_rfc3339(error.earliest)}"
            )
            return (
                f"{error.args[0]}: what was committed after the pipeline's position is no longer retained. Nothing was"
                f" skipped. To continue without it, {CREATE_AGAIN} with {later}"
            )
        case StreamGoneError():
            return f"{error.args[0]}. Once there is one again, {CREATE_AGAIN} with a start that it accepts"
        case ConfigurationError():
            return "; ".join(map(in_settings, error.errors))
        case SpannerCdcError():
            sentences = re.split(r"(?<=\.) ", error.hint.replace("--verbose", "log.level debug"))
            hint = " ".join(sentence for sentence in sentences if not _NOT_HERE.search(sentence))
            return in_settings(str(SpannerCdcError(error.args[0], hint=hint)))
        case OSError():
            return line_and_exit_code(error)[0]
        case _:  # the text might hold a row's values
            return f"internal error: {type(error).__name__}; with log.level debug Conduit's log shows where"


def in_settings(text: str) -> str:
    """A text with the settings by their own names, and not by those of our configuration."""
    return _SECTION.sub("", text)
