"""Runs streaming queries and reads what they delivered: an array of JSON events in a file for each batch."""

import json
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

Hook = Callable[[int], None]


class Query:
    """A query over a spool, whose micro-batches are written to ``out/<batch>.json``."""

    def __init__(self, spark: SparkSession, folder: Path, name: str = "q", **options: str) -> None:
        self.spark = spark
        self.options = options
        self.checkpoint = str(folder / f"{name}-checkpoint")
        self.out = folder / f"{name}-out"
        self.out.mkdir(exist_ok=True)

    def start(
        self, *, available_now: bool = False, before: Hook = lambda batch: None, after: Hook = lambda batch: None
    ) -> StreamingQuery:
        def write(df: DataFrame, batch: int) -> None:
            before(batch)
            rows = df.selectExpr("epoch", "object", "change_sequence_number s", "payload").collect()
            events = sorted((str(row.s), int(row.epoch), str(row.object), json.loads(row.payload)) for row in rows)
            half = self.out / f"{batch}.tmp"
            half.write_text(json.dumps(events))
            half.replace(self.out / f"{batch}.json")
            after(batch)

        stream = self.spark.readStream.format("spanner-change-stream").options(**self.options).load()
        writer = stream.writeStream.option("checkpointLocation", self.checkpoint).foreachBatch(write)
        writer = writer.trigger(availableNow=True) if available_now else writer
        return writer.start()

    def run(self, **how: Hook) -> None:
        """Delivers all epochs that are sealed by now."""
        query = self.start(available_now=True, **how)
        query.awaitTermination()

    def batches(self) -> list[list[int]]:
        """The epochs that each micro-batch held."""
        files = sorted(self.out.glob("*.json"), key=lambda file: int(file.stem))
        return [sorted({event[1] for event in json.loads(file.read_text())}) for file in files]

    def ids(self) -> list[int]:
        """The ids delivered, batch by batch, each in commit order."""
        files = sorted(self.out.glob("*.json"), key=lambda file: int(file.stem))
        return [int(event[3]["Id"]) for file in files for event in json.loads(file.read_text())]
