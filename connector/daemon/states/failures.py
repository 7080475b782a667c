"""Failures of processes beside the daemon, recorded in the spool: ``spanner-cdc status`` shows them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from connector.config.loading import Config
from connector.core.health.states import StreamState, failed
from connector.errors import SpannerCdcError, SpoolError
from connector.spool.lifecycle import ErrorEvent, add_error, state_of, write_state
from connector.spool.reading import Spool
from connector.spool.sink_report import SinkFailure, report_of, write_report
from connector.spool.writing import sole_writer


@contextmanager
def failures_of_sink(config: Config) -> Iterator[None]:
    """Records the error that leaves the context: of a sink whose change stream another process reads."""
    try:
        yield
    except SpannerCdcError as error:
        _record_of_sink(config, error)
        raise


@contextmanager
def failures_of_service(config: Config, *, code: str, is_of_sink: bool) -> Iterator[None]:
    """Records the error that leaves the context: of a service whose daemon has ended without one.

    Args:
        config: of the service.
        code: of the event for ``spanner-cdc status --errors``.
        is_of_sink: whether it is the sink's, unless the daemon has recorded one.
    """
    try:
        yield
    except SpannerCdcError as error:
        if _record_of_service(config, error, code) and is_of_sink:
            _record_of_sink(config, error)
        raise


def _record_of_sink(config: Config, error: SpannerCdcError) -> None:
    """Records that the sink has failed: an alarm until it delivers again."""
    spool, consumer = Spool.at(config.spool.path), config.sink.name
    failure = SinkFailure(time=time.time_ns(), message=error.message, hint=error.hint, exit_code=error.exit_code)
    with suppress(SpoolError):
        if spool.storage.exists("spool.json"):
            write_report(spool, consumer, report_of(spool, consumer).model_copy(update={"failure": failure}))


def _record_of_service(config: Config, error: SpannerCdcError, code: str) -> bool:
    """Records the state and the event; False where a daemon has recorded another state, which stays."""
    spool, now = Spool.at(config.spool.path), time.time_ns()
    with suppress(SpoolError), sole_writer(spool):
        before = state_of(spool)
        if before.state is not StreamState.NOT_STARTED:
            return False
        write_state(spool, failed(before, now, error.message, error.hint, error.exit_code))
        event = ErrorEvent(time=now, severity="ERROR", code=code, message=error.message, hint=error.hint)
        add_error(spool, event)
    return True
