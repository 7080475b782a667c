"""The schema service of a Conduit that does not respond; one that does is in `tests/integration/conduit`."""

import asyncio
import traceback

import grpc
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
            await service.aclose()

    with pytest.raises(SpannerCdcError, match=r"has not registered Singers\.key: DEADLINE_EXCEEDED: "):
        asyncio.run(register())


@pytest.mark.parametrize("why", ['"{token}": invalid token', "{quoted}: invalid token", "a registry says:\n\n  no\r\n"])
def test_the_error_is_one_line_and_does_not_have_the_token_that_conduit_quotes_where_it_refuses_it(why: str) -> None:
    token = '{"value":"secret","connector_id":"pipeline:source"}'
    quoted = '"' + token.replace('"', r"\"") + '"'

    async def refuse(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        del request
        await context.abort(grpc.StatusCode.UNKNOWN, why.replace("{token}", token).replace("{quoted}", quoted))
        raise AssertionError

    async def register() -> None:
        server = grpc.aio.server()
        methods = {"CreateSchema": grpc.unary_unary_rpc_method_handler(refuse)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("connutils.v1.SchemaService", methods)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        service = SchemaService(Utilities(f"127.0.0.1:{port}", token, "c"))
        try:
            await service.register("Singers.key", b"{}")
        finally:
            await service.aclose()
            await server.stop(None)

    with pytest.raises(SpannerCdcError) as caught:
        asyncio.run(register())
    shown = "".join(traceback.format_exception(caught.value))
    assert "has not registered Singers.key: UNKNOWN: " in str(caught.value)
    assert "secret" not in shown
    assert caught.value.message == " ".join(caught.value.message.split())
