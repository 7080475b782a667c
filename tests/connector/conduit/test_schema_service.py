"""The schema service of a Conduit that does not respond; one that does is in `tests/integration/conduit`."""

import asyncio

import pytest

from connector.conduit.handshake import Utilities
from connector.conduit.schema_service import SchemaService
from connector.errors import SpannerCdcError


def test_a_service_that_does_not_respond_is_an_error_after_the_deadline() -> None:
    async def register() -> None:
        service = SchemaService(Utilities("127.0.0.1:1", "t", "c"), deadline=0.2)
        try:
            await service.register("Singers.key", b"{}")
        finally:
            await service.close()

    with pytest.raises(SpannerCdcError, match=r"has not registered Singers\.key: DEADLINE_EXCEEDED: "):
        asyncio.run(register())
