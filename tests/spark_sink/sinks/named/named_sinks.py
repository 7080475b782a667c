"""File sinks with names of their own, which run without Spark."""

from pathlib import Path

import orjson

from connector.config import Config
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.files.delivery import FileDelivery
from spark_sink.sinks.files.plan import FilesPartition
from spark_sink.sinks.files.source import FileSinkReader, FileSinkSource
from spark_sink.sinks.shared.beginning import begin
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sources.changes.read_limits import ReadMaxBytes
from tests.spark_sink.spools import SpoolMaker

LIMIT = ReadMaxBytes(10**9)


def written(folder: Path, spool: SpoolMaker, name: str, *, backfill: bool = False, **sink: object) -> Path:
    """A configuration's file."""
    path = folder / f"{name}.yaml"
    node = {
        "source": {
            "project": "project",
            "instance": "instance",
            "database": "d",
            "change_stream": "Everything",
            "backfill": backfill,
        },
        "spool": {"path": spool.path},
        "sink": {"name": name, "path": str(folder / name), "rotate_interval": 0, **sink},
        "spark": {"master": "local[1]", "checkpoint": str(folder / "checkpoint"), "trigger": "100ms"},
    }
    path.write_bytes(orjson.dumps(node))
    return path


def reader_of(config: Config) -> FileSinkReader:
    assert isinstance(config.sink, FilesConfig)
    begin(config)
    delivery = FileDelivery(config, config.sink, Feed.of(config))
    return FileSinkSource(dict(delivery.options)).streamReader(None)


def delivered(reader: FileSinkReader, start: dict[str, object] | None = None) -> dict[str, object]:
    """Writes all that there is, as Spark would; returns the last offset."""
    offset = start or reader.initialOffset()
    while (end := reader.latestOffset(offset, LIMIT)) != offset:
        for task in reader.partitions(offset, end):
            assert isinstance(task, FilesPartition)
            list(reader.read(task))
        offset = end
    return offset


def ids(root: Path) -> list[int]:
    lines = [line for path in root.rglob("*.jsonl") for line in path.read_bytes().splitlines()]
    return sorted(orjson.loads(line)["payload"]["Id"] for line in lines)
