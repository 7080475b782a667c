"""The times for which tables of Delta keep former versions, as properties. Pure."""

import re
from collections.abc import Mapping

from spark_sink.sinks.tables.config import DELTA_RETENTIONS

_UNITS: Mapping[str, int] = {"week": 7 * 24 * 3600, "day": 24 * 3600, "hour": 3600, "minute": 60, "second": 1}
_PART = re.compile(rf"\s*(\d+)\s+({'|'.join(_UNITS)})s?", re.IGNORECASE)


def longer(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Those of the wanted properties that are longer than a table's; one of the table that is not understood stays."""
    return {
        name: value
        for name, value in wanted.items()
        if (of_table := _seconds(found[name]) if name in found else DELTA_RETENTIONS[name]) is not None
        and of_table < (_seconds(value) or 0)
    }


def _seconds(text: str) -> int | None:
    """The seconds of an interval; None if it is not understood."""
    parts = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    if _PART.sub("", parts).strip() or not parts.strip():
        return None
    return sum(int(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(parts))
