"""The page of troubleshooting by message."""

import re
from collections.abc import Iterable

from tests.docs.messages.catalogue import Message, alarms, error_kinds, errors, logged
from tests.docs.messages.remedies import OF_ACTIONS, OF_ALARMS, OF_ERRORS

_INTRODUCTION = """\
Look for the words of a line here, without the names and numbers in it: these stand as `…`. Commands print an error as
one line on stderr, a service also in `spanner-cdc status` and on its page. After what failed the line says what to do;
that is the last column. Errors of Spanner, Cloud Storage, BigQuery and Spark are quoted in such a line as they came.
[Operations](../operations.md) explains states and alarms.
"""
_CHECK = """\
What `check` and `discover` find is not listed: each of their lines begins with the option or table, and says what
helps.
"""


def messages() -> str:
    """The page: alarms, errors by their class, lines of the log by their action."""
    found = sorted(set(errors()))
    parts = [
        "# Messages, and what to do\n",
        "<!-- Made from the code by `python -m tests.docs.reference`: change the texts there. -->\n",
    ]
    parts += [
        _INTRODUCTION,
        "## Alarms\n",
        _table("alarm", sorted(set(alarms())), OF_ALARMS),
        "",
        "## Errors\n",
        _CHECK,
    ]
    for kind in sorted({one.kind for one in found}):
        about = [one for one in found if one.kind == kind]
        parts += [
            f"### {kind}\n",
            f"{_cell(error_kinds()[kind])} {OF_ERRORS[kind]}\n",
            "| message | what to do |",
            "|---|---|",
        ]
        parts += [f"| {_cell(one.text)} | {_cell(one.remedy) or 'see above'} |" for one in about]
        parts.append("")
    parts += ["## The log\n", "Warnings and errors of the log, by the action that `--log-format json` names.\n"]
    parts += [_table("action", sorted(set(logged())), OF_ACTIONS), ""]
    return "\n".join(parts)


def _table(name: str, found: Iterable[Message], remedies: dict[str, str]) -> str:
    rows = [f"| {name} | level | message | what to do |", "|---|---|---|---|"]
    for one in found:
        remedy = _cell(one.remedy) or remedies[one.kind]
        rows.append(f"| `{one.kind}` | {one.level} | {_cell(one.text)} | {remedy} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    """A text as a cell of a table, with what is markup in it shown as it is."""
    plain = " ".join(text.split()).replace("``", "`")
    parts = re.split(r"(`[^`]*`)", plain)
    shown = [part if part.startswith("`") and len(part) > 1 else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts]
    return "".join(shown).replace("|", "\\|")
