"""The configuration: YAML with the names of the contract, checked before anything starts, all faults at once.

``${VAR}`` takes the environment's value. Durations are written ``1s``, ``250ms``, ``15m``, ``2h``, ``7d``; sizes
``64MB`` (powers of ten) or ``64MiB`` (powers of two).
"""

import os
import re
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from connector import bigquery_partition
from connector.bigquery_table import MERGE_LOAD, SCHEMA_IN_DATASET, BigQueryTarget, Mode, Shape
from connector.core.timestamps import SECOND, parse
from connector.errors import ConfigurationError
from connector.spool.manifest import SourceName
from connector.storage.locations import checked

_UNITS = {"ms": SECOND // 1000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86400 * SECOND}
_SIZES = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", 1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
_COMMENT_OR_VARIABLE = re.compile(r"^\s*#.*$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}", re.MULTILINE)
_NAMED_IN_YAML = re.compile(r"\b(tag handle|tag|alias) .*", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")


def parse_duration(value: object) -> object:
    """Nanoseconds of a duration such as ``1s`` or ``250ms``; a bare number counts seconds.

    Raises:
        ValueError: it is no duration.
    """
    match = re.fullmatch(r"(\d+(?:\.\d{1,9})?)(ms|s|m|h|d)?", str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError(f"{value!r} is no duration: write 1s, 250ms or 15m")
    whole, _, fraction = match[1].partition(".")
    unit = _UNITS[match[2] or "s"]
    return int(whole) * unit + int(fraction.ljust(9, "0") or 0) * unit // SECOND


def parse_size(value: object) -> object:
    """Bytes of a size such as ``250MB`` or ``10GiB``.

    Raises:
        ValueError: it is no size.
    """
    match = re.fullmatch(r"(\d+)\s*([KMGT]?i?B?)", str(value).strip())
    if match is None or match[2] not in _SIZES or isinstance(value, bool):
        raise ValueError(f"{value!r} is no size: write 64MB or 10GiB")
    return int(match[1]) * _SIZES[match[2]]


def parse_moment(value: object) -> object:
    """A moment as it was written: ``now``, an offset such as ``-15m``, or an RFC 3339 timestamp.

    Raises:
        ValueError: it is none of these.
    """
    if hasattr(value, "isoformat"):
        raise ValueError("put the timestamp in quotes, or YAML drops its nanoseconds")
    text = str(value).strip()
    if text == "now":
        return text
    if text.startswith("-"):
        parse_duration(text[1:])
        return text
    try:
        parse(text)
    except (ValueError, IndexError):
        raise ValueError(f"{text!r} is no moment: write now, -15m, or 2026-01-31T12:00:00Z") from None
    return text


def resolve_moment(moment: str, now: int) -> int:
    """Nanoseconds since the epoch of a moment that :func:`parse_moment` let pass; ``now`` is Spanner's."""
    if moment == "now":
        return now
    if moment.startswith("-"):
        offset = parse_duration(moment[1:])
        assert isinstance(offset, int)
        return now - offset
    return parse(moment)


Duration = Annotated[int, BeforeValidator(parse_duration)]
Size = Annotated[int, BeforeValidator(parse_size)]
Moment = Annotated[str, BeforeValidator(parse_moment)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tables(_Section):
    """Which tables' events are kept: shell patterns over table names, ``schema.table`` in a named schema."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class SourceConfig(_Section):
    """The change stream and how to read it."""

    project: str = Field(min_length=1)
    endpoint: str | None = None
    instance: str = Field(min_length=2)
    database: str = Field(min_length=1)
    change_stream: str
    start: Moment = "now"
    end: Moment | None = None
    heartbeat: Duration = SECOND
    rpc_priority: Literal["low", "medium", "high"] = "high"
    database_role: str | None = None
    workers: int | None = Field(default=None, ge=1, le=64, strict=True)
    tables: Tables = Tables()
    skip_transaction_tags: tuple[str, ...] = ()
    late_records: Literal["stop", "dead-letter"] = "stop"
    emulator_host: str | None = None

    @property
    def name(self) -> SourceName:
        """The change stream, as a spool names it."""
        return SourceName(
            project=self.project, instance=self.instance, database=self.database, change_stream=self.change_stream
        )

    @field_validator("change_stream")
    @classmethod
    def _identifier(cls, value: str) -> str:
        if not _IDENTIFIER.fullmatch(value):
            raise ValueError(f"{value!r} is no name of a change stream: letters, digits and underscores")
        return value

    @field_validator("heartbeat")
    @classmethod
    def _within_spanners_bounds(cls, value: int) -> int:
        if not SECOND <= value <= 300 * SECOND:
            raise ValueError("Spanner takes a heartbeat of 1s to 300s")
        return value

    @model_validator(mode="after")
    def _end_after_start(self) -> "SourceConfig":
        # A moment of the clock and one of the calendar are compared once Spanner's clock is known.
        comparable = self.end is not None and _is_relative(self.end) is _is_relative(self.start)
        if self.end is not None and comparable and resolve_moment(self.end, 0) < resolve_moment(self.start, 0):
            raise ValueError(f"end {self.end} is before start {self.start}")
        return self


def _is_relative(moment: str) -> bool:
    return moment == "now" or moment.startswith("-")


class SpoolConfig(_Section):
    """Where epochs are kept, and how much of them."""

    path: str = "./spool"
    seal_interval: Duration = SECOND
    max_bytes: Size = Field(default=10 * 1024**3, gt=0)

    @field_validator("path")
    @classmethod
    def _location(cls, value: str) -> str:
        return checked(value)


class EnvelopeConfig(_Section):
    """What an event looks like."""

    format: Literal["datastream", "opencdc"] = "datastream"
    stream_name: str | None = None
    read_method: str = "spanner-cdc"


class FilesConfig(_Section):
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
    dead_letters: str = "./dead-letters"
    object: Literal["table", "schema_table"] = "table"
    arrays: Literal["json", "multidimensional"] = "json"

    @field_validator("path", "dead_letters")
    @classmethod
    def _location(cls, value: str) -> str:
        return checked(value)

    @field_validator("rotate_interval")
    @classmethod
    def _minute_or_at_once(cls, value: int) -> int:
        if value not in (0, 60 * SECOND):
            raise ValueError("files are written by the minute (60s) or as soon as an epoch is sealed (0)")
        return value


class BigQueryConfig(_Section):
    """Tables of BigQuery, as Datastream writes them.

    ``project`` is the source's where there is none; datasets that are missing are made in ``location``, where one is
    given.
    """

    type: Literal["bigquery"]
    project: str | None = None
    dataset: str
    mode: Mode = "merge"
    max_staleness: Duration = 3600 * SECOND
    partition_by: dict[str, str] = {}
    prune_by_keys: bool = Field(default=True, strict=True)
    prefix: str = ""
    timestamps: Literal["micros", "text"] = "micros"
    numeric: Literal["string", "bignumeric"] = "string"
    arrays: Literal["repeated", "json"] = "repeated"
    endpoint: str | None = None
    grpc_endpoint: str | None = None
    location: str | None = None
    dead_letters: str = "./dead-letters"

    def shape(self, default_schema: str = "") -> Shape:
        """What decides what tables look like."""
        partition_by = bigquery_partition.to_text(self.partition_by)
        return Shape(
            self.dataset,
            self.mode,
            self.prefix,
            self.timestamps,
            self.numeric,
            self.arrays,
            default_schema,
            partition_by,
        )

    def target(self, source: SourceConfig) -> BigQueryTarget:
        """Where it is."""
        return BigQueryTarget(self.project or source.project, self.endpoint or "", self.grpc_endpoint or "")

    @field_validator("dataset")
    @classmethod
    def _dataset(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]{1,900}", value.replace(SCHEMA_IN_DATASET, "s")):
            raise ValueError(f"{value!r} is no name of a dataset: letters, digits, underscores, {SCHEMA_IN_DATASET}")
        return value

    @field_validator("max_staleness")
    @classmethod
    def _within_a_day(cls, value: int) -> int:
        if value > 24 * 3600 * SECOND:
            raise ValueError("BigQuery takes at most 24h")
        if value % SECOND:
            raise ValueError("BigQuery takes whole seconds")
        return value

    @field_validator("partition_by")
    @classmethod
    def _partitionings(cls, value: dict[str, str]) -> dict[str, str]:
        for spec in value.values():
            bigquery_partition.parse(spec)
        return value

    @field_validator("prefix")
    @classmethod
    def _of_a_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9_]{0,100}", value):
            raise ValueError(f"{value!r} is no beginning of a table's name: letters, digits, underscores, at most 100")
        return value

    @field_validator("location")
    @classmethod
    def _region(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9-]+", value):
            raise ValueError(f"{value!r} is no location: write EU, US or a region such as europe-west1")
        return value

    @field_validator("endpoint")
    @classmethod
    def _with_scheme(cls, value: str | None) -> str | None:
        if value and not re.fullmatch(r"https?://\S+", value):
            raise ValueError(f"{value!r} is no address: write http://HOST:PORT or https://HOST")
        return value

    @field_validator("grpc_endpoint")
    @classmethod
    def _without_scheme(cls, value: str | None) -> str | None:
        if value and re.match(r"https?:|.*\s", value):
            raise ValueError(f"{value!r} is no address: write HOST:PORT, without a scheme")
        return value

    @field_validator("dead_letters")
    @classmethod
    def _location(cls, value: str) -> str:
        return checked(value)


def _type_of(node: object) -> str:
    kind = node.get("type", "files") if isinstance(node, dict) else getattr(node, "type", "files")
    return str(kind)


_SINKS = {"files": FilesConfig, "bigquery": BigQueryConfig}
SinkConfig = Annotated[
    Annotated[FilesConfig, Tag("files")] | Annotated[BigQueryConfig, Tag("bigquery")], Discriminator(_type_of)
]
"""The destination of ``spanner-cdc run``."""


class SparkConfig(_Section):
    """The Spark session of ``spanner-cdc run``."""

    master: str = "local[*]"
    checkpoint: str = "./checkpoint"
    trigger: str = "1s"
    config: dict[str, str] = {}

    @field_validator("trigger")
    @classmethod
    def _duration(cls, value: str) -> str:
        parse_duration(value)
        return value


class StatusConfig(_Section):
    """Where the status page and the metrics are served."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)


class Config(_Section):
    """A whole configuration file."""

    source: SourceConfig
    spool: SpoolConfig = SpoolConfig()
    envelope: EnvelopeConfig = EnvelopeConfig()
    sink: SinkConfig = FilesConfig()
    spark: SparkConfig = SparkConfig()
    status: StatusConfig = StatusConfig()
    drain_timeout: Duration = 30 * SECOND

    @model_validator(mode="after")
    def _both_endpoints(self) -> "Config":
        sink = self.sink
        if isinstance(sink, BigQueryConfig) and sink.mode != MERGE_LOAD:
            if sink.endpoint and not sink.grpc_endpoint:
                raise ValueError("sink.grpc_endpoint: is needed beside sink.endpoint, for rows go over gRPC")
            if not sink.endpoint and (sink.grpc_endpoint or "").startswith(("127.0.0.1", "localhost", "[::1]")):
                raise ValueError("sink.endpoint: is needed beside an emulator's sink.grpc_endpoint, to make tables")
        return self

    @model_validator(mode="after")
    def _format_of_envelope(self) -> "Config":
        opencdc = self.envelope.format == "opencdc"
        if isinstance(self.sink, BigQueryConfig):
            if opencdc:
                raise ValueError(
                    "envelope.format: opencdc is of files: BigQuery's tables are of the datastream envelope"
                )
            return self
        if self.sink.format == "avro" and opencdc:
            raise ValueError("sink.format: avro is of the datastream envelope: with opencdc write jsonl or protobuf")
        if self.sink.format == "protobuf" and not opencdc:
            raise ValueError("sink.format: protobuf is of the opencdc envelope: with datastream write jsonl or avro")
        if self.sink.schema_files and opencdc:
            raise ValueError("sink.schema_files: they are of the datastream envelope, and opencdc has none")
        if self.sink.object != "table" and opencdc:
            raise ValueError("sink.object: it is of the datastream envelope, and opencdc has none")
        if self.sink.arrays != "json" and self.sink.format != "avro":
            raise ValueError(f"sink.arrays: it is of format avro: {self.sink.format} has arrays of its own")
        return self


def load(path: str | Path) -> Config:
    """Reads a configuration file.

    Raises:
        ConfigurationError: naming every fault, by field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{path}: {getattr(error, 'strerror', None) or 'cannot be read'}"]) from error
    missing: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        if name not in os.environ:
            missing.append(f"{path}: the environment has no variable {name}")
        return os.environ.get(name, "")

    text = _COMMENT_OR_VARIABLE.sub(value, text)
    if missing:
        raise ConfigurationError(missing)
    try:
        node = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError([f"{path} is not YAML: {_fault_of_yaml(error)}"]) from None
    if not isinstance(node, dict):
        raise ConfigurationError([f"{path} holds no mapping of sections such as source and spool"])
    return validated(node)


def validated(node: dict[str, object]) -> Config:
    """The configuration in a mapping.

    Raises:
        ConfigurationError: naming every fault, by field.
    """
    try:
        return Config.model_validate(node)
    except ValidationError as error:
        raise ConfigurationError([_fault(detail) for detail in error.errors()]) from error


def _fault_of_yaml(error: Exception) -> str:
    """What is wrong and where, without the text itself: the environment may have filled a secret in."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark, problem = error.problem_mark, _NAMED_IN_YAML.sub(r"\1", error.problem or "")
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if isinstance(error, yaml.reader.ReaderError):
        return f"position {error.position}: {error.reason}"
    return "it holds a date or a number that there is not"


def _fault(detail: ErrorDetails) -> str:
    where = [str(part) for part in detail["loc"]]
    if where[0:1] == ["sink"] and where[1:2] and where[1] in _SINKS:
        del where[1]  # which of the two it is
    field = ".".join(where)
    match detail["type"]:
        case "union_tag_invalid":
            return f"{field}.type: {detail['ctx']['tag']!r} is none of {', '.join(_SINKS)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{field}: write its options below it, one a line"
        case "extra_forbidden":
            return f"{field}: there is no such option"
        case "missing":
            return f"{field}: is needed"
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            return f"{field}: {message}" if field else message
