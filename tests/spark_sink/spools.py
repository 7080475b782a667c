"""Makes spools of generated records with the daemon's own writer."""

from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow as pa

from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND, parse
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.spool.gaps import restart_at
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.writing import SpoolWriter, checkpoint, initialize
from spark_sink.sinks.shared.dead_letters import DeadLetters

START = parse("2026-03-01T10:00:00Z")
SOURCE = Source("project", "instance", "d", "Everything", "d")


class NoDeadLetters(DeadLetters):
    """A dead-letter store that fails the test when an event is rejected."""

    def put(self, table: str, name: str, rows: pa.RecordBatch, reasons: Sequence[str]) -> None:
        """Fails the test."""
        raise AssertionError(f"events of {table} are rejected: {set(reasons)}")


NO_DEAD_LETTERS = NoDeadLetters("/nowhere")
KEY = ColumnType("Id", '{"code":"INT64"}', True, 1)
NAME = ColumnType("Name", '{"code":"STRING"}', False, 2)
SINGERS = (KEY, NAME)


def record(
    at: int,
    ids: Sequence[int] = (1,),
    *,
    table: str = "Singers",
    columns: tuple[ColumnType, ...] = SINGERS,
    values: dict[str, object] | None = None,
    mod_type: str = "INSERT",
    sequence: int = 0,
    transaction: str = "",
) -> DataChangeRecord:
    """A data change record committed at ``at`` (ns) with a mod for each id."""
    new = orjson.dumps(values if values is not None else {"Name": "n"}).decode()
    mods = tuple(
        Mod(f'{{"Id":"{key}"}}', "{}" if mod_type == "DELETE" else new, new if mod_type == "DELETE" else "{}")
        for key in ids
    )
    return DataChangeRecord(
        commit_timestamp=at,
        record_sequence=f"{sequence:08d}",
        server_transaction_id=transaction or f"t{at}",
        is_last_record_in_transaction_in_partition=True,
        table_name=table,
        column_types=columns,
        mods=mods,
        mod_type=mod_type,
        value_capture_type="NEW_ROW_AND_OLD_VALUES",
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
        transaction_tag="",
        is_system_transaction=False,
        read_timestamp=at + SECOND // 10,
        size=200 * len(mods),
    )


class SpoolMaker:
    """Seals epochs into a spool; ``reopen`` continues one that has epochs."""

    def __init__(self, path: Path | str, *, reopen: bool = False, source: SourceName | None = None) -> None:
        self.path = str(path)
        self.spool = Spool.at(path)
        source = source or SourceName(project="project", instance="instance", database="d", change_stream="Everything")
        exists = reopen and self.spool.latest() > 0
        header = self.spool.header() if exists else initialize(self.spool, source, START, "now", [])
        self.spool_id = header.spool_id
        self._open()
        self._next_id = 0

    def _open(self) -> None:
        header = self.spool.header()
        at = checkpoint(self.spool, header)
        one = header.source
        source = Source(one.project, one.instance, one.database, one.change_stream, SOURCE.default_schema)
        self.writer = SpoolWriter(
            self.spool,
            header,
            at,
            EnvelopeBuilder(source, stream_name=None, read_method="spanner-cdc"),
            lambda changes: changes,
        )
        self.watermark = at.watermark

    def seal(self, *records: DataChangeRecord, high: int | None = None, final: bool = False) -> int:
        """Seals these records, up to ``high`` or the last of them, as the next epoch; returns its number."""
        low, self.watermark = self.watermark, high or records[-1].commit_timestamp
        epoch = SealedEpoch(low, self.watermark, records, sum(record.size for record in records))
        return self.writer.seal(epoch, [CutPartition("token", START)], now=self.watermark, final=final).epoch

    def restart_at(self, timestamp: int) -> int:
        """Seals a gap up to ``timestamp``, as ``spanner-cdc spool --restart-at`` does; returns its number."""
        gap = restart_at(self.spool, timestamp, now=timestamp)
        self._open()
        return gap.epoch

    def fill(self, epochs: int, rows: int = 5, *, step: int = SECOND) -> list[int]:
        """Seals epochs of one record each, with consecutive ids; returns the ids."""
        out: list[int] = []
        for _ in range(epochs):
            ids = range(self._next_id, self._next_id + rows)
            self._next_id += rows
            self.seal(record(self.watermark + step, ids))
            out += ids
        return out
