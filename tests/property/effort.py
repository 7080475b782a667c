"""The number of examples of a property: few, and the same in every run; or as many as one asks for."""

import os

from hypothesis import settings

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
SHARE = float(os.environ.get("PROPERTY_SHARE", "1"))
"""The share of the examples to run, for slow environments."""


def effort(examples: int) -> settings:
    """So many examples, the same in every run; ``PROPERTY_EXAMPLES=10000`` runs as many random ones instead."""
    return settings(
        max_examples=EXAMPLES or max(round(examples * SHARE), 1),
        print_blob=True,
        derandomize=not EXAMPLES,
        database=None,
    )
