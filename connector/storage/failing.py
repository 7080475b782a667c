"""Storage that this process retries: Google's library does it inside a call, for up to a minute, and says nothing."""

from connector.core.health.retries import RetryLog

FAILING = RetryLog()
"""What fails now, by the URL of the bucket's prefix; of this process."""
