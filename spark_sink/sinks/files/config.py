"""The file sink's options."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import field_validator

from connector.config.sections import PathText
from connector.config.sinks import SinkConfig
from connector.config.values import Duration, Size
from connector.core.timestamps import SECOND

CONSUMER = "files"
"""The name of the sink's consumer in the spool, unless ``sink.name`` says otherwise."""

FORMER_NAMES = r"files/[0-9a-f]+_files(_\d+)+"
"""As :class:`spark_sink.sinks.shared.dead_letters.DeadLetters` takes it."""


class FilesConfig(SinkConfig):
    """Files in Datastream's layout."""

    type: Literal["files"] = "files"
    path: PathText = "./events"
    """A local folder, or ``gs://bucket/prefix``."""
    format: Literal["jsonl", "avro", "protobuf"] = "jsonl"
    """``avro`` needs the extra of that name; ``protobuf`` is for the OpenCDC envelope."""
    gzip: bool = False
    """Compress files; for Avro the codec ``deflate``."""
    rotate_bytes: Size = 250_000_000
    """The size beyond which a minute's events of a table continue in another file."""
    rotate_interval: Duration = 60 * SECOND
    """``60s``: a table's minute is written once the watermark has passed it; ``0s``: each epoch as soon as it is
    sealed."""
    timestamps: Literal["micros", "text"] = "micros"
    """Avro: timestamps with microseconds, or text with all their digits."""
    schema_files: bool = False
    """Writes the Avro schema of each table's events beside its files."""
    endpoint: str | None = None
    """An emulator of Cloud Storage; else that of ``STORAGE_EMULATOR_HOST``."""
    object: Literal["table", "schema_table"] = "table"
    """The ``object`` of an event: the table, or ``schema_table`` as in Datastream's files."""
    arrays: Literal["json", "multidimensional"] = "json"
    """Avro: arrays as JSON, or as Datastream's records of multidimensional arrays."""

    in_buckets: ClassVar[Sequence[str]] = ("path", "dead_letters")

    @field_validator("rotate_interval")
    @classmethod
    def _minute_or_at_once(cls, value: int) -> int:
        if value not in (0, 60 * SECOND):
            raise ValueError("files are written by the minute (60s) or as soon as an epoch is sealed (0)")
        return value
