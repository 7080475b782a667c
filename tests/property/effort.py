"""How long a property is tried: short and alike in every run, or for as long as one likes."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
SHARE = float(os.environ.get("PROPERTY_SHARE", "1"))
"""Of the examples, where not all are worth their time."""


def effort(examples: int) -> settings:
    """So many examples, the same in every run; with ``PROPERTY_EXAMPLES=10000`` so many, and others in every run."""
    return settings(
        max_examples=EXAMPLES or max(round(examples * SHARE), 1),
        deadline=None,  # of a machine that others use, too
        print_blob=True,
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
