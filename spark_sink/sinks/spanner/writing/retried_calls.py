"""Calls of the destination that fail and may succeed when they are done again: how, and for how long."""

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from connector.spanner.errors import CallError
from connector.telemetry.retrying import Attempts

_LONGEST_PAUSE = 5.0


class RetriedError(Exception):
    """A call failed, and may succeed when it, or the transaction that it is of, is done again."""

    def __init__(self, found: CallError) -> None:
        super().__init__(str(found))
        self.found = found


def retrying(tried: Attempts, *, patience: float, first_pause: float) -> Retrying:
    """Tries again after each RetriedError, which is raised in the end.

    Args:
        tried: notes the failed attempts.
        patience: seconds after which no other attempt begins.
        first_pause: seconds that the first pause takes at most; later ones are longer.
    """
    return Retrying(
        before_sleep=tried.before_sleep,
        retry=retry_if_exception_type(RetriedError),
        stop=stop_after_delay(patience),
        wait=wait_random_exponential(multiplier=first_pause, max=_LONGEST_PAUSE),
        reraise=True,
    )
