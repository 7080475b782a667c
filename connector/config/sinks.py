"""Kinds of sinks: what the connector must know of a destination, and where it learns it from.

The connector knows no destination itself. A package registers one by an entry point of this group::

    [project.entry-points."spanner_cdc.sinks"]
    files = "spark_sink.sinks.files.sink_type:SINK"

Where the project is not installed but only on the import path, its own sinks come from :data:`BUILT_IN` instead.

The entry point's name is what ``sink.type`` names, and unless ``sink.name`` says otherwise the name of the sink's
consumer in the spool. Its value is a
:class:`SinkType`. It is imported when a configuration names it, so that the libraries of the others are not needed.
"""

import re
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Generic, TypeVar

from pydantic import field_validator, model_validator

from connector.config.replicas import DatabaseCopy, Replica
from connector.config.sections import EnvelopeConfig, Section, SourceConfig, SparkConfig
from connector.config.values import OLDEST, SinkStartText
from connector.core.schemas import TableSchema
from connector.errors import ConfigurationError
from connector.spool.consumers import DEFAULT
from connector.spool.storage.locations import checked, with_user_project

GROUP = "spanner_cdc.sinks"
BUILT_IN = "spark_sink.built_in"
"""The module that names the project's own sinks, for code that runs without having been installed."""

DEFAULT_SINK = "files"
"""The type of a sink that names none."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class SinkConfig(Section):
    """The options that every sink has; a destination's own model derives from it.

    Options that hold a path or ``gs://bucket/prefix`` are to be validated with
    :func:`connector.spool.storage.locations.checked`, as :data:`connector.config.sections.PathText` does.
    """

    type: str
    """The kind of destination."""
    name: str = ""
    """The sink's consumer in the spool; by default the type. Another for a second sink of one spool."""
    start: SinkStartText = OLDEST
    """The start while the spool has no record of the sink: ``oldest`` that is kept, ``now``, an offset from the newest
    epoch such as ``-2h``, or RFC 3339 in quotes."""
    dead_letters: str = "./dead-letters"
    """The store of rows that cannot be written: a folder, or ``gs://bucket/prefix``."""
    user_project: str | None = None
    """The project that is billed for requests to the sink's buckets, where the requester pays."""

    in_buckets: ClassVar[Sequence[str]] = ("dead_letters",)
    """The options that may name a bucket; they have ``user_project`` within their URLs afterwards."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_type(cls, node: object) -> object:
        if not isinstance(node, dict) or node.get("name") is not None:
            return node
        kind = node.get("type", cls.model_fields["type"].default)
        return {**node, "name": kind if isinstance(kind, str) else "unnamed"}

    @model_validator(mode="before")
    @classmethod
    def _billed(cls, node: object) -> object:
        return with_user_project(node, cls.in_buckets)

    @field_validator("dead_letters")  # not by its type: a model that derives from this one may have another default
    @classmethod
    def _dead_letters_location(cls, value: str) -> str:
        return checked(value)

    @field_validator("name")
    @classmethod
    def _consumer_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value) or value == DEFAULT:
            raise ValueError(
                f"{value!r} is not a valid sink name: use up to 100 letters, digits, dashes or underscores,"
                f" and not {DEFAULT}"
            )
        return value

    @property
    def has_default_name(self) -> bool:
        """True if the sink is named by its type, as the only one of that type usually is."""
        return self.name == self.type

    @property
    def copies_schemas(self) -> bool:
        """True if the sink creates tables from the source's own DDL, which ``source.columns`` does not change."""
        return False


C = TypeVar("C", bound=SinkConfig)


@dataclass(frozen=True, slots=True)
class Location:
    """A path that a sink writes below, and the option that holds it.

    Attributes:
        option: its name, such as ``sink.path``.
        path: of the local disk or of Cloud Storage.
        endpoint: an emulator's address, or None.
        by_spark: whether Spark's file systems write it, which may mean another place by the path than this machine.
    """

    option: str
    path: str
    endpoint: str | None = None
    by_spark: bool = False


@dataclass(frozen=True, slots=True)
class WatchedStream:
    """A change stream as it is described to a sink before anything is read.

    Attributes:
        name: the change stream's.
        value_capture_type: as Spanner names it, such as ``NEW_ROW``.
        dialect: ``googlesql`` or ``postgresql``.
        default_schema: the name that events give the unnamed schema.
        tables: the watched tables that the configuration keeps.
        completes_rows: whether the columns that an update does not name are read (``source.complete_rows``).
        is_backfilled: whether every row is delivered first (``source.backfill``).
        options: those that are set in Spanner, by their names, such as ``exclude_ttl_deletes``.
    """

    name: str
    value_capture_type: str
    dialect: str
    default_schema: str
    tables: tuple[TableSchema, ...] = ()
    completes_rows: bool = False
    is_backfilled: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DestinationObject:
    """A table or a view at a destination, whoever has created it.

    Attributes:
        name: as the destination has it, such as ``dataset.table``.
        columns: the type of each column, as the destination names it.
        key: the columns of its key, in order; empty if it has none.
    """

    name: str
    columns: Mapping[str, str]
    key: tuple[str, ...] = ()


class SinkType(ABC, Generic[C]):
    """A kind of destination, as far as the command line needs to know it.

    Every method but :meth:`check_options` is for ``spanner-cdc check`` and the start of ``spanner-cdc run``. An error
    is a sentence after the option that it is about, such as ``sink.path: ...``.

    Args:
        config_type: the model of the section ``sink``.
    """

    waits_for_backfill = False
    """True if changes are delivered only while no backfill is unfinished: the destination cannot order them by row."""

    is_read_by_spark = False
    """True if ``verify`` starts Spark to read the destination."""

    checkpoint_is_the_root = False
    """True if Spark's checkpoint of a sink without a name is ``spark.checkpoint`` itself, and not a folder below it."""

    former_names = ""
    """A regular expression of this sink's files in the folder of dead letters that all types once shared: the type, a
    slash and the name of a file. If empty, such names begin with the spool's id and the type: ``0123abcd_sqlite_7_0``.
    """

    own_tables: frozenset[str] = frozenset()
    """Tables that such a sink keeps in its destination: a source that is one has them, and they are no copy."""

    def __init__(self, config_type: type[C]) -> None:
        self.config_type = config_type

    def default_options(self) -> C | None:
        """A section with default options, and any values where there is none, to describe what ``discover`` shows.

        None if there is nothing to say about change streams.
        """
        return None

    def check_options(self, sink: C, envelope: EnvelopeConfig) -> None:
        """Checks options against each other and against those of other sections.

        Raises:
            ValueError: an option is invalid.
        """

    def destination(self, sink: C, source: SourceConfig, envelope: EnvelopeConfig) -> Mapping[str, str]:
        """The options that identify the destination, as text, by their names such as ``sink.path``; calls no server.

        A spool that the sink has started to deliver cannot be delivered with others: whoever reads the destination
        would see a history that is incomplete. Without any, nothing is compared.
        """
        return {}

    def starts_by_minute(self, sink: C) -> bool:
        """True if what is written holds whole minutes, so that a new sink must start at a full one (``sink.start``)."""
        return False

    def locations(self, sink: C) -> Sequence[Location]:
        """The places that must be writable."""
        return [Location("sink.dead_letters", sink.dead_letters)]

    def extras(self, sink: C) -> Mapping[str, Sequence[str]]:
        """The extras of this package that the sink needs, beside ``spark``, and ``gcs`` for its locations.

        With the modules that each brings.
        """
        return {}

    def library_errors(self, sink: C, spark: SparkConfig) -> Sequence[str]:
        """The reasons why the installed Spark cannot write the destination; calls no server."""
        return []

    def stream_decides(self, sink: C) -> bool:
        """True if ``run`` must ask :meth:`stream_errors` before it starts the sink.

        It asks without tables: one that the destination cannot hold keeps no other from being delivered.
        """
        return False

    def stream_errors(self, sink: C, stream: WatchedStream) -> list[str]:
        """The reasons why the destination cannot hold the change stream's tables; calls no server."""
        return []

    def destination_errors(self, sink: C, source: SourceConfig, stream: WatchedStream | None) -> list[str]:
        """Checks the destination by calling it; ``stream`` is None where Spanner could not be reached."""
        return []

    def session_errors(self, sink: C, spark: SparkConfig) -> Sequence[str]:
        """Checks the destination from a session of Spark, which takes a while; called where nothing else is wrong."""
        return []

    def warnings(self, sink: C, stream: WatchedStream) -> list[str]:
        """Warnings about the sink's output, for those who read it; calls no server."""
        return []

    def column_types(self, table: TableSchema) -> Mapping[str, Mapping[str, str]]:
        """The type of each column in the destination with default options, by the name of a format or of the sink."""
        return {}

    def table_problems(self, table: TableSchema) -> Sequence[str]:
        """The reasons why the destination cannot hold a table with default options, each in a sentence."""
        return []

    def objects(
        self, sink: C, source: SourceConfig, spark: SparkConfig, stream: WatchedStream
    ) -> Sequence[DestinationObject] | None:
        """The tables and views that are at the destination now, sorted by name; calls it.

        None if a destination of this kind has none.

        Raises:
            SpannerCdcError: the destination cannot be reached, or refuses.
        """
        return None

    def estimates(self, sink: C, source: SourceConfig, spark: SparkConfig, stream: WatchedStream) -> list[str]:
        """Estimates the use of the destination's quotas, and what it costs; may call the destination."""
        return []

    def replica(
        self, sink: C, source: SourceConfig, spool: str, envelope: EnvelopeConfig, spark: SparkConfig
    ) -> Replica | DatabaseCopy:
        """The destination's contents, for ``spanner-cdc verify``; may call the destination.

        Another Spanner database is described, and the caller reads it.

        Raises:
            ConfigurationError: destinations of this kind, or with these options, cannot be verified.
            SpannerCdcError: the destination cannot be read, or nothing was delivered yet.
        """
        raise ConfigurationError([f"sink.type: a destination of type {sink.type} cannot be verified"])


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    """The registered sinks by name, the default one first."""
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    found = dict(sorted({**_built_in(), **installed}.items()))
    default = found.pop(DEFAULT_SINK, None)
    return found if default is None else {DEFAULT_SINK: default, **found}


def _built_in() -> Mapping[str, EntryPoint]:
    try:
        sinks: Mapping[str, str] = import_module(BUILT_IN).SINKS
    except ModuleNotFoundError:  # the connector alone
        return {}
    return {name: EntryPoint(name, value, GROUP) for name, value in sinks.items()}


def sink_names() -> list[str]:
    """The names of all registered sinks; none is imported."""
    return list(_entry_points())


@cache
def sink_type(name: str) -> "SinkType[SinkConfig]":
    """The kind of sink that is registered under a name.

    Raises:
        ConfigurationError: there is none, or it cannot be imported.
    """
    entry = _entry_points().get(name)
    if not _entry_points():
        raise ConfigurationError(
            [f"sink.type: no entry point of the group {GROUP} is installed: install spanner-cdc-spark with pip"]
        )
    if entry is None:
        raise ConfigurationError([f"sink.type: {name!r} is none of {', '.join(sink_names())}"])
    try:
        kind: object = entry.load()
    except Exception as error:
        raise ConfigurationError(
            [f"sink.type: sink {name!r} cannot be imported from {entry.value}: {error}"]
        ) from error
    if not isinstance(kind, SinkType):
        raise ConfigurationError([f"sink.type: {entry.value}, registered as sink {name!r}, is not a SinkType"])
    return kind
