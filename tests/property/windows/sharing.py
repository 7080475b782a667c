"""Puts the records of a window's shares in order, as those who write segments do."""

import numpy as np
import pyarrow as pa

from connector.core.changes import Changes
from connector.core.records import sequence_number
from connector.core.windows import without_repeats


def merged(parts: list[Changes], shares: list[int], *, mutable: bool) -> Changes:
    """Returns the records of the parts, each of a share, in commit order."""
    joined = Changes.joined(parts)
    numbers = np.repeat(shares, [len(part) for part in parts])
    rows = zip(
        joined.commit_timestamps.tolist(),
        joined.column("server_transaction_id").to_pylist(),
        [(sequence_number(text), text) for text in joined.column("record_sequence").to_pylist()],
        numbers.tolist(),
        range(len(joined)),
        strict=True,
    )
    order = [row[-1] for row in sorted(rows)]
    changes = Changes(joined.batch.take(pa.array(order, pa.int64())), joined.record_schemas)
    return without_repeats(changes, numbers[order]) if mutable else changes
