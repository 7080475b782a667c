"""The change streams of a database, their tables and columns, and the types that these become, as data.

A change stream's ``spannerDatabase`` has the objects and fields of Datastream's discover API
(https://cloud.google.com/datastream/docs/reference/rest/v1/SpannerDatabase). ``tables`` says more of the same columns:
the unified type, which is the one in Avro's header, and the type in each registered sink with its default options.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from connector.config.sections import SourceConfig
from connector.config.sinks import SinkConfig, SinkType, WatchedStream, sink_names, sink_type
from connector.core.column_kinds import SpannerType
from connector.core.dialects import Dialect
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import AVRO_TYPES
from connector.errors import ConfigurationError
from connector.reader.placements.listing import lister_of
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import ChangeStream, change_streams, dialect_of

Description = dict[str, Any]

_OPTION = re.compile(r"^(sink|source)(\.\w+)?: ")
"""Before an error of a configuration, which there is none of here."""


async def discovered(config: SourceConfig) -> list[Description]:
    """Describes the change streams of a database.

    Raises:
        SpannerCdcError: it cannot be reached.
    """
    client = SpannerClient(config.address, config.rpc_priority)
    async with client.connected():
        dialect = await dialect_of(client)
        known = sinks()
        return [
            described(stream, dialect, known) | await _read_functions(stream, dialect, client)
            for stream in await change_streams(client, dialect)
        ]


async def _read_functions(stream: ChangeStream, dialect: Dialect, client: SpannerClient) -> Description:
    """The read functions of a stream that has one for each placement, by placement, or why they cannot be read."""
    try:
        lister = lister_of(client, dialect, stream, None)
        found = None if lister is None else await lister.read()
    except ConfigurationError as error:
        return {"read_functions": {}, "read_functions_problem": _OPTION.sub("", str(error), count=1)}
    if found is None:
        return {}
    report: Description = {"read_functions": dict(found.functions)}
    if found.unsettled:
        report["read_functions_problem"] = found.unsettled
    return report


def sinks() -> dict[str, SinkType[SinkConfig]]:
    """The registered sinks that can be imported, by their names."""
    found: dict[str, SinkType[SinkConfig]] = {}
    for name in sink_names():
        try:
            found[name] = sink_type(name)
        except ConfigurationError:  # `check` names it for a configuration that wants it
            continue
    return found


def described(stream: ChangeStream, dialect: Dialect, known: Mapping[str, SinkType[SinkConfig]]) -> Description:
    """A change stream, its options, and the tables that it watches.

    Args:
        stream: the change stream.
        dialect: of its database.
        known: sinks, by their names.
    """
    report: Description = {
        "change_stream": stream.name,
        "dialect": dialect.name,
        "retention_period": stream.retention_period,
        "retention_is_default": stream.retention_is_default,
        "value_capture_type": stream.value_capture_type,
        "partition_mode": stream.partition_mode,
        "options": dict(stream.options),
        "tables": [_table(table, stream, known) for table in stream.tables],
        "spannerDatabase": _spanner_database(stream, dialect),
    }
    problems = {name: found for name, sink in known.items() if (found := _problems(stream, dialect, sink))}
    return report | ({"problems": problems} if problems else {})


def _problems(stream: ChangeStream, dialect: Dialect, sink: SinkType[SinkConfig]) -> list[str]:
    """The reasons why a sink with default options cannot deliver the stream, without those shown with each table."""
    options = sink.default_options()
    if options is None:
        return []
    watched = WatchedStream(
        stream.name,
        stream.value_capture_type,
        dialect.name,
        dialect.default_schema or "",
        stream.tables,
        options=stream.options,
    )
    of_tables = {problem for table in stream.tables for problem in sink.table_problems(table)}
    found = [_OPTION.sub("", error, count=1) for error in sink.stream_errors(options, watched)]
    return [problem for problem in dict.fromkeys(found) if problem not in of_tables]


def unified_type(type_json: str) -> object:
    """The type of a column in Datastream's events, as an Avro schema has it; of an array its elements' in one."""
    column = SpannerType.parse(type_json)
    schema = AVRO_TYPES[column.kind].schema
    return {"type": "array", "items": schema} if column.is_array else schema


def _table(table: TableSchema, stream: ChangeStream, known: Mapping[str, SinkType[SinkConfig]]) -> Description:
    types: dict[str, dict[str, str]] = defaultdict(dict)
    problems = {}
    for name, sink in known.items():
        for variant, columns in sink.column_types(table).items():
            for column, text in columns.items():
                types[column][variant] = text
        if found := list(sink.table_problems(table)):
            problems[name] = found
    report: Description = {
        "table": table.table,
        "primary_keys": list(table.primary_keys),
        "columns": [
            {
                "name": column.name,
                "type": column.type,
                "data_type": stream.data_types.get((table.table, column.name), ""),
                "is_primary_key": column.is_primary_key,
                "ordinal_position": column.ordinal_position,
                "unified_type": unified_type(column.type),
                "sinks": types[column.name],
            }
            for column in table.columns
        ],
    }
    return report | ({"problems": problems} if problems else {})


def _spanner_database(stream: ChangeStream, dialect: Dialect) -> Description:
    schemas: dict[str, list[Description]] = defaultdict(list)
    for table in stream.tables:
        schema, _, name = table.table.rpartition(".")
        columns = [
            {
                "column": column.name,
                "dataType": stream.data_types.get((table.table, column.name), ""),
                "isPrimaryKey": column.is_primary_key,
                "ordinalPosition": column.ordinal_position,
            }
            for column in table.columns
        ]
        schemas[schema or dialect.unnamed_schema].append({"table": name, "columns": columns})
    return {"schemas": [{"schema": schema, "tables": tables} for schema, tables in schemas.items()]}
