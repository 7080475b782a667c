"""The options of a Spark source: Spark passes every name, in any case."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches


def unknown(given: Iterable[str], known: Sequence[str]) -> list[str]:
    """The error for unknown option names: one sentence, with the names that were probably meant, or none.

    Args:
        given: names as Spark passes them.
        known: the options, as they are documented.
    """
    by_name = {name.lower(): name for name in known}
    strange = sorted(name for name in given if name.lower() not in by_name)
    if not strange:
        return []
    close = [by_name[found] for name in strange for found in get_close_matches(name.lower(), by_name, n=1)]
    meant = f"; did you mean {', '.join(dict.fromkeys(close))}?" if close else ""
    return [f"unknown option {', '.join(strange)}{meant} (known: {', '.join(known)})"]


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """The options with names in lower case, and without space around their values."""
    return {name.lower(): value.strip() for name, value in options.items()}


def refused(option: str, value: str, check: Callable[[str], object]) -> list[str]:
    """The error for a value that a check refuses with a ValueError, or none."""
    try:
        check(value)
    except ValueError as error:
        return [f"option {option}: {error}"]
    return []


def listed(option: str, given: Mapping[str, str], faults: list[str], *, what: str) -> tuple[str, ...]:
    """The names in an option, separated by commas; an option that is given without any is a fault."""
    names = tuple(name.strip() for name in given.get(option, "").split(",") if name.strip())
    if option in given and not names:
        faults.append(f"option {option} is empty: name {what}, or omit it")
    return names
