"""Retries inside calls of libraries, which retry for minutes without a message.

Of Cloud Storage by any process; of destinations and of Spanner by Spark's tasks, each of which has a process of its
own (:mod:`connector.telemetry.retrying` reports it to the daemon).
"""

from connector.core.health.retries import RetryLog

FAILING = RetryLog()
"""The calls that fail now; those of Cloud Storage by the URL of the bucket's prefix."""
