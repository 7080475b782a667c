"""Calls of the destination that fail and may succeed when they are done again: how, and for how long."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from connector.core.health.retries import Cause
from connector.spanner.blocking import BlockingClient
from connector.spanner.errors import Access, CallError, retried, setup_error
from connector.telemetry.retrying import attempts

_LONGEST_PAUSE = 5.0

_T = TypeVar("_T")


class RetriedError(Exception):
    """A call failed, and may succeed when it, or the transaction that it is of, is done again."""

    def __init__(self, found: CallError) -> None:
        super().__init__(str(found))
        self.found = found


def repeated(
    call: Callable[[], _T],
    client: BlockingClient,
    access: Access,
    what: str,
    part: str,
    *,
    patience: float,
    first_pause: float,
) -> _T:
    """The result of a call, which is done again after each RetriedError.

    Args:
        call: the call.
        client: the connection to the database.
        access: what the sink does there.
        what: cannot be done with the database while the call fails.
        part: distinguishes the call from what else is retried at the time.
        patience: seconds after which no other attempt begins.
        first_pause: seconds that the first pause takes at most; later ones are longer.

    Raises:
        SpannerCdcError: the last attempt has failed, too; or from the call.
    """

    def cause(error: BaseException) -> Cause:
        assert isinstance(error, RetriedError)
        found = retried(error.found, client.host, access)
        return replace(found, text=f"cannot {what} {client.database}: {found.text}")

    try:
        with attempts(cause, part) as tried:
            retrying = Retrying(
                before_sleep=tried.before_sleep,
                retry=retry_if_exception_type(RetriedError),
                stop=stop_after_delay(patience),
                wait=wait_random_exponential(multiplier=first_pause, max=_LONGEST_PAUSE),
                reraise=True,
            )
            return retrying(call)
    except RetriedError as error:
        raise setup_error(error.found, client.database, access) from error
