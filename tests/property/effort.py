"""The number of random examples of a test: few, and the same in every run; or as many as one asks for."""

import os

from hypothesis import settings

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
SHARE = float(os.environ.get("PROPERTY_SHARE", "0.1"))
"""The share of the examples to draw; ``make campaigns`` draws all."""


def share_of(examples: int) -> int:
    """The number of examples of which so many are all."""
    return EXAMPLES or max(round(examples * SHARE), 10)


def effort(examples: int) -> settings:
    """A share of so many examples, the same in every run; or as many random ones as ``PROPERTY_EXAMPLES`` says."""
    return settings(max_examples=share_of(examples), print_blob=True, derandomize=not EXAMPLES, database=None)
