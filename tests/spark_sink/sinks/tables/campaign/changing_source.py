"""A source of two tables: its rows, the spool with its changes, and a backfill that is sealed in parts."""

from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import orjson
import pyarrow as pa

from connector.core.records import ColumnType, DataChangeRecord
from connector.core.schemas import TableSchema
from connector.core.timestamps import SECOND
from connector.envelope.snapshot_events import SnapshotEnvelope
from connector.spool.backfill.records import record as record_backfill
from connector.spool.backfill.records import spool_of
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool
from connector.spool.segments import SegmentBuffer
from tests.spark_sink.spools import KEY, NAME, SOURCE, SpoolMaker, record

TABLES = ("Singers", "Albums")
_ROWS, _KEYS, _MODS = 80, 120, 80


class ChangingSource:
    """A database that changes at random.

    Args:
        folder: of the spool.
        random: decides what changes.

    Attributes:
        columns: those of both tables.
        rows: the rows of each table by key.
        maker: of the spool.
        mods: how many were committed.
        left: the tables of the parts of the backfill that are not delivered yet, in order.
    """

    columns: ClassVar[tuple[ColumnType, ...]] = (KEY, NAME)

    backfill: Spool
    """The backfill's spool."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._random = random
        self.maker = SpoolMaker(folder)
        self.rows: dict[str, dict[int, Any]] = {
            table: {key: self.first_row(key) for key in range(_ROWS)} for table in TABLES
        }
        self.mods = 0
        self.left: list[str] = []

    def first_row(self, key: int) -> Any:
        """A row from before the stream."""
        return f"old {key}"

    def values(self, row: Any) -> dict[str, object]:
        """The columns of a row beside its key."""
        return {"Name": row}

    def commit(self) -> None:
        """Seals an epoch with changes of both tables."""
        records: list[DataChangeRecord] = []
        at = self.maker.watermark + SECOND
        for table in TABLES:
            rows = self.rows[table]
            for number, key in enumerate(self._random.sample(range(_KEYS), _MODS // 2)):
                kind = "INSERT" if key not in rows else self._random.choice(["UPDATE", "DELETE"])
                self.mods += 1
                name = f"{kind} {self.mods}"
                records.append(record(at, [key], table=table, values={"Name": name}, mod_type=kind, sequence=number))
                if kind == "DELETE":
                    del rows[key]
                else:
                    rows[key] = name
        self.maker.seal(*records)

    def record_backfill(self) -> None:
        """Records a backfill of the rows of now, and seals them in parts."""
        spool, at = self.maker.spool, self.maker.watermark
        schemas = {table: TableSchema.of(table, self.columns) for table in TABLES}
        document = record_backfill(
            spool,
            spool.header(),
            list(schemas.values()),
            timestamp=lambda: at,
            why="start",
            dialect="GOOGLE_STANDARD_SQL",
            now=at,
        )
        self.backfill = spool_of(spool, document.number)
        writer = BackfillWriter(self.backfill, self.backfill.header(), document)
        envelope = SnapshotEnvelope(SOURCE, stream_name=None, timestamp=at)
        for table, rows in deepcopy(self.rows).items():
            keys = sorted(rows)
            for part in (keys[::2], keys[1::2]):
                events = envelope.build(
                    pa.array([orjson.dumps({"Id": str(key)}).decode() for key in part], pa.string()),
                    pa.array([orjson.dumps(self.values(rows[key])).decode() for key in part], pa.string()),
                    schemas[table],
                    schemas[table].key,
                    writer.epoch + 1,
                    at,
                )
                segment = SegmentBuffer()
                segment.append(events)
                file = segment.store(
                    self.backfill.storage, f"segments/{writer.epoch + 1:020d}.arrow", first=at, last=at
                )
                writer.seal(BackfillPart(table=table, plan=1, partition=writer.epoch), [file], now=at)
                self.left.append(table)
