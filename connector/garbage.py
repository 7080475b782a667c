"""When Python looks for objects that only a cycle keeps alive."""

import gc


def collect_rarely() -> None:
    """Lets the collector pass over what there is already, and over what is new far less often; for a whole process.

    Thousands of partitions are hundreds of thousands of objects that live long and form no cycles: with the usual
    thresholds the collector walked them so often that it took a third of the reader's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
