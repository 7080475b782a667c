"""The file sink's options."""

from typing import Literal

from pydantic import field_validator

from connector.config.sections import EnvelopeConfig
from connector.config.sinks import SinkConfig
from connector.config.values import Duration, Size
from connector.core.timestamps import SECOND
from connector.storage.locations import checked

CONSUMER = "files"
"""The name of the sink's consumer in the spool, unless ``sink.name`` says otherwise."""


class FilesConfig(SinkConfig):
    """Files in Datastream's layout."""

    type: Literal["files"] = "files"
    path: str = "./events"
    format: Literal["jsonl", "avro", "protobuf"] = "jsonl"
    gzip: bool = False
    rotate_bytes: Size = 250_000_000
    rotate_interval: Duration = 60 * SECOND
    timestamps: Literal["micros", "text"] = "micros"
    schema_files: bool = False
    endpoint: str | None = None
    object: Literal["table", "schema_table"] = "table"
    arrays: Literal["json", "multidimensional"] = "json"

    @field_validator("path")
    @classmethod
    def _location(cls, value: str) -> str:
        return checked(value)

    @field_validator("rotate_interval")
    @classmethod
    def _minute_or_at_once(cls, value: int) -> int:
        if value not in (0, 60 * SECOND):
            raise ValueError("files are written by the minute (60s) or as soon as an epoch is sealed (0)")
        return value


def check_options(sink: FilesConfig, envelope: EnvelopeConfig) -> None:
    """Checks that the files can hold the envelope.

    Raises:
        ValueError: they cannot.
    """
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
