"""Values of a configuration: durations, sizes and points in time. Pure.

Durations are written ``1s``, ``250ms``, ``15m``, ``2h``, ``7d``; sizes ``64MB`` (powers of ten) or ``64MiB`` (powers
of two); points in time ``now``, ``-15m`` or an RFC 3339 timestamp.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from connector.core.timestamps import SECOND, parse

OLDEST = "oldest"
"""The start of a sink with what the spool keeps."""

_UNITS = {"ms": SECOND // 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
_SIZES: Mapping[str, int] = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}


def parse_duration(value: object) -> int:
    """Nanoseconds of a duration such as ``1s`` or ``250ms``; a bare number counts seconds.

    Raises:
        ValueError: it is not a valid duration.
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)?", str(value).strip(), re.ASCII)
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a valid duration: write 1s, 250ms or 15m")
    whole, _, fraction = match[1].partition(".")
    unit = _UNITS[match[2] or "s"]
    return int(whole) * unit + int(fraction.ljust(9, "0") or 0) * unit // SECOND


def parse_size(value: object) -> int:
    """Bytes of a size such as ``250MB`` or ``10GiB``; a bare number counts bytes.

    Raises:
        ValueError: it is not a valid size.
    """
    match = re.fullmatch(r"(\d{1,18})\s*([KMGT]?i?B?)", str(value).strip(), re.ASCII)
    if match is None or match[2] not in _SIZES or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a valid size: write 64MB or 10GiB")
    return int(match[1]) * _SIZES[match[2]]


def parse_timestamp(value: object) -> str:
    """The text of a point in time: ``now``, an offset such as ``-15m``, or an RFC 3339 timestamp.

    Raises:
        ValueError: it is none of these.
    """
    if hasattr(value, "isoformat"):
        raise ValueError("put the timestamp in quotes, or YAML drops its nanoseconds")
    text = str(value).strip()
    if text == "now":
        return text
    if text.startswith("-"):
        parse_duration(text[1:])
        return text
    try:
        parse(text)
    except (ValueError, IndexError):
        raise ValueError(f"{text!r} is not a valid timestamp: write now, -15m, or 2026-01-31T12:00:00Z") from None
    return text


def parse_sink_start(value: object) -> str:
    """The text of the start of a sink: ``oldest``, or a point in time as of :func:`parse_timestamp`.

    Raises:
        ValueError: it is none of these.
    """
    try:
        return OLDEST if value == OLDEST else parse_timestamp(value)
    except ValueError as error:
        raise ValueError(str(error).replace("write now,", f"write {OLDEST}, now,")) from None


def resolve_timestamp(text: str, now: int) -> int:
    """Nanoseconds since 1970 of a text that :func:`parse_timestamp` has accepted; ``now`` is Spanner's clock."""
    if text == "now":
        return now
    if text.startswith("-"):
        return now - parse_duration(text[1:])
    return parse(text)


def is_relative(text: str) -> bool:
    """True if a point in time depends on the clock: ``now`` or an offset."""
    return text == "now" or text.startswith("-")


Duration = Annotated[int, BeforeValidator(parse_duration)]
"""Nanoseconds."""

Size = Annotated[int, BeforeValidator(parse_size)]
"""Bytes."""

TimestampText = Annotated[str, BeforeValidator(parse_timestamp)]
"""A point in time as it was written; :func:`resolve_timestamp` makes nanoseconds of it."""

SinkStartText = Annotated[str, BeforeValidator(parse_sink_start)]
"""The start of a sink as it was written."""
