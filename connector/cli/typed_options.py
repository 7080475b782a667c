"""Errors of commands without a configuration file name its options as they were typed: --start, not source.start."""

import re
from collections.abc import Collection, Mapping

_OTHERS: Mapping[str, str] = {"source.tables": "--table", "envelope.format": "--envelope"}
"""Options of a configuration file that have another name on the command line."""

_OPTION = re.compile(r"\b(source|envelope)\.([a-z_]+)(?:\.(?:include|exclude))?(?![\w/])")


def as_typed(line: str, options: Collection[str]) -> str:
    """A line in which the options of a configuration file have their names on the command line.

    Args:
        line: an error.
        options: those that the command has, with their hyphens; others keep their names.
    """

    def renamed(found: re.Match[str]) -> str:
        name = f"{found[1]}.{found[2]}"
        typed = _OTHERS.get(name, f"--{found[2].replace('_', '-')}")
        return typed if typed in options else found[0]

    return _OPTION.sub(renamed, line)
