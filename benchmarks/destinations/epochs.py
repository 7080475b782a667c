"""A spool of one table with six columns: first inserts, then epochs half of updates and half of inserts."""

from collections.abc import Iterator
from random import Random

import orjson

from connector.core.epoch import SealedEpoch
from connector.core.partitions import CutPartition
from connector.core.records import ColumnType, DataChangeRecord, Mod
from connector.core.timestamps import SECOND, parse
from connector.envelope.envelope import EnvelopeBuilder, Source
from connector.spool.consumers import record
from connector.spool.manifest import SourceName
from connector.spool.reading import Spool
from connector.spool.writing import SpoolWriter, checkpoint, initialize

TABLE = "Singers"
_START = parse("2026-03-01T10:00:00Z")
_SOURCE = Source("project", "instance", "d", "Everything", "d")
_COLUMNS = tuple(
    ColumnType(name, orjson.dumps({"code": code}).decode(), place == 1, place)
    for place, (name, code) in enumerate(
        [
            ("Id", "INT64"),
            ("Name", "STRING"),
            ("Age", "INT64"),
            ("Score", "FLOAT64"),
            ("Born", "DATE"),
            ("Changed", "TIMESTAMP"),
        ],
        1,
    )
)
_MODS = 500
"""Of a record."""


def sealed_epochs(path: str, steps: int, mods: int, *, epochs: int = 1) -> Iterator[int]:
    """Makes the spool, and seals what it has before each step: a batch read reads all that is there.

    Args:
        path: a folder for the spool.
        steps: how many steps.
        mods: the inserts of the first step, and the changes of each other one.
        epochs: into how many epochs they are divided.

    Yields:
        The newest epoch.
    """
    spool = Spool.at(path)
    name = SourceName(project="project", instance="instance", database="d", change_stream="Everything")
    header = initialize(spool, name, _START, "now", [])
    at = checkpoint(spool, header)
    builder = EnvelopeBuilder(_SOURCE, stream_name=None, read_method="spanner-cdc")
    writer = SpoolWriter(spool, header, at, builder, lambda changes: changes)
    random, high, keys, size = Random(1), at.watermark, 0, mods // epochs
    for newest in range(epochs, epochs * steps + 1, epochs):
        updated = random.sample(range(keys), epochs * (size // 2)) if keys else []
        for _ in range(epochs):
            now, updated = updated[: size // 2], updated[size // 2 :]
            inserted = list(range(keys, keys + size - len(now)))
            keys += len(inserted)
            low, high = high, high + 3 * SECOND
            records = (
                *_records(low + SECOND, "UPDATE", now, random),
                *_records(low + 2 * SECOND, "INSERT", inserted, random),
            )
            sealed = SealedEpoch(low, high, records, sum(record.size for record in records))
            writer.seal(sealed, [CutPartition("token", _START)], now=high, final=False)
        record(spool, "done", newest - epochs, now=high)
        writer.retention.prune(now=high, grace=0)
        yield newest


def _records(at: int, mod_type: str, keys: list[int], random: Random) -> Iterator[DataChangeRecord]:
    for number, first in enumerate(range(0, len(keys), _MODS)):
        mods = tuple(Mod(f'{{"Id":"{key}"}}', _values(random), "{}") for key in keys[first : first + _MODS])
        yield DataChangeRecord(
            commit_timestamp=at + number,
            record_sequence="00000000",
            server_transaction_id=f"t{at + number}",
            is_last_record_in_transaction_in_partition=True,
            table_name=TABLE,
            column_types=_COLUMNS,
            mods=mods,
            mod_type=mod_type,
            value_capture_type="NEW_ROW",
            number_of_records_in_transaction=1,
            number_of_partitions_in_transaction=1,
            transaction_tag="",
            is_system_transaction=False,
            read_timestamp=at + SECOND,
            size=200 * len(mods),
        )


def _values(random: Random) -> str:
    number = random.randrange(10**9)
    day = f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}"
    values = {
        "Name": f"A singer with the number {number}",
        "Age": str(number % 100),
        "Score": number / 1000,
        "Born": day,
        "Changed": f"{day}T10:00:00.{number % 1_000_000:06d}Z",
    }
    return orjson.dumps(values).decode()
