"""OpenTelemetry spans of what is sealed and delivered.

They go where the process's OpenTelemetry SDK is configured to send them, for example by ``opentelemetry-instrument``;
without one nothing is recorded. No attribute holds a row's value.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace

_tracer = trace.get_tracer("spanner-cdc-spark")


@contextmanager
def span(name: str) -> Iterator[trace.Span]:
    """A span around the block. An error gives it the status ERROR and the error's type.

    OpenTelemetry would keep the error's message too, and that may hold a row's value.
    """
    with _tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as current:
        try:
            yield current
        except BaseException as error:
            current.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
            raise
