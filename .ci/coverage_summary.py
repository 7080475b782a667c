"""Combines the coverage data of the test processes and prints a summary: totals per package, the least covered files.

Coverage.py writes the data where COVERAGE_FILE says. A percentage counts statements and branches together.
"""

from __future__ import annotations

import io
import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import PurePath

import coverage

LEAST_COVERED = 10
"""The number of least covered files that are printed."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Statements and branches of a file or of a package, and how many of them the tests ran."""

    statements: int = 0
    covered_statements: int = 0
    branches: int = 0
    covered_branches: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.statements + other.statements,
            self.covered_statements + other.covered_statements,
            self.branches + other.branches,
            self.covered_branches + other.covered_branches,
        )

    @property
    def percent(self) -> float:
        """Covered statements and branches of all, from 0 to 100; 100 for an empty file."""
        everything = self.statements + self.branches
        return 100 * (self.covered_statements + self.covered_branches) / everything if everything else 100.0

    @property
    def missed(self) -> int:
        """Statements and branches that no test ran."""
        return self.statements + self.branches - self.covered_statements - self.covered_branches


def main() -> int:
    """Combines the data and prints the summary; returns the exit code, 1 if there is no data."""
    measured = coverage.Coverage()
    try:
        with redirect_stdout(io.StringIO()) as printed:
            measured.combine()
            measured.json_report(outfile="-")
    except coverage.CoverageException as error:
        print(f"coverage summary: {error}; run the tests with COVERAGE=1 first", file=sys.stderr)  # noqa: T201
        return 1
    print("\n".join(summary(totals_by_file(json.loads(printed.getvalue())))))  # noqa: T201
    return 0


def totals_by_file(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, Totals]:
    """Reads the totals of each file out of a JSON report of coverage.py."""
    return {
        path: Totals(
            file["summary"]["num_statements"],
            file["summary"]["covered_lines"],
            file["summary"]["num_branches"],
            file["summary"]["covered_branches"],
        )
        for path, file in report["files"].items()
    }


def summary(files: dict[str, Totals]) -> Iterable[str]:
    """The lines of the summary: the totals of each package and of all, then the least covered files."""
    packages: dict[str, Totals] = defaultdict(Totals)
    for path, totals in files.items():
        packages[PurePath(path).parts[0]] += totals
        packages["total"] += totals
    yield f"{'branch coverage':<48} {'statements':>10} {'branches':>9} {'missed':>7} {'covered':>8}"
    for name, totals in packages.items():
        if name != "total":
            yield _line(name, totals)
    yield _line("total", packages["total"])
    yield "least covered files:"
    for path in sorted(files, key=lambda path: (files[path].percent, path))[:LEAST_COVERED]:
        yield _line(path, files[path])


def _line(name: str, totals: Totals) -> str:
    return f"{name:<48} {totals.statements:>10} {totals.branches:>9} {totals.missed:>7} {totals.percent:>7.1f}%"


if __name__ == "__main__":
    sys.exit(main())
