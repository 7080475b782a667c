"""Errors of commands without a configuration file name its options as they were typed: --start, not source.start."""

import re
from collections.abc import Collection, Mapping

_OTHERS: Mapping[str, str] = {
    "source.tables": "--table",
    "source.tables.include": "--table",
    "envelope.format": "--envelope",
}
"""Options of a configuration file that have another name on the command line."""

_TWICE = re.compile(r"(, )?(--[a-z-]+) or \2\b")
"""An option that has one name in a configuration file, and another beside it."""

_OPTION = re.compile(r"\b(?:source|envelope)((?:\.[a-z_]+)+)(?![\w/])")


def as_typed(line: str, options: Collection[str]) -> str:
    """A line in which the options of a configuration file have their names on the command line.

    Args:
        line: an error.
        options: those that the command has, with their hyphens; others keep their names.
    """

    def renamed(found: re.Match[str]) -> str:
        typed = _OTHERS.get(found[0], f"--{re.sub('[._]', '-', found[1][1:])}")
        return typed if typed in options else found[0]

    return _TWICE.sub(lambda found: f"{' or ' if found[1] else ''}{found[2]}", _OPTION.sub(renamed, line))
