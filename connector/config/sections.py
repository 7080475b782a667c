"""The sections of a configuration that every sink shares; each is a frozen pydantic model."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from connector.config.values import Duration, Size, TimestampText, is_relative, parse_duration, resolve_timestamp
from connector.core.timestamps import SECOND
from connector.spool.manifest import SourceName
from connector.storage.locations import checked

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")


class Section(BaseModel):
    """A mapping of options; an unknown option is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Tables(Section):
    """The tables whose events are kept: shell patterns over table names, ``schema.table`` in a named schema."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class SourceConfig(Section):
    """The change stream and how to read it."""

    project: str = Field(min_length=1)
    endpoint: str | None = None
    instance: str = Field(min_length=2)
    database: str = Field(min_length=1)
    change_stream: str
    start: TimestampText = "now"
    end: TimestampText | None = None
    heartbeat: Duration = SECOND
    rpc_priority: Literal["low", "medium", "high"] = "high"
    database_role: str | None = None
    reader: Literal["process", "executors"] = "process"
    workers: int | None = Field(default=None, ge=1, le=64)
    tables: Tables = Tables()
    skip_transaction_tags: tuple[str, ...] = ()
    late_records: Literal["stop", "dead-letter"] = "stop"
    backfill: bool = False
    complete_rows: bool = False
    emulator_host: str | None = None

    @property
    def name(self) -> SourceName:
        """The change stream, as a spool names it."""
        return SourceName(
            project=self.project, instance=self.instance, database=self.database, change_stream=self.change_stream
        )

    @field_validator("workers", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        if value is True or value is False:  # YAML's yes and no would count as 1 and 0
            raise ValueError(f"{value!r} is not a number of processes")
        return value

    @field_validator("change_stream")
    @classmethod
    def _identifier(cls, value: str) -> str:
        if not _IDENTIFIER.fullmatch(value):
            raise ValueError(f"{value!r} is not a valid change stream name: use letters, digits and underscores")
        return value

    @field_validator("heartbeat")
    @classmethod
    def _within_spanners_bounds(cls, value: int) -> int:
        if not SECOND <= value <= 300 * SECOND:
            raise ValueError("Spanner takes a heartbeat of 1s to 300s")
        return value

    @model_validator(mode="after")
    def _backfill_decides_start(self) -> "SourceConfig":
        if self.backfill and self.start != "now":
            raise ValueError(
                f"start {self.start}: with backfill the start is the backfill's timestamp: leave it at now"
            )
        return self

    @model_validator(mode="after")
    def _executors_need_no_workers(self) -> "SourceConfig":
        if self.reader == "executors" and self.workers is not None:
            raise ValueError("workers: with reader executors Spark's executors read: omit it")
        return self

    @model_validator(mode="after")
    def _end_after_start(self) -> "SourceConfig":
        # A relative and an absolute timestamp are compared once Spanner's clock is known.
        comparable = self.end is not None and is_relative(self.end) is is_relative(self.start)
        if self.end is not None and comparable and resolve_timestamp(self.end, 0) < resolve_timestamp(self.start, 0):
            raise ValueError(f"end {self.end} is before start {self.start}")
        return self


class SpoolConfig(Section):
    """Where epochs are kept, and how many bytes of them."""

    path: str = "./spool"
    seal_interval: Duration = SECOND
    max_bytes: Size = Field(default=10 * 1024**3, gt=0)

    @field_validator("path")
    @classmethod
    def _location(cls, value: str) -> str:
        return checked(value)


class EnvelopeConfig(Section):
    """The format of an event."""

    format: Literal["datastream", "opencdc"] = "datastream"
    stream_name: str | None = None
    read_method: str = "spanner-cdc"


def _spark_text(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class SparkConfig(Section):
    """The Spark session of ``spanner-cdc run``."""

    master: str = "local[*]"
    checkpoint: str = "./checkpoint"
    trigger: str = "1s"
    config: dict[str, str] = {}

    @field_validator("config", mode="before")
    @classmethod
    def _texts(cls, value: object) -> object:
        """Spark takes texts: YAML's numbers and booleans as Spark writes them."""
        if not isinstance(value, dict):
            return value
        return {name: _spark_text(one) if isinstance(one, bool | int | float) else one for name, one in value.items()}

    @field_validator("trigger")
    @classmethod
    def _duration(cls, value: str) -> str:
        parse_duration(value)
        return value

    @property
    def trigger_interval(self) -> int:
        """Nanoseconds between two micro-batches."""
        return parse_duration(self.trigger)


class StatusConfig(Section):
    """Where the status page and the metrics are served; with a ``token`` only to clients that send it."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    token: str = Field(default="", repr=False)
