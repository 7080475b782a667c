"""Work in threads whose caller is cancelled meanwhile."""

import asyncio
import threading

import pytest

from connector.threads import tried_in_thread


async def _cancelled_while(work: "asyncio.Task[object]", began: threading.Event, may_end: threading.Event) -> None:
    assert await asyncio.to_thread(began.wait, 60)
    work.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    await asyncio.wait({work})


def test_an_error_that_the_caller_handles_does_not_undo_its_cancellation() -> None:
    began, may_end = threading.Event(), threading.Event()

    def fails() -> int:
        began.set()
        assert may_end.wait(60)
        raise FileNotFoundError

    async def main() -> None:
        task: asyncio.Task[object] = asyncio.create_task(tried_in_thread(FileNotFoundError, fails))
        await _cancelled_while(task, began, may_end)
        assert task.cancelled()

    asyncio.run(main())


def test_an_error_of_the_type_is_returned_and_any_other_is_raised() -> None:
    def fails() -> int:
        raise FileNotFoundError

    assert asyncio.run(tried_in_thread(FileNotFoundError, lambda: 1)) == 1
    assert isinstance(asyncio.run(tried_in_thread(FileNotFoundError, fails)), FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        asyncio.run(tried_in_thread(PermissionError, fails))
