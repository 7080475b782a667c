"""The Spanner sink's options."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal, Self

import orjson
from pydantic import Field, field_validator

from connector.config.address import DatabaseAddress
from connector.config.sections import ServerOptions, SourceConfig, emulator_of_environment
from connector.config.sinks import SinkConfig
from connector.errors import ConfigurationError

Mode = Literal["rows", "transactions"]

OWN_TABLE = "spanner_cdc_progress"
"""The bookkeeping table, in the destination."""

_LONGEST_TAG = 50

FORMER_NAMES = r"spanner/[0-9a-f]+_spanner(\..+)?(_\d+)+"
"""As :class:`spark_sink.sinks.shared.dead_letters.DeadLetters` takes it."""


class SpannerConfig(ServerOptions, SinkConfig):
    """Another Spanner database, of either dialect."""

    type: Literal["spanner"] = "spanner"
    project: str | None = None
    """The project of Google Cloud; by default the source's."""
    instance: str | None = None
    """The Spanner instance; by default the source's."""
    database: str = Field(default="", min_length=1, validate_default=True)
    """The database."""
    mode: Mode = "rows"
    """``rows``: each row's last state, in several commits at a time. ``transactions``: whole transactions, in order, so
    that no reader sees half of one."""
    create_tables: bool = False
    """Creates missing tables and columns as the source has them, without indexes; makes a column nullable that changes
    have no value for.
    """
    tables: dict[str, str] = Field(default_factory=dict)
    """Tables that have another name there: the source's name to the destination's."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Columns that have another name there: ``table.column``, of the source, to the column's name."""
    metadata: bool = False
    """Writes the columns ``source_commit_timestamp`` and ``source_change_sequence_number``, which every table must
    have, and where a table has them ``source_record_sequence`` and ``source_mod_index``. With ``create_tables`` a new
    table gets all four, and one that is there the first two.
    """
    transaction_tag: str = "spanner-cdc"
    """The tag of each transaction there; a stream back takes it in ``source.skip_transaction_tags``."""
    emulator_host: str | None = None
    """An emulator's address, HOST:PORT; else the source's, or that of ``SPANNER_EMULATOR_HOST``."""

    @property
    def copies_schemas(self) -> bool:
        """True if it creates tables."""
        return self.create_tables

    @property
    def renamed(self) -> frozenset[str]:
        """The tables, in small letters, that have another name there, or columns that do: the user creates them."""
        tables = {*self.tables, *(column.rpartition(".")[0] for column in self.columns)}
        return frozenset(table.lower() for table in tables)

    def creates(self, table: str) -> bool:
        """True if it creates a table of the source that is missing, and the columns that the table lacks."""
        return self.create_tables and table.lower() not in self.renamed

    def address(self, source: SourceConfig) -> DatabaseAddress:
        """The database, in the source's project, instance and emulator unless others are configured.

        Raises:
            ConfigurationError: the source is a server of Spanner Omni, and this one is not: it needs its own names.
        """
        if self.edition == "omni":
            assert self.project is not None, "filled in"
            assert self.instance is not None, "filled in"
            return DatabaseAddress(self.project, self.instance, self.database, self.endpoint, omni=self.omni("sink"))
        of_source = source.edition == self.edition
        if missing := [] if of_source else [name for name in ("project", "instance") if getattr(self, name) is None]:
            why = "is needed, because the source's is of edition omni; for a server of that set sink.edition: omni"
            raise ConfigurationError([f"sink.{name}: {why}" for name in missing])
        return DatabaseAddress(
            self.project or source.project,
            self.instance or source.instance,
            self.database,
            self.endpoint,
            self.emulator_host or (source.emulator_host if of_source else emulator_of_environment()),
        )

    @field_validator("tables")
    @classmethod
    def _apart(cls, value: dict[str, str]) -> dict[str, str]:
        if shared := sorted({name for name in value.values() if list(value.values()).count(name) > 1}):
            raise ValueError(f"several tables would be {', '.join(shared)}: one table cannot have the rows of two")
        return value

    @field_validator("columns")
    @classmethod
    def _of_tables(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not all(name.rpartition(".")[::2]):
                raise ValueError(f"{name!r} is not table.column")
        there: dict[tuple[str, str, str], str] = {}  # two spellings of a column are one, which was created again
        for name, column in value.items():
            table, _, own = name.rpartition(".")
            there[table.lower(), own.lower(), column.lower()] = f"{column.lower()} of {table}"
        targets = Counter((table, column) for table, _, column in there)
        if shared := sorted({text for (table, _, column), text in there.items() if targets[table, column] > 1}):
            raise ValueError(f"several columns would be {', '.join(shared)}: one column cannot have the values of two")
        return value

    @field_validator("transaction_tag")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not (0 < len(value) <= _LONGEST_TAG and value.isascii() and value.isprintable()):
            raise ValueError(f"{value!r} is not a valid tag: use 1 to {_LONGEST_TAG} printable ASCII characters")
        return value


@dataclass(frozen=True, slots=True)
class Applying:
    """The options that decide what is written; a started micro-batch is repeated with the options that it had."""

    mode: Mode
    tables: dict[str, str]
    columns: dict[str, str]
    metadata: bool

    @classmethod
    def of(cls, sink: SpannerConfig) -> Self:
        """The configured ones."""
        return cls(sink.mode, sink.tables, sink.columns, sink.metadata)

    def to_text(self) -> str:
        """As text."""
        return orjson.dumps(self, option=orjson.OPT_SORT_KEYS).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Of :meth:`to_text`."""
        return cls(**orjson.loads(text))

    def table(self, source: str) -> str:
        """A table's name in the destination."""
        return _named(self.tables, source, source)

    def column(self, table: str, column: str) -> str:
        """A column's name in the destination, of a table of the source."""
        return _named(self.columns, f"{table}.{column}", column)


def _named(names: dict[str, str], source: str, otherwise: str) -> str:
    """The name that an option gives; also if the source has created it again in another spelling."""
    if source in names:
        return names[source]
    small = source.lower()
    return next((name for of, name in names.items() if of.lower() == small), otherwise)
