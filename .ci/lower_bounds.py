"""Prints the oldest versions that pyproject.toml allows, one requirement a line, for pip."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

NOT_NEEDED = {"coverage", "import-linter", "matplotlib", "mypy", "pandas", "ruff", "types-PyYAML"}
"""Tools that check, measure or draw, and what Spark Connect alone needs: only their newest versions are run."""

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([a-z,]+)\])?(?:(>=|==)([0-9][0-9a-z.]*))?(?:,<[0-9.]+)?")


def main() -> None:
    """Prints the requirements; one without a lower bound is an error."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    given = [*project["dependencies"], *(each for extra in extras.values() for each in extra)]
    print("\n".join(sorted(set(oldest(given, project["name"], extras)))))  # noqa: T201


def oldest(requirements: list[str], name: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """Yields the oldest version of each requirement; an extra of the project itself is replaced by its requirements."""
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
            yield f"{package}=={version}"


if __name__ == "__main__":
    main()
