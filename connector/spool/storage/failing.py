"""What this process retries inside calls of libraries, which do it for minutes and say nothing.

Of Cloud Storage by any process; of destinations and of Spanner by Spark's tasks, each of which has a process of its
own (:mod:`connector.telemetry.retrying` reports it to the daemon).
"""

from connector.core.health.retries import RetryLog

FAILING = RetryLog()
"""What fails now; of Cloud Storage by the URL of the bucket's prefix."""
