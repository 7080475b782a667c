"""Frames over a socket: whole or not at all, however they come."""

import asyncio
import socket
from random import Random

import pyarrow as pa
import pytest

from connector.spanner.workers.framed_socket import FramedSocket
from connector.spanner.workers.frames import BytesLike, Cancel, Frame, RowsFrame, framed


def frame(query: int, body: bytes) -> list[BytesLike]:
    return framed(RowsFrame(query, 0, []), [memoryview(body)] if body else [])


@pytest.mark.parametrize("seed", range(5))
def test_frames_of_every_size_come_out_in_order_and_whole(seed: int) -> None:
    random = Random(seed)
    bodies = [random.randbytes(random.choice((0, 1, 5_000, 70_000, 1_000_000))) for _ in range(30)]

    async def crossed() -> list[Frame | None]:
        near, far = socket.socketpair()
        with near, far:
            sender, receiver = FramedSocket(near), FramedSocket(far)

            async def send() -> None:
                buffers = [buffer for query, body in enumerate(bodies) for buffer in frame(query, body)]
                while buffers:
                    some = random.randint(1, 6)
                    await sender.send(buffers[:some])
                    buffers = buffers[some:]
                sender.close()

            sending = asyncio.create_task(send())
            found = [await receiver.receive() for _ in range(len(bodies) + 1)]
            await sending
            return found

    *found, end = asyncio.run(crossed())
    assert end is None
    assert [(got.message.query, (got.body or pa.py_buffer(b"")).to_pybytes()) for got in found] == list(  # type: ignore[union-attr]
        enumerate(bodies)
    )


@pytest.mark.parametrize("left", [1, 11, 13, 100_000])
def test_a_frame_that_breaks_off_is_the_end(left: int) -> None:
    async def crossed() -> list[Frame | None]:
        near, far = socket.socketpair()
        with near, far:
            whole = b"".join([*framed(Cancel(1)), *frame(2, bytes(200_000))])
            sending = asyncio.create_task(FramedSocket(near).send([whole[: -left or None]]))
            receiver = FramedSocket(far)
            first = await receiver.receive()
            await_rest = asyncio.create_task(receiver.receive())
            await sending
            near.close()
            return [first, await await_rest]

    first, broken = asyncio.run(crossed())
    assert first == Frame(Cancel(1), None)
    assert broken is None
