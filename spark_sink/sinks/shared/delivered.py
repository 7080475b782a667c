"""The progress of a sink's delivery of a spool."""

from connector.spool.consumers import find
from connector.spool.manifest import watermark_of
from connector.spool.reading import Spool
from spark_sink.errors import SinkError


def delivered_up_to(spool: Spool, consumer: str) -> int:
    """The commit timestamp up to which a sink has delivered everything, in nanoseconds since 1970.

    Raises:
        SinkError: it has not delivered anything yet.
    """
    found = find(spool, consumer)
    if found is None or not found.at:
        raise SinkError(
            f"the sink has delivered no epoch of the spool at {spool.path}",
            hint="Verify once it has; a minute's files are written when the watermark has passed it.",
        )
    return watermark_of(found.at)
