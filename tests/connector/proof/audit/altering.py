"""Replaces epochs of a spool by others that the spool itself cannot tell from its own."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from connector.envelope.envelope import SCHEMA
from connector.spool.manifest import Manifest, crc32c
from connector.spool.reading import Spool, manifest_path

Change = Callable[[pa.Table], pa.Table]


def epoch_with_rows(path: Path, least: int = 20) -> Manifest:
    """An epoch in the middle of a spool with at least so many rows."""
    spool = Spool.at(path)
    full = [one for one in spool.manifests(spool.floor(), spool.latest()) if one.rows >= least]
    return full[len(full) // 2]


def altered(path: Path, change: Change, *, epoch: int | None = None, checksums: bool = True) -> Manifest:
    """Rewrites the rows of an epoch, with its checksums and counts unless told otherwise; returns its new manifest."""
    spool = Spool.at(path)
    manifest = epoch_with_rows(path) if epoch is None else spool.manifest(epoch)
    (file,) = manifest.files
    rows = change(pa.Table.from_batches(spool.batches(file), SCHEMA).combine_chunks())
    data = _written(rows)
    spool.storage.replace(file.path, data)
    if not checksums:
        return manifest
    files = (file.model_copy(update={"rows": rows.num_rows, "bytes": data.size, "crc32c": crc32c(data)}),)
    tables = dict(Counter(rows.column("object").to_pylist()))
    replaced = manifest.model_copy(update={"files": files if rows.num_rows else (), "tables": tables})
    spool.storage.replace(manifest_path(manifest.epoch), replaced.to_json())
    return replaced


def _written(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def transactions(rows: pa.Table) -> pa.Array:
    """The transaction of each row."""
    return pc.struct_field(rows.column("source_metadata").combine_chunks(), "server_transaction_id")


def of_transaction(rows: pa.Table, name: str) -> pa.Table:
    """The rows of a transaction."""
    return rows.filter(pc.equal(transactions(rows), name))


def without_transaction(rows: pa.Table, name: str) -> pa.Table:
    """The other rows."""
    return rows.filter(pc.not_equal(transactions(rows), name))


def with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    """The rows with other values in a column."""
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, SCHEMA.field(at), values.cast(SCHEMA.field(at).type))
