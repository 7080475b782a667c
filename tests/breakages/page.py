"""The page docs/proof/breakages.md: made of what was seen, without what differs from run to run."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.breakages.breakage import Exercised

PAGE = Path(__file__).parents[2] / "docs" / "proof" / "breakages.md"

_HEAD = """\
# Breakages

<!-- Made by `python -m tests.breakages`: do not edit. -->

Each breakage happens to a running service that is well: `spanner-cdc read`, or `run` with Spark, in processes of
its own, against a scripted Spanner and real servers on one machine. It must be named within a minute: by an alarm, or
by the line with which the service ends. Then page, `/readyz`, metrics, `status`, exit code and log are read.
`python -m tests.breakages` exercises all of them in a quarter of an hour, and makes this page; a usual test run
repeats some of them, with shorter times until an alarm.

`python -m tests.breakages --draw 10 --seed N --night FOLDER` is a night's exercise: ten of them, drawn at random.
The folder has the picture of each page and what `status` printed, by numbers. Who finds the causes from these alone
compares them with `answers.txt` afterwards.

An alarm of lag waits for five minutes of it, so those scenes begin a quarter of an hour after the breakage. A warning
leaves the exit code of `status` at 0, because the daemon itself can do nothing better. What only a person can conclude:
whether a slow partition is hot or Spanner is loaded, whether a consumer was switched off or hangs, and which of two
daemons is the wanted one.

What differs from run to run is left out: numbers are N, timestamps T, addresses HOST, and partitions have no names.

"""
_BOUNDS = (10, 30, 60)

_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?")
_HOST = re.compile(r"(?:https?://)?(?:ipv4:)?127\.0\.0\.1(?::|%3A)\d+")
_PARTITION = re.compile(r"partition [\w-]+…[\w-]+")
_MACHINE = re.compile(r"(\(process \d+) on [\w.-]+\)")
_RANDOM = re.compile(r"(bucket|sample|scripted)-[0-9a-f]{6,}")
_NUMBER = re.compile(r"(?<![\w.])(?<!code )\d+(?:\.\d+)?(?!\w)(?!\.\d)")
_CODES = frozenset({"200", "401", "403", "404", "503"})
_LOGGED = re.compile(r"^T (DEBUG|INFO|WARNING|ERROR) ")


def stable(text: str, folder: Path) -> str:
    """The text without what differs from run to run."""
    text = text.replace(str(folder), "")
    text = _TIMESTAMP.sub("T", text)
    text = _HOST.sub("HOST", text)
    text = _PARTITION.sub("partition …", text)
    text = _RANDOM.sub(r"\1-…", text)
    text = _MACHINE.sub(r"\1 on …)", text)
    return _NUMBER.sub(lambda found: found[0] if found[0] in _CODES else "N", text)


def page(names: Sequence[str], exercised: Sequence[Exercised], before: str = "") -> str:
    """The page, with breakages in this order; those that were not exercised are as in the page from before."""
    kept = {name: (row, text) for name, row, text in _parts(before)}
    kept |= {one.breakage.name: (_row(one), _section(one)) for one in exercised}
    found = [kept[name] for name in names if name in kept]
    rows = [
        "| breakage | named within | alarm or error | `status` exits with | `/readyz` | the service |",
        "|---|---|---|---|---|---|",
        *(row for row, _ in found),
    ]
    return _HEAD + "\n".join(rows) + "\n\n" + "\n".join(text for _, text in found)


def _parts(text: str) -> Iterator[tuple[str, str, str]]:
    """The name, the row and the section of each breakage of a page."""
    rows = {_name(line): line for line in text.splitlines() if line.startswith("| [")}
    for section in text.split("\n## ")[1:]:
        name = section.partition("\n")[0]
        yield name, rows[name], f"## {section.rstrip()}\n"


def sections_of(text: str) -> dict[str, str]:
    """The sections of a page, by breakage."""
    return {name: section for name, _, section in _parts(text)}


def rows_of(text: str) -> dict[str, list[str]]:
    """The rows of a page's first table, by breakage."""
    table = text.partition("|---|---|---|---|---|---|\n")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]
    return {_name(row[0]): row[1:] for row in cells}


def cells(one: Exercised) -> list[str]:
    """The row of a breakage in the page's first table, without its name."""
    seen = one.seen
    named = next(bound for bound in (*_BOUNDS, 999) if one.seconds < bound)
    wanted = one.breakage.named
    alarms = [name for _, name in seen.alarms or () if not wanted or name in wanted]
    ended = re.search(r"^  ERROR (\w+):", seen.status, re.MULTILINE)
    return [
        f"{named} s",
        ", ".join(f"`{name}`" for name in alarms) or (f"`{ended[1]}`" if ended else "its last line"),
        str(seen.status_code),
        str(seen.ready[0]) if seen.ready else "no answer",
        "runs on" if seen.code is None else f"has ended with {seen.code}",
    ]


def _row(one: Exercised) -> str:
    name = one.breakage.name
    return " | ".join((f"| [{name}](#{_anchor(name)})", *cells(one))) + " |"


def _name(cell: str) -> str:
    found = re.match(r"\[(.+)\]\(", cell.strip("| "))
    assert found is not None, cell
    return found[1]


def _anchor(name: str) -> str:
    return re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-")


def _section(one: Exercised) -> str:
    seen, folder = one.seen, one.folder
    gone = "no answer: the process has ended"
    says = {
        "page": f"{seen.headline}<br>{_alarms(one)}" if seen.alarms is not None else gone,
        "`/readyz`": f"{seen.ready[0]}: {seen.ready[1]}" if seen.ready else gone,
        "metrics": "<br>".join(f"`{name}`" for name in _metrics(one)) if seen.metrics else gone,
        "`status`": f"exit code {seen.status_code}<br>" + "<br>".join(seen.status.splitlines()),
        "the process": "runs on" if seen.code is None else f"exit code {seen.code}",
        "log": _log(one),
    }
    rows = [f"| {what} | {_cell(stable(text, folder))} |" for what, text in says.items()]
    return "\n".join([f"## {one.breakage.name}\n", f"{one.breakage.done}\n", "| what | says |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    kept = text.replace("|", "\\|").replace("<br>", "\n").replace("<", "&lt;").replace("\n", "<br>")
    return " ".join(kept.split())


def _alarms(one: Exercised) -> str:
    return ", ".join(f"{severity} `{name}`" for severity, name in one.seen.alarms or ())


def _metrics(one: Exercised) -> list[str]:
    shown = (
        "spanner_cdc_alarms{",
        "spanner_cdc_state{",
        "spanner_cdc_query_retries_total{",
        "spanner_cdc_sink_restarts_total",
    )
    return [name for name, value in one.seen.metrics.items() if name.startswith(shown) and value > 0]


def _log(one: Exercised) -> str:
    """The line that names it: the last of an alarm, or the last that is not of the log."""
    lines = one.seen.log.splitlines()
    if one.seen.code is None:
        found = [line for line in lines if any(f"alarm={name}" in line for name in one.breakage.named)]
    else:
        found = [line for line in lines if line.startswith("spanner-cdc: ")]
    return (found or [line for line in lines if " WARNING " in line or " ERROR " in line] or ["nothing"])[-1]
