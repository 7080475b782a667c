"""The timestamp of a snapshot is one that Spanner's clock has passed."""

import asyncio

import pytest

from connector.core.dialects import GOOGLESQL, POSTGRESQL
from connector.core.timestamps import MINUTE, SECOND, format_rfc3339
from connector.errors import ConfigurationError
from connector.spanner.snapshot.database import DatabaseNow
from tests.connector.spanner.snapshot.scripted import serving, source_of


@pytest.mark.parametrize("dialect", [GOOGLESQL, POSTGRESQL], ids=lambda dialect: dialect.name)
def test_now_is_spanners_clock_in_microseconds_and_offsets_count_from_it(dialect: object) -> None:
    with serving(dialect=getattr(dialect, "name", "")) as server:
        source = source_of(server)
        before = server.now
        now = asyncio.run(DatabaseNow.of(source.address))
        assert before - 1000 < now.timestamp <= server.now
        assert (now.dialect, now.timestamp % 1000) == (dialect, 0)
        earlier = asyncio.run(DatabaseNow.of(source.address, at="-15m"))
        assert now.timestamp - 15 * MINUTE <= earlier.timestamp < now.timestamp
        exact = format_rfc3339(before - 5 * SECOND)
        assert asyncio.run(DatabaseNow.of(source.address, at=exact)).timestamp == before - 5 * SECOND


def test_a_timestamp_in_the_future_is_refused_in_one_line() -> None:
    with serving() as server:
        source = source_of(server)
        with pytest.raises(ConfigurationError, match="the timestamp 2999-01-01T00:00:00Z is in the future: it is 2"):
            asyncio.run(DatabaseNow.of(source.address, at="2999-01-01T00:00:00Z"))
