"""Rows of a destination as events, for ``spanner-cdc verify``."""

from collections.abc import Sequence

import pyarrow as pa

from connector.core.timestamps import MILLISECOND

EVENTS = pa.schema(
    [
        pa.field("object", pa.string()),
        pa.field("sort_keys", pa.list_(pa.string())),
        pa.field("source_metadata", pa.struct([pa.field("mod_type", pa.string())])),
        pa.field("payload", pa.string()),
    ]
)


def events_of(
    table: str, orders: Sequence[list[str]], mod_types: Sequence[str], payloads: Sequence[str]
) -> pa.RecordBatch:
    """Rows of a table, given by their sort keys, their mod types, and the texts of their payloads."""
    kinds = [{"mod_type": mod_type} for mod_type in mod_types]
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(table, pa.string()), len(orders)),
            pa.array(orders, EVENTS.field("sort_keys").type),
            pa.array(kinds, EVENTS.field("source_metadata").type),
            pa.array(payloads, pa.string()),
        ],
        schema=EVENTS,
    )


def sort_keys_of(sequence: object) -> list[str]:
    """The sort keys in a change sequence number; of a row without one, those before any change."""
    time, number, index = (str(int(text, 16)) for text in str(sequence or "0/0/0").split("/")[:3])
    return [str(int(time) // MILLISECOND), time, number, index]
