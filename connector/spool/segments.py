"""Segments: the Arrow files of an epoch, written in memory and stored whole."""

import pyarrow as pa
import pyarrow.ipc

from connector.envelope.envelope import SCHEMA
from connector.spool.manifest import SegmentFile, crc32c
from connector.spool.storage.store import FileStore


class SegmentBuffer:
    """A segment that is being written; nothing is in the spool before :meth:`store`."""

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_file(self._sink, SCHEMA, options=options)
        self.rows = 0

    @property
    def bytes(self) -> int:
        """Bytes of the segment so far."""
        return int(self._sink.tell())

    def append(self, batch: pa.RecordBatch) -> None:
        """Adds rows with the envelope's columns."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def store(self, storage: FileStore, path: str, *, first: int, last: int) -> SegmentFile:
        """Writes the segment into the spool, durably; nothing may be appended afterwards.

        Args:
            storage: the spool's file store.
            path: relative to the spool.
            first: the first commit timestamp of its rows, Unix nanoseconds.
            last: the last one.

        Raises:
            SpoolError: the disk refuses.
        """
        self._writer.close()
        data = self._sink.getvalue()
        storage.replace(path, data)
        return SegmentFile(
            path=path,
            rows=self.rows,
            bytes=data.size,
            crc32c=crc32c(data),
            first_commit_timestamp=first,
            last_commit_timestamp=last,
        )
