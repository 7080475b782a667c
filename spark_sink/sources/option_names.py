"""The names of the options of a Spark source: Spark passes every name, in any case."""

from collections.abc import Iterable, Sequence
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
