"""The retries that a process has noted, for tests of the places that retry."""

import time
from collections.abc import Callable

import pytest

from connector.core.health.retries import Cause, RetryLog
from connector.core.timestamps import SECOND
from connector.spool.storage.failing import FAILING


def noted_causes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cause of each failure that is noted from now on, as it comes."""
    causes: list[str] = []
    failed: Callable[..., None] = RetryLog.failed

    def note(log: RetryLog, what: str, cause: Cause, now: int, **more: object) -> None:
        causes.append(str(cause))
        failed(log, what, cause, now, **more)

    monkeypatch.setattr(RetryLog, "failed", note)
    return causes


def still_retried() -> list[str]:
    """The causes of what this process would still retry."""
    return [str(retry.cause) for retry in FAILING.lasting(time.time_ns() + 600 * SECOND)]
