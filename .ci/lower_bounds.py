"""Prints the oldest versions that pyproject.toml allows, one requirement a line, for pip."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

EXTRAS = ("all", "dev")
NOT_NEEDED = {"import-linter", "mypy", "ruff", "types-PyYAML"}
"""Look at the sources only, and are run with the newest versions."""

REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([a-z,]+)\])?(?:(>=|==)([0-9][0-9a-z.]*))?")


def main() -> None:
    """Prints them; a requirement that has no lower bound is an error."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    given = [*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])]
    print("\n".join(sorted(set(oldest(given, project["name"], extras)))))  # noqa: T201


def oldest(requirements: list[str], name: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """The oldest version of each requirement; extras of the project itself are taken apart."""
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"{requirement}: not of the form name>=version")
        package, wanted, _, version = match.groups()
        if package == name:
            yield from oldest([each for extra in wanted.split(",") for each in extras[extra]], name, extras)
        elif package not in NOT_NEEDED:
            if version is None:
                raise SystemExit(f"{requirement}: it has no lower bound")
            yield f"{package}=={version}"


if __name__ == "__main__":
    main()
