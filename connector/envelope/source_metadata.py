"""The source metadata of an event in a file: the envelope's fields, and the fields that Dataflow sorts by. Pure.

The Dataflow templates sort the changes of a row by fields that depend on the source. They treat an unknown source like
Oracle: its changes are ordered by ``source_timestamp`` in whole seconds, then by ``scn``, ``rs_id`` and ``ssn``. The
envelope has these values under Spanner's names. So the fields are derived when events are written, and a spool does not
contain them.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from connector.envelope.envelope import SOURCE_METADATA

COMPLETED = "completed"
"""The field that says whether an event has all columns of its row, for sinks that read missing columns."""

REPEATED: Mapping[str, str] = {"rs_id": "record_sequence", "ssn": "mod_index", "tx_id": "server_transaction_id"}
"""The sort fields that repeat another field, by name."""

_SORT_FIELDS: Mapping[str, pa.DataType] = {
    "scn": pa.int64(),  # the commit timestamp in nanoseconds
    "rs_id": pa.string(),
    "ssn": pa.int64(),
    "tx_id": pa.string(),
}
_COMMIT_NANOSECONDS = pa.scalar(1)
"""The commit timestamp's index among the sort keys."""


def written_fields(*, sort_fields: bool = True, completes: bool = False) -> dict[str, pa.DataType]:
    """The types of the written fields, in order; without ``sort_fields`` those of the envelope alone.

    With ``completes`` they end with :data:`COMPLETED`.
    """
    fields = {field.name: field.type for field in SOURCE_METADATA}
    fields |= _SORT_FIELDS if sort_fields else {}
    return {**fields, COMPLETED: pa.bool_()} if completes else fields


def written_columns(
    batch: pa.RecordBatch, *, sort_fields: bool = True, completes: bool = False
) -> Iterator[tuple[str, pa.Array]]:
    """The columns of the written fields, in the order of :func:`written_fields`."""
    metadata = batch.column("source_metadata")
    # Unlike ``struct.field``, this respects slices and nulls.
    for name in SOURCE_METADATA.names:
        yield name, pc.struct_field(metadata, name)
    if sort_fields:
        yield "scn", pc.list_element(batch.column("sort_keys"), _COMMIT_NANOSECONDS).cast(_SORT_FIELDS["scn"])
        for name, same in REPEATED.items():
            yield name, pc.struct_field(metadata, same)
    if completes:
        yield COMPLETED, pc.struct_field(metadata, COMPLETED)
