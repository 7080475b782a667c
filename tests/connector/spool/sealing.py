"""Seals epochs into spools of tests."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from connector.core.changes import Changes
from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import DataChangeRecord
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.envelope import SCHEMA, EnvelopeBuilder, Source
from connector.spool import consumers
from connector.spool.cuts import INLINE
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.writing import SpoolWriter, checkpoint
from tests.connector.builders import AT, COLUMNS, record

NAME = SourceName(project="p", instance="i", database="d", change_stream="s")
ENVELOPE = EnvelopeBuilder(Source("p", "i", "d", "s", "d"), stream_name=None, read_method="spanner-cdc")
SINGERS = TableSchema.of("Singers", COLUMNS)
CUT = (CutPartition("a", AT),)
LARGE = tuple(CutPartition(f"token{number}", AT) for number in range(INLINE + 1))
NOW = AT + 60 * SECOND


def everything(changes: Changes) -> Changes:
    return changes


def writer_of(spool: Spool, keeps: Callable[[Changes], Changes] = everything) -> SpoolWriter:
    """A writer as a daemon that starts has it."""
    fresh = Spool(spool.storage)
    header = fresh.check_source(NAME)
    return SpoolWriter(fresh, header, checkpoint(fresh, header), ENVELOPE, keeps)


def epoch_of(number: int, *records: DataChangeRecord) -> SealedEpoch:
    low = AT - 1 + (number - 1) * SECOND
    return SealedEpoch(low, low + SECOND, records, sum(one.size for one in records))


def sealed(writer: SpoolWriter, count: int = 1, *, now: int = NOW) -> None:
    """Seals as many epochs of one record each."""
    for _ in range(count):
        number = writer.epoch + 1
        one = record(commit_timestamp=AT + (number - 1) * SECOND, server_transaction_id=f"tx{number}")
        writer.seal(epoch_of(number, one), CUT, now=now)


def pruned_whenever_read(spool: Spool, writer: SpoolWriter, monkeypatch: pytest.MonkeyPatch, times: int = 3) -> None:
    """Prunes an epoch each time that the first one is asked for, as a daemon in another process may, so many times."""
    floor = spool.floor

    def read() -> int:
        first = floor()
        if first <= times:
            consumers.record(spool, "files", first, now=NOW)
            assert writer.retention.prune(now=NOW, grace=0) == 1
        return first

    monkeypatch.setattr(spool, "floor", read)


def bytes_of(spool: Spool, *folders: str) -> int:
    """The bytes that the files of some folders of a spool take."""
    paths = [f"{folder}/{name}" for folder in folders for name in spool.storage.list(folder)]
    return sum(spool.storage.read(path).size for path in paths)


def numbers(spool: Spool) -> list[int]:
    return [int(name[:-5]) for name in spool.storage.list("manifests")]


def rows(spool: Spool, epoch: int) -> pa.Table:
    batches = [batch for file in spool.manifest(epoch).files for batch in spool.batches(file)]
    return pa.Table.from_batches(batches, SCHEMA)


class KilledError(BaseException):
    """Stands for SIGKILL: nothing catches it."""
