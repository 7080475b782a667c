"""Checks that the subjects of commits have at most 72 characters; `make lint` runs it.

Commits up to BASE are exempt: they are older than the rule. So are the subjects that git writes itself, of merges and
reverts. Without git, outside a repository, or in a shallow clone that lacks BASE, there is nothing to check.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

BASE = "73dc13c"
"""The last commit before the rule."""

LONGEST = 72
"""The most characters of a subject."""

_EXEMPT = ("Merge ", "Revert ")


def main(folder: Path, base: str = BASE) -> int:
    """Prints each commit after `base` whose subject is too long; returns the exit code, 1 if there is one."""
    faulty = list(too_long(subjects(folder, base)))
    for commit, subject in faulty:
        print(  # noqa: T201
            f"commit {commit}: its subject has {len(subject)} characters, more than {LONGEST}: {subject}\n"
            f"  shorten it (git commit --amend, or git rebase -i {commit}^), and put the reason into the body",
            file=sys.stderr,
        )
    return 1 if faulty else 0


def subjects(folder: Path, base: str) -> list[tuple[str, str]]:
    """The abbreviated hash and the subject of every commit after `base`; empty if git does not know `base`."""
    command = ["git", "-C", str(folder), "log", "--format=%h %s", f"{base}..HEAD", "--"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:  # git is not installed
        return []
    if done.returncode != 0:
        return []
    return [(commit, subject) for commit, _, subject in (line.partition(" ") for line in done.stdout.splitlines())]


def too_long(found: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """Those whose subject is longer than LONGEST characters."""
    return (one for one in found if len(one[1]) > LONGEST and not one[1].startswith(_EXEMPT))


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent))
