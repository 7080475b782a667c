"""The incident of a seed beside faults and kills: at most one.

Incidents are drawn apart from everything else, in rounds of seeds in which each kind occurs once. So they leave the
scenarios of seeds unchanged, except that a pause needs a scenario of some hours.
"""

import re
from enum import StrEnum
from random import Random

_WITHOUT = 3
"""Seeds of each round without an incident."""


class Incident(StrEnum):
    """The kinds of incidents; the texts are those of the summary."""

    STOPPED = "the daemon stopped for longer than a window"
    CLOCK_STOPPED = "the clock stopped for longer than a window"
    OUTAGE = "Spanner was unreachable for longer than a window"
    LATE_SERVER = "first messages were later than the first timeout of a query"
    OUT_OF_ORDER = "a record was sent out of order"
    OLD_SPOOL = "an older copy of the spool was restored"
    OLD_CHECKPOINT = "an older copy of the sink's checkpoint was restored"
    DROPPED_TABLE = "a table that source.tables names was dropped"
    KEYLESS_TABLE = "a table with PRIMARY KEY()"
    DENIED = "permission was denied for a while"
    QUOTA = "the quota was used up for a while"
    UNAUTHENTICATED = "credentials were refused for a while"
    LOST_SESSIONS = "every query lost its session for a while"
    FULL_DISK = "the spool's disk was full for a while"
    SINK_REFUSED = "the sink's folder could not be written for a while"
    KILLED_JVMS = "every JVM was killed for a while"


PAUSES = frozenset((Incident.STOPPED, Incident.CLOCK_STOPPED, Incident.OUTAGE))
LASTING = frozenset(
    (
        Incident.OUTAGE,
        Incident.DENIED,
        Incident.QUOTA,
        Incident.UNAUTHENTICATED,
        Incident.LOST_SESSIONS,
        Incident.FULL_DISK,
        Incident.SINK_REFUSED,
        Incident.KILLED_JVMS,
    )
)
"""Faults that last until ``status`` has named them."""

OF_SPARK = frozenset((Incident.SINK_REFUSED, Incident.KILLED_JVMS))
OLD_COPIES = frozenset((Incident.OLD_SPOOL, Incident.OLD_CHECKPOINT))

ROUND = len(Incident) + _WITHOUT

_LATE = re.compile(r"is late: Spanner had proved that everything up to|a transaction is incomplete")
_UNREAD = re.compile(r"were delivered without it|a transaction is incomplete")
_OTHER_COPY = re.compile(r"is another copy|was put back from an older|The checkpoint is an older copy")


class ExplainedEndError(Exception):
    """The seed had to end early, and a line explains why and what is missing."""


def incident_of(seed: int) -> Incident | None:
    """Returns the incident of a seed, or None."""
    turns: list[Incident | None] = [*Incident, *[None] * _WITHOUT]
    Random(f"soak ordeals {seed // ROUND}").shuffle(turns)
    return turns[seed % ROUND]


def explains(incident: Incident | None, line: str) -> bool:
    """True if a line of a log names the incident, so that the run was right to end with it."""
    if incident is Incident.OUT_OF_ORDER:
        return _LATE.search(line) is not None
    return incident in OLD_COPIES and _OTHER_COPY.search(line) is not None


def reports_loss(text: str) -> bool:
    """True if a text reports that epochs were delivered without a late record."""
    return _UNREAD.search(text) is not None
