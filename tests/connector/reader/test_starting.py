"""The start of reading if the change stream is younger than the configured offset."""

import asyncio
from types import SimpleNamespace

import pytest

from connector.core.timestamps import SECOND
from connector.errors import BeforeStreamError, DataLostError
from connector.reader.starting import start_of

NOW = 1_800_000_000 * SECOND
CREATED = NOW - 100 * SECOND + 123_456_000


class YoungStream:
    """A change stream that can be read since it was created."""

    now = NOW
    stream = SimpleNamespace(name="Young")

    def resolve(self, text: str) -> int:
        return NOW - int(text.strip("-s")) * SECOND

    async def probe(self, start: int) -> None:
        if start < CREATED:
            raise DataLostError("too old")

    async def check_start(self, start: int, end: int | None) -> None:
        if start < CREATED:
            raise BeforeStreamError(["too old"])


@pytest.mark.parametrize("seconds", [101, 900, 30 * 86400])
def test_nothing_that_a_young_stream_has_is_before_the_start(seconds: int) -> None:
    start = asyncio.run(start_of(YoungStream(), f"-{seconds}s", None))  # type: ignore[arg-type]
    assert CREATED <= start <= CREATED + 1000
