"""Registers the file sink as ``sink.type: files``."""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from connector.config.loading import Config
from connector.config.sections import EnvelopeConfig, SourceConfig, SparkConfig
from connector.config.sinks import Location, WatchedStream
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import collisions
from connector.extras import EXTRAS
from connector.spool.storage.locations import absolute, in_cloud_storage, unbilled
from spark_sink.sinks.files import checks
from spark_sink.sinks.files.config import FORMER_NAMES, FilesConfig
from spark_sink.sinks.shared.sink_type import SparkSinkType

if TYPE_CHECKING:
    from connector.config.replicas import Replica
    from spark_sink.sinks.shared.dead_letters import Replay
    from spark_sink.sinks.shared.delivery import Delivery
    from spark_sink.sinks.shared.feed import Feed
    from spark_sink.sinks.shared.published_cut import PublishedCut


_EXTRAS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "avro": {"avro": EXTRAS["avro"]},
    "opencdc-protobuf": {"reader": ["google.protobuf"]},
}
"""The modules that a format needs, by the format and the extra that brings them."""


class FilesSink(SparkSinkType[FilesConfig]):
    """Files in Datastream's layout, on disk or in Cloud Storage."""

    checkpoint_is_the_root = True
    former_names = FORMER_NAMES

    def default_options(self) -> FilesConfig:
        """Nothing must be given."""
        return FilesConfig()

    def check_options(self, sink: FilesConfig, envelope: EnvelopeConfig) -> None:
        """Checks that the files can hold the envelope."""
        opencdc = envelope.format == "opencdc"
        if sink.format == "avro" and opencdc:
            raise ValueError("sink.format: avro needs the datastream envelope: with opencdc write jsonl or protobuf")
        if sink.format == "protobuf" and not opencdc:
            raise ValueError("sink.format: protobuf needs the opencdc envelope: with datastream write jsonl or avro")
        if sink.schema_files and opencdc:
            raise ValueError("sink.schema_files: needs the datastream envelope, not opencdc")
        if sink.object != "table" and opencdc:
            raise ValueError("sink.object: schema_table needs the datastream envelope, not opencdc")
        if sink.arrays != "json" and sink.format != "avro":
            raise ValueError(f"sink.arrays: multidimensional needs format avro, not {sink.format}")

    def destination(self, sink: FilesConfig, source: SourceConfig, envelope: EnvelopeConfig) -> Mapping[str, str]:
        """The options that a folder is read by: with another format, envelope or naming it would hold another history.

        Files say by their names whether they are compressed, and Avro's by their schemas how they write types.
        """
        del source
        return {
            "sink.path": unbilled(sink.path).rstrip("/") if in_cloud_storage(sink.path) else os.path.abspath(sink.path),  # noqa: PTH100
            "sink.format": sink.format,
            "sink.object": sink.object,
            "envelope.format": envelope.format,
        }

    def starts_by_minute(self, sink: FilesConfig) -> bool:
        """A file is named by the first epoch of its minute."""
        return sink.rotate_interval > 0

    def locations(self, sink: FilesConfig) -> Sequence[Location]:
        """Both are reached at the same endpoint."""
        return [
            Location("sink.path", sink.path, sink.endpoint),
            Location("sink.dead_letters", sink.dead_letters, sink.endpoint),
        ]

    def extras(self, sink: FilesConfig) -> Mapping[str, Sequence[str]]:
        """Avro and protobuf need a library each."""
        return _EXTRAS.get(sink.format, {})

    def stream_errors(self, sink: FilesConfig, stream: WatchedStream) -> list[str]:
        """Columns whose names collide in Avro, where the sink writes Avro or its schemas."""
        if sink.format != "avro" and not sink.schema_files:
            return []
        return [f"sink.format: {fault}" for table in stream.tables for fault in collisions(table)]

    def column_types(self, table: TableSchema) -> Mapping[str, Mapping[str, str]]:
        """In JSON lines, and in Avro."""
        return {"jsonl": checks.json_types(table), "avro": checks.avro_types(table)}

    def table_problems(self, table: TableSchema) -> Sequence[str]:
        """Names that collide in Avro."""
        return list(collisions(table))

    def warnings(self, sink: FilesConfig, stream: WatchedStream) -> list[str]:
        """Partial rows, and keys that Avro would cut."""
        return list(checks.warnings_of_files(sink, stream))

    def delivery(self, config: Config, sink: FilesConfig, feed: "Feed") -> "Delivery":
        """Writes files."""
        from spark_sink.sinks.files.delivery import FileDelivery

        return FileDelivery(config, sink, feed)

    def replay_into(self, config: Config, sink: FilesConfig) -> "AbstractContextManager[Replay]":
        """Writes files."""
        from spark_sink.sinks.files.replay import replay_into
        from spark_sink.sinks.shared.dead_letters import DeadLetters

        return replay_into(config, DeadLetters.of(self, sink))

    def published_cuts(self, config: Config, sink: FilesConfig) -> "Sequence[PublishedCut]":
        """The complete minutes of the newest 24 hours, each as of its end."""
        from connector.spool.reading import Spool
        from spark_sink.sinks.files.minute_store import MinuteStore
        from spark_sink.sinks.files.writer import destination_at

        destination = destination_at(absolute(sink.path), sink.endpoint or "")
        return MinuteStore(destination, Spool.at(absolute(config.spool.path)), sink.name).cuts()

    def sink_of_backfill(self, sink: FilesConfig) -> FilesConfig:
        """A file holds rows of one epoch: all rows have the same minute, and none waits for its end."""
        return sink.model_copy(update={"rotate_interval": 0})

    def replica(
        self, sink: FilesConfig, source: SourceConfig, spool: str, envelope: EnvelopeConfig, spark: SparkConfig
    ) -> "Replica":
        """The files, read back."""
        del source, envelope, spark
        from spark_sink.sinks.files.replica import FilesReplica

        return FilesReplica(sink, spool)


SINK = FilesSink(FilesConfig)
