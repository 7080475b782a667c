"""Timestamps as integers of nanoseconds since 1970-01-01T00:00:00Z.

Spanner writes commit timestamps as RFC 3339 text, with ``Z`` in GoogleSQL and an offset in the PostgreSQL
dialect, and with as many digits of a second as they need. Floats and datetimes lose digits, so inside there
are only integers; they are formatted at the edges, with every digit that Spanner sent.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

MICROSECOND, MILLISECOND = 1000, 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND

_RFC_3339 = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:[Zz]|([+-])([01]\d|2[0-3]):?([0-5]\d)?)", re.ASCII
)
_SECOND = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def _days_from_civil(year: int, month: int, day: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    length = 29 if month == 2 and leap else (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]
    if not 1 <= day <= length:
        raise ValueError(f"not a valid date: {year:04}-{month:02}-{day:02}")
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    days += _DAYS_BEFORE_MONTH[month - 1] + (1 if leap and month > 2 else 0) + day - 1
    return days - 719162


@lru_cache(maxsize=4096)
def second(text: str) -> int:
    """Unix seconds of ``YYYY-MM-DDTHH:MM:SS``; many records share one.

    Raises:
        ValueError: the text is not a valid date and time.
    """
    if _SECOND.fullmatch(text) is None:
        raise ValueError(f"not an RFC 3339 timestamp: {text!r}")
    hour, minute, second = int(text[11:13]), int(text[14:16]), int(text[17:19])
    if hour > 23 or minute > 59 or second > 60:
        raise ValueError(f"not a valid time: {text}")
    month = int(text[5:7])
    if not 1 <= month <= 12:
        raise ValueError(f"not a valid month: {text}")
    days = _days_from_civil(int(text[0:4]), month, int(text[8:10]))
    return days * 86400 + hour * 3600 + minute * 60 + second


def parse(text: str) -> int:
    """Unix nanoseconds of an RFC 3339 timestamp of up to nine fractional digits.

    Raises:
        ValueError: the text is not an RFC 3339 timestamp with a zone.
    """
    if text[-1:] == "Z" and text[19:20] == "." and text[10:11] == "T":
        digits = text[20:-1]
        if 1 <= len(digits) <= 9 and digits.isascii() and digits.isdigit():
            return second(text[:19]) * SECOND + int(digits.ljust(9, "0"))
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 timestamp with a zone: {text!r}")
    day, time, fraction, sign, hours, minutes = match.groups()
    nanos = second(f"{day}T{time}") * SECOND + int((fraction or "0").ljust(9, "0"))
    if sign:
        offset = (int(hours) * 3600 + int(minutes or 0) * 60) * SECOND
        nanos += offset if sign == "-" else -offset
    return nanos


def unix_nanoseconds(time: datetime) -> int:
    """Unix nanoseconds of a time with a zone, as other libraries return it."""
    return (time - _EPOCH) // timedelta(microseconds=1) * MICROSECOND


@lru_cache(maxsize=4096)
def format_second(second: int) -> str:
    """``YYYY-MM-DDTHH:MM:SS``, in UTC, of Unix seconds."""
    days, rest = divmod(second, 86400)
    # Howard Hinnant's civil_from_days, with eras of 400 years beginning on the first of March
    days += 719468
    era, day_of_era = divmod(days, 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{year:04}-{month:02}-{day:02}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def format_rfc3339(nanos: int) -> str:
    """The RFC 3339 text, in UTC with ``Z``, of Unix nanoseconds.

    It has six fractional digits, or nine where the nanoseconds need them, so that equal precision sorts as text.
    """
    second, fraction = divmod(nanos, SECOND)
    digits = f"{fraction // 1000:06}" if fraction % 1000 == 0 else f"{fraction:09}"
    return f"{format_second(second)}.{digits}Z"


_HOUR, _DAY = 60 * MINUTE, 1440 * MINUTE
_LAGS = (
    (2 * _DAY, _DAY, 1, "days"),
    (2 * _HOUR, _HOUR, 1, "h"),
    (2 * MINUTE, MINUTE, 0, "min"),
    (10 * SECOND, SECOND, 0, "s"),
)
_UNITS = (("d", _DAY), ("h", _HOUR), ("m", MINUTE), ("s", SECOND))


def format_lag(nanos: int) -> str:
    """A length of time for people, as on the status page: ``0.4 s``, ``25 s``, ``15 min``, ``24.0 h``, ``6.5 days``."""
    for least, unit, digits, name in _LAGS:
        if nanos >= least:
            return f"{nanos / unit:.{digits}f} {name}"
    return f"{nanos / SECOND:.1f} s"


def format_duration(nanos: int) -> str:
    """A duration as configuration has it, in the largest unit that it has one of: ``7d``, ``1.5h``, ``0.25s``."""
    name, unit = next((one for one in _UNITS if nanos >= one[1]), _UNITS[-1])
    return f"{nanos / unit:.3g}{name}"
