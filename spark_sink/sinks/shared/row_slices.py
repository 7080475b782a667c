"""Rows of the envelope by table, and in slices of bounded memory."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.core import byte_columns
from connector.core.changes import Int64s

_ROW = 512
"""Approximate bytes of a row beside its payload."""


def by_table(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by table, in the order of the tables' first rows; a table's rows stay in order."""
    tables = batch.column("object")
    different = pc.unique(tables).to_pylist()
    for table in different:
        yield table, batch.filter(pc.equal(tables, table)) if len(different) > 1 else batch


def slices_of(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The rows in slices of at most so many bytes, or of one larger row."""
    return byte_columns.slices_of(rows, _ends(rows), most_bytes=most)


def size_of(rows: pa.RecordBatch) -> int:
    """The approximate memory of rows, of which there is at least one."""
    return int(_ends(rows)[-1])


def _ends(rows: pa.RecordBatch) -> Int64s:
    """The approximate memory up to the end of each row."""
    ends: Int64s = byte_columns.ends_of(rows.column("payload")) + np.arange(1, rows.num_rows + 1) * _ROW
    if "before" in rows.schema.names:
        ends = ends + byte_columns.ends_of(rows.column("before"))
    return ends
