"""Commands in errors and hints, with the paths that were given. Pure."""

import re
import shlex

_COMMAND = re.compile(r"`spanner-cdc [^`]*`")


def with_paths(text: str, *, config: str = "", spool: str = "") -> str:
    """A text whose commands, ``spanner-cdc`` in backticks, have paths for ``CONFIG`` and for ``PATH``.

    Args:
        text: an error, a hint, or a report.
        config: the configuration file; empty if none was given.
        spool: the spool; empty if it is not known.
    """
    given = {"CONFIG": config or "CONFIG", "PATH": spool or "PATH"}

    def named(command: re.Match[str]) -> str:
        return re.sub(r"\b(?:CONFIG|PATH)\b", lambda word: shlex.quote(given[word[0]]), command[0])

    return _COMMAND.sub(named, text)
