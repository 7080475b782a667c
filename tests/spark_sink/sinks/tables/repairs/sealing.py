"""Spools of repairs, as ``verify --repair`` leaves them."""

import time
from collections.abc import Mapping, Sequence

import orjson
import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.envelope.snapshot_events import DELETE, INSERT, REPAIR, SnapshotEnvelope
from connector.spool.backfill.documents import Backfill
from connector.spool.backfill.records import record as record_backfill
from connector.spool.backfill.records import spool_of
from connector.spool.backfill.sealing import BackfillWriter
from connector.spool.manifest import BackfillPart
from connector.spool.reading import Spool
from connector.spool.segments import SegmentBuffer
from tests.spark_sink.spools import SINGERS, SOURCE, SpoolMaker

SCHEMA = TableSchema.of("Singers", SINGERS)


def sealed_repair(maker: SpoolMaker, at: int, rows: Mapping[int, str], deleted: Sequence[int]) -> Spool:
    """Records a repair of the table with these names by key, and with deletes; returns its spool."""
    envelope = SnapshotEnvelope(SOURCE, stream_name=None, read_method=REPAIR, timestamp=at)

    def fill(own: Spool, document: Backfill) -> None:
        writer = BackfillWriter(own, own.header(), document)
        parts = [(DELETE, deleted, ["{}"] * len(deleted))]
        parts += [(INSERT, list(rows), [orjson.dumps({"Name": name}).decode() for name in rows.values()])]
        for epoch, (mod_type, keys, values) in enumerate(parts, 1):
            texts = pa.array([f'{{"Id":"{key}"}}' for key in keys], pa.string())
            segment = SegmentBuffer()
            segment.append(
                envelope.build(texts, pa.array(values, pa.string()), SCHEMA, SCHEMA.key, epoch, at, mod_type=mod_type)
            )
            file = segment.store(own.storage, f"segments/{epoch}.arrow", first=at, last=at)
            writer.seal(BackfillPart(table="Singers", plan=1, partition=epoch - 1), [file], now=at)

    spool = maker.spool
    document = record_backfill(
        spool,
        spool.header(),
        [SCHEMA],
        timestamp=lambda: at,
        why="repair",
        dialect="GOOGLE_STANDARD_SQL",
        now=time.time_ns(),
        fill=fill,
    )
    return spool_of(spool, document.number)
