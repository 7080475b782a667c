from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.core.timestamps import MINUTE, SECOND, format_lag, format_rfc3339, parse

nanoseconds = st.integers(
    int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * SECOND,
    int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * SECOND,
)


@given(nanoseconds)
def test_what_is_written_is_read_back(nanos: int) -> None:
    assert parse(format_rfc3339(nanos)) == nanos


@given(nanoseconds)
def test_text_is_that_of_an_independent_calendar(nanos: int) -> None:
    seconds, fraction = divmod(nanos, SECOND)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    text = f"{moment.year:04}-{moment:%m-%dT%H:%M:%S}"
    assert format_rfc3339(nanos)[:19] == text
    assert parse(f"{text}.{fraction:09}Z") == nanos


@given(nanoseconds, st.integers(-14 * 60, 14 * 60))
def test_an_offset_is_the_same_instant(nanos: int, minutes: int) -> None:
    local = format_rfc3339(nanos + minutes * MINUTE)[:-1]
    if len(local.partition("-")[0]) == 4 and not local.startswith("-"):
        sign = "+" if minutes >= 0 else "-"
        hours, rest = divmod(abs(minutes), 60)
        assert parse(f"{local}{sign}{hours:02}:{rest:02}") == nanos


@given(st.integers(0, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_texts_of_equal_precision_sort_as_instants(one: int, other: int) -> None:
    texts = [format_rfc3339(one * 1000), format_rfc3339(other * 1000)]
    assert (texts[0] < texts[1]) == (one < other)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("2026-01-02T03:04:05.1Z", 1767323045100000000),
        ("2026-01-02T03:04:05.123456789Z", 1767323045123456789),
        ("2026-01-02t03:04:05.123456789z", 1767323045123456789),
        ("2026-01-02 03:04:05.123456789+00", 1767323045123456789),
        ("2026-01-02T04:34:05.5+01:30", 1767323045500000000),
        ("2026-01-01T22:04:05-0500", 1767323045000000000),
        ("2024-02-29T00:00:00Z", 1709164800000000000),
        ("2000-02-29T00:00:00Z", 951782400000000000),
        ("2016-12-31T23:59:60Z", 1483228800000000000),
    ],
)
def test_every_form_that_spanner_writes_is_read(text: str, nanos: int) -> None:
    assert parse(text) == nanos


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (1000, "1970-01-01T00:00:00.000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1709164800 * SECOND, "2024-02-29T00:00:00.000000Z"),
    ],
)
def test_six_digits_are_written_or_nine_where_they_are_needed(nanos: int, text: str) -> None:
    assert format_rfc3339(nanos) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.123",
        "2026-13-02T03:04:05Z",
        "2026-00-02T03:04:05Z",
        "2026-02-29T03:04:05Z",
        "1900-02-29T03:04:05Z",
        "2026-01-00T03:04:05Z",
        "2026-01-02T24:04:05Z",
        "2026-01-02T03:60:05Z",
        "2026-01-02T03:04:61Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05.1234567891Z",
        "2026-01-02T03:04:05.1234567891+00:00",
        "2026-01-02T03:04:05.1_2Z",
        "2026-01-02T03:04:05.+12Z",
        "2026-01-02T03:04:05. 12Z",
        "2026x01x02T03x04x05Z",
        "2026-01-02T+3:04:05Z",
        "2026-01-02T03:04:05Z ",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T03:04:05+01:60",
    ],
)
def test_text_that_is_not_a_timestamp_with_a_zone_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"timestamp|not a valid"):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.44, "0.4 s"),
        (25.2, "25 s"),
        (119, "119 s"),
        (900, "15 min"),
        (7200, "2.0 h"),
        (86_356, "24.0 h"),
        (604_709, "7.0 days"),
    ],
)
def test_a_lag_is_in_the_unit_that_people_would_take(seconds: float, text: str) -> None:
    assert format_lag(round(seconds * SECOND)) == text
