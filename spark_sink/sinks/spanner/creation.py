"""Creation in the destination: the bookkeeping table, and by option the tables and columns that it lacks."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Self

from google.api_core.exceptions import BadRequest, Conflict, NotFound

from connector.config.address import DatabaseAddress
from connector.config.loading import Config
from connector.core.dialects import Dialect
from connector.core.filters import RecordFilter
from connector.log import Log
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import dialect_name, dialect_of
from connector.spanner.errors import READER, Access
from spark_sink.errors import SinkError
from spark_sink.sinks.spanner.config import SpannerConfig
from spark_sink.sinks.spanner.destination_tables import (
    WRITER,
    DestinationDatabase,
    DestinationTable,
    awaited_destination,
)
from spark_sink.sinks.spanner.schema_changes import change_tables, ddl_of
from spark_sink.sinks.spanner.source_tables import SourceTable, source_tables
from spark_sink.sinks.spanner.writing.planning import METADATA, METADATA_TYPES
from spark_sink.sinks.spanner.writing.progress import TABLE, VIEW, statements_for
from spark_sink.sources.changes.known_tables import KnownTables

_log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Creation:
    """The tables and columns that the sink may create.

    Attributes:
        source: the database that has the tables.
        include: ``source.tables.include``.
        exclude: ``source.tables.exclude``.
        others: tables that have another name in the destination, or columns that do: they are left to the user.
        with_metadata: whether each table gets the columns of ``sink.metadata``.
    """

    source: DatabaseAddress
    include: Sequence[str]
    exclude: Sequence[str]
    others: Sequence[str]
    with_metadata: bool = False

    @classmethod
    def of(cls, config: Config, sink: SpannerConfig) -> Self | None:
        """The configured one; None without ``sink.create_tables``."""
        if not sink.create_tables:
            return None
        tables = config.source.tables
        source = config.source.address
        return cls(source, tuple(tables.include), tuple(tables.exclude), sorted(sink.renamed), sink.metadata)

    def wanted(self, known: KnownTables) -> Mapping[str, frozenset[str]]:
        """The columns of each of the spool's tables that the destination should have."""
        now = known.read_once()
        return {
            name: frozenset(column.name for column in now.newest(name).columns)
            for name in now.names()
            if self.creates(name)
        }

    def creates(self, table: str) -> bool:
        """True if a table of the source may be created; the bookkeeping table of another sink is none of the user's."""
        return RecordFilter(self.include, self.exclude).keeps(table) and table.lower() not in {
            one.lower() for one in (*self.others, TABLE)
        }


_PART = r"[`\"]?[\w$]+[`\"]?"
_NAME = rf"({_PART}(?:\.{_PART})*)"
_CREATED = re.compile(rf"\s*CREATE\s+(TABLE|SCHEMA|SEQUENCE)\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}", re.IGNORECASE)
_FOREIGN_KEY = re.compile(
    rf",\s*((?:CONSTRAINT\s+\S+\s+)?FOREIGN\s+KEY\s*\([^)]*\)\s*REFERENCES\s+{_NAME}\s*\([^)]*\)"
    r"(?:\s+ON\s+DELETE\s+(?:CASCADE|NO\s+ACTION))?(?:\s+(?:NOT\s+)?ENFORCED)?)",
    re.IGNORECASE,
)
_PARENT = re.compile(rf"INTERLEAVE\s+IN\s+(?:PARENT\s+)?{_NAME}", re.IGNORECASE)
_DELETION_POLICY = re.compile(
    r",\s*ROW\s+DELETION\s+POLICY\s*\(\s*OLDER_THAN\s*\([^)]*\)\s*\)|\s+TTL\s+INTERVAL\s+'[^']*'\s+ON\s+(?:\"[^\"]+\"|\w+)",
    re.IGNORECASE,
)
"""Rows leave the destination when they leave the source."""

_NEEDS_ROWS = re.compile(r"INTERLEAVE\s+IN\s+PARENT\s", re.IGNORECASE)
"""Of a table whose rows need their parents; ``INTERLEAVE IN`` alone is only a place."""

_WARNED: set[tuple[str, str]] = set()
"""The tables that this process has warned of, each with the parent that is not created."""

_CASCADE = re.compile(r"\s+ON\s+DELETE\s+CASCADE", re.IGNORECASE)


def prepare(target: DatabaseAddress) -> DestinationDatabase:
    """Creates the bookkeeping table and its view, or what they lack; returns what was there before.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses it.
    """
    found = awaited_destination(target)
    if statements := _missing(found):
        try:
            change_tables(target, statements)
        except SinkError:
            left = _missing(awaited_destination(target))
            if left == statements:
                raise
            if left:  # the sink of the stream, or of a backfill beside it, has done the rest, or will
                change_tables(target, left)
    return found


def _missing(there: DestinationDatabase) -> list[str]:
    own = there.tables.get(TABLE)
    return statements_for(there.dialect.name, None if own is None else own.columns, has_view=VIEW in there.views)


def create_missing(
    tables: Mapping[str, Collection[str]],
    source: DatabaseAddress,
    target: DatabaseAddress,
    creates: Callable[[str], bool] = bool,
    *,
    with_metadata: bool = False,
) -> list[str]:
    """Creates those of the source's tables, and their columns, that the destination lacks, as the source has them.

    Args:
        tables: the columns of each table, ``schema.table`` in a named schema.
        source: where they are.
        target: where they are created.
        creates: whether a table may be created, which another one is interleaved in.
        with_metadata: whether each table gets the columns of ``sink.metadata``.

    Returns:
        What was created: tables, and columns as ``table.column``. What the source does not have any more is not.

    Raises:
        SpannerCdcError: a database cannot be reached, or refuses it.
    """
    there = awaited_destination(target)
    spelled = {name.lower(): name for name in there.tables}
    missing = [table for table in tables if table.lower() not in spelled]
    lacking: dict[str, set[str]] = defaultdict(set)
    for table, columns in tables.items():
        if name := spelled.get(table.lower()):
            needed = {*columns, *(METADATA if with_metadata else ())}
            lacking[name] |= {column for column in needed if column.lower() not in there.tables[name].names}
    wanted: dict[str, list[str]] = {}
    if missing:
        former = _with_former_keys(source_tables(source) or {}, there)
        wanted = creating(ddl_of(source), missing, ddl_of(target, WRITER), former, creates)
    of_metadata = METADATA_TYPES[there.dialect.name] if with_metadata else {}
    if any(lacking.values()) or (wanted and of_metadata):
        of_source = asyncio.run(_column_types(source))
        for name in wanted:
            wanted[name] += _with_metadata(name, of_source, of_metadata, there.dialect)
        types = {(table, column): kind for table in lacking for column, kind in of_metadata.items()}
        types |= {(spelled.get(table.lower(), table), column): kind for (table, column), kind in of_source.items()}
        wanted |= altering("ADD COLUMN", types, lacking, there.dialect)
    if not wanted:
        return []
    _make(target, wanted, "the destination refuses to create what the source has")
    now = awaited_destination(target).tables
    return sorted(
        name
        for name in filter(None, wanted)
        if name in now or any(name == f"{table}.{column}" for table in lacking for column in now[table].columns)
    )


def _with_metadata(
    table: str, of_source: Mapping[tuple[str, str], str], types: Mapping[str, str], dialect: Dialect
) -> list[str]:
    """The statements that add the columns of ``sink.metadata`` to a table that is created; none if it is no table."""
    there = {column.lower() for of, column in of_source if of == table}
    columns = [name for name in types if name not in there] if there else []
    added = altering("ADD COLUMN", {(table, name): types[name] for name in columns}, {table: columns}, dialect)
    return list(chain.from_iterable(added.values()))


def make_nullable(columns: Mapping[str, Collection[str]], target: DatabaseAddress) -> None:
    """Makes columns nullable; one that cannot be is left as it is, with a warning.

    Args:
        columns: of each table.
        target: where they are.

    Raises:
        SpannerCdcError: the database cannot be reached, or refuses any change of its tables.
    """
    there = awaited_destination(target)
    spelled = {name.lower(): name for name in there.tables}
    columns = {spelled.get(table.lower(), table): names for table, names in columns.items()}
    types = asyncio.run(_column_types(target, WRITER, with_defaults=True))
    wanted = relaxing(types, columns, there.dialect, is_emulated=bool(target.emulator_host))
    if wanted:
        _log.warning(
            "columns are made nullable in the destination, because changes have no value for them",
            columns=", ".join(wanted),
        )
        _make(target, wanted, "the destination refuses to make a column nullable")


def _make(target: DatabaseAddress, wanted: Mapping[str, list[str]], refused: str) -> None:
    """Makes all changes of tables at once, or one after another: one table must not stop the others.

    A refused one is tried again later: a child's parent may still have its former key.
    """
    if _refusal(target, list(chain.from_iterable(wanted.values()))) is None:
        return
    made = _labels(ddl_of(target, WRITER))
    for name, statements in wanted.items():
        if name not in made and isinstance(_refusal(target, statements), (BadRequest, NotFound)):
            _log.warning(refused, table=name)


def _refusal(target: DatabaseAddress, statements: list[str]) -> BaseException | None:
    """Changes tables; returns why the database refuses these statements, or None."""
    try:
        change_tables(target, statements)
    except SinkError as error:
        if not isinstance(error.__cause__, (BadRequest, Conflict, NotFound)):
            raise
        return error.__cause__
    return None


def _with_former_keys(source: Mapping[str, SourceTable], there: DestinationDatabase) -> set[str]:
    """The tables that the destination has with another key than the source."""

    def key_of(table: SourceTable | DestinationTable) -> list[tuple[str, str]]:
        return [(column.lower(), table.types.get(column, "")) for column in table.key]

    keys = {name.lower(): key_of(table) for name, table in there.tables.items()}
    return {name for name, table in source.items() if keys.get(name.lower(), key_of(table)) != key_of(table)}


def creating(
    ddl: Iterable[str],
    tables: Collection[str],
    there: Iterable[str],
    former: Collection[str] = (),
    creates: Callable[[str], bool] = bool,
) -> dict[str, list[str]]:
    """The statements that create tables, by the names of :func:`_labels`.

    They come without policies that delete old rows, which would delete those that the source has written again. Foreign
    keys follow once all tables are there; those to tables that the destination does not have are left out. None has ON
    DELETE CASCADE: it could take a row with it that refers to another one in the source by now.

    Args:
        ddl: the statements of the database that has the tables.
        tables: names, ``schema.table`` in a named schema.
        there: the statements of the other database.
        former: tables there with another key. What is interleaved in them is left out: they are to be dropped, which
            would cost its rows.
        creates: whether a table may be created. What is interleaved in another one, which is not there, is left out.
    """
    statements = list(_created(ddl))
    known = {(kind, name.lower()) for kind, name, _ in _created(there)}
    of_all = {name: statement for kind, name, statement in statements if kind == "TABLE"}
    wanted: set[str] = set()
    for name in tables:
        line = [name]
        while (match := _PARENT.search(of_all.get(line[-1], ""))) and ("TABLE", _plain(match[1]).lower()) not in known:
            line.append(_plain(match[1]))  # a parent may have no change yet, under this name
        if missing := _missing_parents(line, of_all, creates):
            if (name, missing[0]) not in _WARNED:
                _WARNED.add((name, missing[0]))
                _log.warning(
                    "a table is not created, because the sink does not create its parent", table=name, parent=missing[0]
                )
        elif match is None or _plain(match[1]) not in former:
            wanted.update(line)
    of_tables = {name: statement for name, statement in of_all.items() if name in wanted}
    text = "\n".join(of_tables.values())
    used = {table.rpartition(".")[0] for table in of_tables}
    found = {
        _label(kind, name): [statement]
        for kind, name, statement in statements
        if (kind, name.lower()) not in known
        if (kind == "SCHEMA" and name in used)
        or (kind == "SEQUENCE" and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text))
    }
    for name, statement in of_tables.items():
        found[name] = [_DELETION_POLICY.sub("", _FOREIGN_KEY.sub("", statement))]
    for name, statement in of_tables.items():
        for key, other in _foreign_keys(statement):
            if other in of_tables or ("TABLE", other.lower()) in known:
                table = _CREATED.match(statement)[2]  # type: ignore[index]
                found[_label(name, key)] = [f"ALTER TABLE {table} ADD {key}"]
    return found


def relaxing(
    types: Mapping[tuple[str, str], str],
    columns: Mapping[str, Collection[str]],
    dialect: Dialect,
    *,
    is_emulated: bool = False,
) -> dict[str, list[str]]:
    """The statements that make columns of tables nullable, by ``table.column``.

    The emulator fails on DROP NOT NULL. There, a type without NOT NULL makes a column nullable in both dialects.

    Args:
        types: as the dialect spells them, by table and column; with the default in GoogleSQL, which is dropped without.
        columns: of each table.
        dialect: of the database.
        is_emulated: whether the database is an emulator's.
    """
    nullable = dict(types)
    if dialect.name == "postgresql":
        nullable = {of: f"TYPE {kind}" if is_emulated else "DROP NOT NULL" for of, kind in types.items()}
    return altering("ALTER COLUMN", nullable, columns, dialect)


def altering(
    change: str, types: Mapping[tuple[str, str], str], columns: Mapping[str, Collection[str]], dialect: Dialect
) -> dict[str, list[str]]:
    """The statements that change columns of tables, by ``table.column``; one whose type is not known is left out.

    Args:
        change: ``ADD COLUMN`` or ``ALTER COLUMN``.
        types: as the dialect spells them, or what else ends the statement, by table and column.
        columns: of each table.
        dialect: of the databases.
    """
    return {
        f"{table}.{column}": [
            f"ALTER TABLE {dialect.table(table)} {change} {dialect.identifier(column)} {types[table, column]}"
        ]
        for table, names in columns.items()
        for column in sorted(names)
        if (table, column) in types
    }


def _missing_parents(line: Sequence[str], ddl: Mapping[str, str], creates: Callable[[str], bool]) -> list[str]:
    """The parents in a line (a table, its parent, and so on) that may not be created, and whose rows children need."""
    return [
        parent for child, parent in pairwise(line) if _NEEDS_ROWS.search(ddl.get(child, "")) and not creates(parent)
    ]


def _created(ddl: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Of each statement that creates a table, a schema or a sequence its kind, the name, and the statement."""
    for statement in ddl:
        if match := _CREATED.match(statement):
            yield match[1].upper(), _plain(match[2]), statement


def _foreign_keys(statement: str) -> Iterator[tuple[str, str]]:
    """The foreign keys of a table, each as it is added to another one, with the table that it refers to."""
    for key in _FOREIGN_KEY.finditer(statement):
        yield " ".join(_CASCADE.sub("", key[1]).split()), _plain(key[2])


def _label(of: str, name: str) -> str:
    return name if of == "TABLE" else f"{of}: {name}"


def _labels(ddl: Iterable[str]) -> set[str]:
    """The names of what a database has: ``T``, ``SCHEMA: s``, ``SEQUENCE: s``, and ``T: FOREIGN KEY(A) ...``."""
    found = set()
    for kind, name, statement in _created(ddl):
        found |= {_label(kind, name), *(_label(name, key) for key, _ in _foreign_keys(statement))}
    return found


def _plain(name: str) -> str:
    """A name as change records have it."""
    return re.sub(r'[`"]', "", name).removeprefix("public.")


async def _column_types(
    address: DatabaseAddress, access: Access = READER, *, with_defaults: bool = False
) -> dict[tuple[str, str], str]:
    client = SpannerClient(replace(address, database_role=None), access=access)
    async with client.connected():
        dialect = await dialect_of(client)
        rows = await client.rows(
            "SELECT table_schema, table_name, column_name, spanner_type, column_default FROM information_schema.columns"
        )
    has_defaults = with_defaults and dialect.name == "googlesql"
    return {
        (dialect_name(dialect, schema, table), str(column)): f"{kind} DEFAULT ({default})"
        if default and has_defaults
        else str(kind)
        for schema, table, column, kind, default in rows
    }
