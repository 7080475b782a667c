"""The source of a pipeline, with calls as Conduit makes them."""

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

import grpc
import pytest
from google.protobuf.message import Message

from connector.conduit import source_plugin
from connector.conduit.messages import Acknowledgement, Configuration, Opening
from connector.conduit.source_plugin import SourcePlugin
from connector.core.position import Position
from connector.core.timestamps import parse
from connector.errors import DataLostError

SETTINGS = {"project": "p", "instance": "in", "database": "d", "change_stream": "s", "start": "2026-03-01T10:00:00Z"}
POSITION = Position("p/in/d/s", parse("2026-03-02T00:00:00Z"), "t", "1", 0)


class Call:
    """A call that ends with an error."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise grpc.RpcError(code, details)

    async def write(self, message: bytes) -> None:
        del message

    def done(self) -> bool:
        return False


async def _acknowledged(*positions: bytes) -> AsyncIterator[Message]:
    yield Acknowledgement(ack_positions=positions)
    await asyncio.Event().wait()


@pytest.mark.parametrize(("positions", "named"), [((), "Choose a later start"), ((POSITION.to_bytes(),), "pipeline's")])
def test_the_reason_fits_what_conduit_has_processed_meanwhile(
    positions: tuple[bytes, ...], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting `start` helps only where Conduit has no position."""

    async def reading(*_: object, **__: object) -> None:
        await asyncio.sleep(0)  # the acknowledgements are read
        raise DataLostError("it is lost", hint="Choose a later source.start.")

    async def run() -> None:
        plugin = SourcePlugin()
        await plugin.configure(Configuration(config=SETTINGS), Call())
        await plugin.open(Opening(), Call())
        await plugin.run(_acknowledged(*positions), Call())

    monkeypatch.setattr(source_plugin, "read_unspooled", reading)
    with pytest.raises(grpc.RpcError, match=named):
        asyncio.run(run())


SCHEMAS = {f"sdk.schema.extract.{part}.enabled": "true" for part in ("key", "payload")}


def test_refused_settings_are_named_all_at_once_and_nothing_is_opened_with_them() -> None:
    async def run() -> None:
        plugin = SourcePlugin()  # this Conduit has no schema service
        with pytest.raises(grpc.RpcError) as caught:
            await plugin.configure(Configuration(config=SETTINGS | SCHEMAS | {"table": "T"}), Call())
        code, details = caught.value.args
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        for named in ("table: there is no such setting", *SCHEMAS):
            assert named in details
        with pytest.raises(grpc.RpcError):
            await plugin.configure(Configuration(config=SETTINGS | SCHEMAS), Call())
        with pytest.raises(grpc.RpcError, match="before it is configured"):
            await plugin.open(Opening(), Call())

    asyncio.run(run())
