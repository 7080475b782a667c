"""The options of tables in Delta, Iceberg or Parquet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, field_validator

from connector.config.sections import Section
from connector.config.sinks import SinkConfig
from connector.config.values import Duration
from connector.core.timestamps import MINUTE, SECOND
from connector.spool.storage.locations import absolute, named

Format = Literal["delta", "iceberg", "parquet"]
Mode = Literal["merge", "append", "history"]
Deletes = Literal["apply", "flag"]

_DATABASE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]+")

FORMER_NAMES = r"tables/[0-9a-f]+_tables(_\d+)+"
"""As :class:`spark_sink.sinks.shared.dead_letters.DeadLetters` takes it."""

_FILES, _LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_DAY = 24 * 3600

DELTA_RETENTIONS: Mapping[str, int] = {_FILES: 7 * _DAY, _LOG: 30 * _DAY}
"""The seconds for which Delta keeps former versions, where a table does not have the property of that name."""

_LOG_MARGIN = 7 * _DAY
"""Seconds by which a log is kept for longer than cuts.

Delta goes by the time of a version's commit, and not by when another has followed: until then cuts name the version.
"""


class CutsConfig(Section):
    """Published cuts."""

    keep: Duration = 24 * 3600 * SECOND
    """The time for which published cuts are kept, and the versions of tables that they name; a minute at least."""

    @field_validator("keep")
    @classmethod
    def _at_least(cls, value: int) -> int:
        if value < MINUTE:
            raise ValueError("it is less than a minute: nobody could read a cut in time")
        return value


class TablesConfig(SinkConfig):
    """Tables of Delta, Iceberg or Parquet, one for each table of Spanner."""

    type: Literal["tables"] = "tables"
    format: Format = "delta"
    """``delta`` and ``iceberg`` bring their libraries from Maven, unless ``spark.config`` names them."""
    path: str | None = None
    """A folder in which each table has one of its own, on disk or as Spark reaches it. Either this or ``database``."""
    database: str | None = None
    """A database of Spark's catalog, such as ``sales`` or ``lake.sales``, which exists. ``check`` looks for it."""
    mode: Mode = "merge"
    """``merge``: the rows as they are in Spanner. ``append``: a row for each change; Parquet has only this.
    ``history``: a row for each version of a row, with the time from which and to which it was valid."""
    deletes: Deletes = "apply"
    """Mode merge: remove deleted rows, or keep them with ``_is_deleted``."""
    table_properties: dict[str, str] = Field(default_factory=dict)
    """Properties of the tables that the sink creates, beside its own."""
    cuts: CutsConfig = Field(default_factory=CutsConfig)
    maintenance: Literal["created", "all", "none"] = "created"
    """The tables that the sink maintains between micro-batches: it makes their small files fewer, and removes versions
    that no published cut needs. ``created``: those that it has created; ``all``: also those of others. Not of Parquet.
    """

    @field_validator("path")
    @classmethod
    def _location(cls, value: str | None) -> str | None:
        return None if value is None else named(value)

    @field_validator("database")
    @classmethod
    def _names(cls, value: str | None) -> str | None:
        if value is not None and not _DATABASE.fullmatch(value):
            raise ValueError(f"{value!r} is not the name of a database: use letters, digits and underscores, and dots")
        return value

    @field_validator("table_properties")
    @classmethod
    def _property_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not _PROPERTY.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a table property")
        return value

    @property
    def options(self) -> "TableOptions":
        """The options that decide the tables and their rows.

        Raises:
            ValueError: the options contradict each other.
        """
        for name in ("cuts", "maintenance") if self.format == "parquet" else ():
            if name in self.model_fields_set:
                raise ValueError(
                    f"{name}: Parquet files have no versions: leave it out, or use format delta or iceberg"
                )
        path = None if self.path is None else absolute(self.path)
        kept = {name: value for name, value in self._kept_versions().items() if name not in self.table_properties}
        properties = {**kept, **self.table_properties}
        return TableOptions(self.format, path, self.database, self.mode, self.deletes, properties, kept)

    def _kept_versions(self) -> dict[str, str]:
        """The properties of a table of Delta by which the versions of its cuts are kept; none if its defaults do it."""
        keep = -(-self.cuts.keep // SECOND)
        if self.format != "delta" or keep <= DELTA_RETENTIONS[_FILES]:
            return {}
        wanted = {_FILES: keep, _LOG: max(keep + _LOG_MARGIN, DELTA_RETENTIONS[_LOG])}
        return {name: f"interval {seconds} seconds" for name, seconds in wanted.items()}


INSERTED_TWICE = "with snapshot two merges at the same time, as of a backfill and the stream, could insert a key twice"
"""See https://iceberg.apache.org/docs/latest/configuration/#write-properties."""

_ROW_LEVEL = ("write.merge.mode", "write.update.mode", "write.delete.mode")


def snapshot_isolation(properties: Mapping[str, str]) -> str:
    """The property of a table by which merges have snapshot isolation; empty if none has it.

    Two merges at once then both insert a key that is not there, and neither is refused.
    """
    return next(
        (name for name in properties if name.endswith(".isolation-level") and properties[name].lower() == "snapshot"),
        "",
    )


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options that decide the tables and their rows, from the section ``sink`` or the arguments of ``merge_into``.

    The retentions of ``kept`` are those of the properties by which tables keep the versions of cuts, and which a table
    of the sink gets later, too, if its own are shorter.

    Raises:
        ValueError: they contradict each other; the text begins with the name of an option.
    """

    format: Format
    path: str | None
    database: str | None
    mode: Mode
    deletes: Deletes
    properties: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value, values in (
            ("format", self.format, ("delta", "iceberg", "parquet")),
            ("mode", self.mode, ("merge", "append", "history")),
            ("deletes", self.deletes, ("apply", "flag")),
        ):
            if value not in values:
                raise ValueError(f"{name}: {value!r} is none of {', '.join(values)}")
        if (self.path is None) == (self.database is None):
            raise ValueError("path: give either path, a folder for all tables, or database, one of Spark's catalog")
        if self.format == "parquet" and self.mode != "append":
            raise ValueError("mode: Parquet files cannot be merged: use mode append, or format delta or iceberg")
        if self.format == "parquet" and self.database is not None:
            raise ValueError("database: format parquet needs path: its commit log is in the folder of each table")
        if self.mode == "append" and self.deletes == "flag":
            raise ValueError("deletes: mode append has a row for each change, deletes among them")
        if self.mode == "history" and self.deletes == "flag":
            raise ValueError("deletes: mode history has the versions of deleted rows in any case")
        self._check_properties()

    def _check_properties(self) -> None:
        for name, value in self.properties.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ValueError(  # noqa: TRY004 - as of the other options
                    f"table_properties: {name}: the name and the value of a property are texts"
                )
        if self.format == "parquet" and self.properties:
            raise ValueError("table_properties: Parquet files have none: leave it out, or use format delta or iceberg")
        if self.mode != "append":
            self._check_merges()

    def _check_merges(self) -> None:
        """Looks for properties of a table with which rows are not merged, or not rightly."""
        if name := snapshot_isolation(self.properties):
            raise ValueError(
                f"table_properties: {name}: {INSERTED_TWICE}: leave it at serializable, and in tables that have it run"
                f" ALTER TABLE ... UNSET TBLPROPERTIES ('{name}')"
            )
        rewrites = all(self.properties.get(name, "").lower() == "copy-on-write" for name in _ROW_LEVEL)
        if self.format == "iceberg" and self.properties.get("format-version") == "1" and not rewrites:
            raise ValueError(
                "table_properties: format-version: version 1 has no merge on read: leave it out, or set"
                f" {', '.join(_ROW_LEVEL)} to copy-on-write"
            )
        if self.format == "delta" and any(
            name.lower() == "delta.appendonly" and value.lower() == "true" for name, value in self.properties.items()
        ):
            raise ValueError(
                "table_properties: delta.appendOnly: rows are not merged into such a table: use mode append"
            )

    @property
    def where(self) -> str:
        """The folder or the database, for people."""
        return self.path if self.path is not None else f"database {self.database}"
