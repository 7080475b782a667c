"""The rows of an epoch for the tasks of every sink: as they are in the spool, or whole (``source.complete_rows``)."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from connector.spool.manifest import SegmentFile
from connector.spool.reading import Spool
from connector.spool.storage.store import contents
from spark_sink.sinks.shared.completing.spanner_rows import Completion, SpannerRows
from spark_sink.sinks.shared.completing.whole_rows import WholeRows, applied, completed, kept

COMPLETED_ROWS = "completed"
"""The folder of a spool in which a sink with the name of its type keeps completed rows."""


@dataclass(slots=True)
class EpochRows:
    """Reads the rows of epochs.

    Attributes:
        spool: where the epochs are.
        completion: how rows are completed, or None.
        kept_in: the folder of the spool in which what was read is kept, so that a replay has the same rows although
            Spanner may no longer keep them; empty where it is not kept.
        incomplete: by table, how many rows so far lack columns, because Spanner does not keep them any more.
    """

    spool: Spool
    completion: Completion | None
    kept_in: str = ""
    incomplete: Counter[str] = field(default_factory=Counter)
    _reader: "SpannerRows | None" = None

    def batches(self, file: SegmentFile, tables: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of an epoch in commit order, or those of some tables.

        Raises:
            SpoolError: the spool cannot be read.
            UnreachableError: Spanner cannot be reached.
            StreamError: Spanner does not allow to read the tables.
        """
        if self.completion is None:
            yield from self.spool.batches(file)
            return
        batches = [_of(tables, batch) for batch in self.spool.batches(file)]
        if not any(batch.num_rows for batch in batches):
            return
        (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        whole = self._kept(file, rows) if self.kept_in else self._completed(self.completion, rows)
        self.incomplete.update(whole.incomplete)
        yield whole.rows

    def _completed(self, completion: Completion, rows: pa.RecordBatch) -> WholeRows:
        if self._reader is None:
            self._reader = SpannerRows(completion)
        return completed(
            rows,
            self.spool.schema,
            self._reader.read,
            at_own_commit=completion.skips_changes,
            deletes=completion.deletes,
        )

    def _kept(self, file: SegmentFile, rows: pa.RecordBatch) -> WholeRows:
        """The rows as the first attempt completed them, whichever that was."""
        assert self.completion is not None
        storage, path = self.spool.storage, f"{self.kept_in}/{file.path.rpartition('/')[2]}"
        known = contents(storage, path)
        if known is None:
            whole = self._completed(self.completion, rows)
            changed = kept(whole.rows, deletes=self.completion.deletes)
            if changed is None:
                return whole
            try:
                storage.create(path, _packed(changed))
            except FileExistsError:
                known = contents(storage, path)
            if known is None:
                return whole
        with pa.ipc.open_file(pa.py_buffer(known)) as read:
            return applied(rows, read.get_batch(0))


def forget_completed(spool: Spool, *, before: int, kept_in: str = COMPLETED_ROWS) -> None:
    """Deletes the rows kept in a folder for epochs before that one, which are delivered."""
    names = spool.storage.list(kept_in, end=f"{before:020d}")
    spool.storage.delete(*(f"{kept_in}/{name}" for name in names))


def _packed(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
        file.write_batch(rows)
    return sink.getvalue()


def _of(tables: Collection[str] | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    if tables is None:
        return batch
    return batch.filter(pc.is_in(batch.column("object"), value_set=pa.array(sorted(tables), pa.string())))
