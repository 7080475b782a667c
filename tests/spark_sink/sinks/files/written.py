"""Writes the files of a spool without Spark, and reads what is there."""

from pathlib import Path
from typing import Any

import fastavro

from connector.core.records import ColumnType
from spark_sink.sinks.files.plan import FileOptions, file_groups
from spark_sink.sinks.files.writer import FileWriter, WrittenFile, destination_at
from tests.spark_sink.spools import NO_DEAD_LETTERS, SINGERS, SpoolMaker

ALBUMS = (*SINGERS, ColumnType("Sales", '{"code":"INT64"}', False, 3))
BY_MINUTE = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=True)
AVRO = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=True, format="avro")
AT_ONCE = FileOptions(gzip=False, rotate_bytes=250_000_000, by_minute=False)


def written(spool: SpoolMaker, root: Path, shape: FileOptions = BY_MINUTE) -> list[WrittenFile]:
    manifests = spool.spool.manifests(1, spool.spool.latest())
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, NO_DEAD_LETTERS)
    return [file for group in file_groups(manifests, by_minute=shape.by_minute) for file in writer.write(group)]


def avro_events(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def written_as(
    spool: SpoolMaker, root: Path, form: str, *, compressed: bool = False, timestamps: str = "micros"
) -> list[str]:
    shape = FileOptions(gzip=compressed, rotate_bytes=10**9, by_minute=True, format=form, timestamps=timestamps)
    writer = FileWriter(spool.spool, spool.spool_id, destination_at(str(root)), shape, NO_DEAD_LETTERS)
    groups = file_groups(spool.spool.manifests(1, spool.spool.latest()), by_minute=True)
    return [str(root / file.path) for group in groups for file in writer.write(group)]
