"""What a table of Spanner is in BigQuery: its name, its columns, its key. Pure.

Names and types are Datastream's (https://cloud.google.com/datastream/docs/destination-bigquery): the source's
columns, and ``datastream_metadata``; or, in the changelog layout, the columns of the Dataflow template "Spanner change
streams to BigQuery". Every column may be null but the keys of a table that is merged into, for a change may leave it
out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import orjson

from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import Kind, kind_of
from spark_sink.bigquery.partition import Partition, fitted, is_named, of_table

Mode = Literal["merge", "merge-load", "append-only", "changelog"]
MERGE, MERGE_LOAD, CHANGELOG = "merge", "merge-load", "changelog"

METADATA = "datastream_metadata"
SCHEMA_IN_DATASET = "{schema}"
"""Stands in the configured dataset for the schema's name, where each schema has a dataset of its own."""

MOST_KEY_COLUMNS = 16
MOST_CLUSTERING_COLUMNS = 4

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_LONGEST_NAME = 300
_RESERVED = ("_table_", "_file_", "_partition", "_row_timestamp", "__root__", "_colidentifier", "_change_")
"""What BigQuery has columns of its own begin with, in small letters."""

_TYPES: Mapping[Kind, str] = {
    Kind.BOOLEAN: "BOOL",
    Kind.LONG: "INT64",
    Kind.FLOAT: "FLOAT64",
    Kind.DOUBLE: "FLOAT64",
    Kind.DECIMAL: "NUMERIC",
    Kind.NUMBER: "STRING",
    Kind.STRING: "STRING",
    Kind.BYTES: "BYTES",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.JSON: "JSON",
    Kind.UNKNOWN: "STRING",
}
_IN_KEYS = frozenset({"BOOL", "INT64", "NUMERIC", "BIGNUMERIC", "STRING", "DATE", "TIMESTAMP"})
"""The types of which BigQuery takes keys and clusters."""


@dataclass(frozen=True, slots=True)
class BigQueryTarget:
    """A project, and an emulator's addresses or those of private endpoints; empty for Google's."""

    project: str
    endpoint: str = ""
    grpc_endpoint: str = ""

    @property
    def is_emulated(self) -> bool:
        """Whether it wants neither credentials nor encryption."""
        return self.endpoint.startswith("http://")


@dataclass(frozen=True, slots=True)
class Field:
    """A column of BigQuery, or a field of one; ``type`` is a name of GoogleSQL, ``fields`` those of a STRUCT."""

    name: str
    type: str
    repeated: bool = False
    required: bool = False
    fields: tuple["Field", ...] = ()

    @property
    def type_text(self) -> str:
        """Its type, as a statement of SQL has it."""
        inner = ", ".join(f"{field.name} {field.type_text}" for field in self.fields)
        text = f"{self.type}<{inner}>" if inner else self.type
        return f"ARRAY<{text}>" if self.repeated else text


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the source: its name there, its field in BigQuery, and how its values are read.

    ``kind`` is the value's; of a column that is repeated, the element's.
    """

    name: str
    field: Field
    kind: Kind
    is_key: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """The options that decide what tables look like.

    ``dataset`` may hold ``{schema}``; ``timestamps`` is ``micros`` or ``text``, ``numeric`` (PostgreSQL's) ``string``
    or ``bignumeric``, ``arrays`` ``repeated`` or ``json``; ``default_schema`` is the name of the schema that tables
    without one are in; ``partition_by`` is that option as text (:func:`spark_sink.bigquery.partition.to_text`).
    """

    dataset: str
    mode: Mode = "merge"
    prefix: str = ""
    timestamps: str = "micros"
    numeric: str = "string"
    arrays: str = "repeated"
    default_schema: str = ""
    partition_by: str = ""

    @property
    def merges(self) -> bool:
        """Whether a table has a row for each row of the source, not for each change."""
        return self.mode in (MERGE, MERGE_LOAD)


@dataclass(frozen=True, slots=True)
class BigQueryTable:
    """A table in BigQuery; ``source`` is its name in Spanner, ``primary_key`` is empty where it is not merged into.

    ``unpartitioned`` says why it cannot be partitioned as it should be; it matters to a table that is not there yet.
    """

    source: str
    dataset: str
    name: str
    columns: tuple[Column, ...]
    metadata: tuple[Field, ...]
    primary_key: tuple[str, ...]
    clustering: tuple[str, ...]
    partition: Partition | None = None
    unpartitioned: str = ""

    @property
    def fields(self) -> tuple[Field, ...]:
        """All columns, the source's first."""
        return (*(column.field for column in self.columns), *self.metadata)


_TEMPLATE = "_metadata_spanner_"
METADATA_OF: Mapping[Mode, tuple[Field, ...]] = {
    "merge": (Field(METADATA, "STRUCT", fields=(Field("uuid", "STRING"), Field("source_timestamp", "INT64"))),),
    "merge-load": (
        Field(
            METADATA,
            "STRUCT",
            fields=(
                Field("uuid", "STRING"),
                Field("source_timestamp", "INT64"),
                Field("change_sequence_number", "STRING"),
            ),
        ),
    ),
    "append-only": (
        Field(
            METADATA,
            "STRUCT",
            fields=(
                Field("uuid", "STRING"),
                Field("source_timestamp", "INT64"),
                Field("change_sequence_number", "STRING"),
                Field("change_type", "STRING"),
                Field("sort_keys", "STRING", repeated=True),
            ),
        ),
    ),
    "changelog": (
        Field(f"{_TEMPLATE}mod_type", "STRING"),
        Field(f"{_TEMPLATE}table_name", "STRING"),
        Field(f"{_TEMPLATE}commit_timestamp", "TIMESTAMP"),
        Field(f"{_TEMPLATE}server_transaction_id", "STRING"),
        Field(f"{_TEMPLATE}record_sequence", "STRING"),
        Field(f"{_TEMPLATE}is_last_record_in_transaction_in_partition", "BOOL"),
        Field(f"{_TEMPLATE}number_of_records_in_transaction", "INT64"),
        Field(f"{_TEMPLATE}number_of_partitions_in_transaction", "INT64"),
        Field("_metadata_big_query_commit_timestamp", "TIMESTAMP"),
    ),
}
"""What each row has beside the source's columns. Milliseconds, as Datastream has it, in ``source_timestamp``."""


def bigquery_table(schema: TableSchema, shape: Shape) -> BigQueryTable:
    """The table that a schema becomes."""
    keys = set(schema.primary_keys)
    columns = tuple(_column(column.name, column.type, column.name in keys, shape) for column in schema.columns)
    targets = {column.name: column.field for column in columns}
    key_fields = [targets[name] for name in schema.primary_keys if name in targets]
    clustered = [field.name for field in key_fields if field.type in _IN_KEYS and not field.repeated]
    dataset, name = _place(schema.table, shape)
    partition, unpartitioned = _partition(schema.table, columns, shape)
    return BigQueryTable(
        schema.table,
        dataset,
        name,
        columns,
        METADATA_OF[shape.mode],
        tuple(field.name for field in key_fields) if shape.merges else (),
        tuple(clustered[:MOST_CLUSTERING_COLUMNS]),
        partition,
        unpartitioned,
    )


def _partition(table: str, columns: Iterable[Column], shape: Shape) -> tuple[Partition | None, str]:
    """How a table is partitioned, and why it cannot be, if it is named."""
    spec = of_table(shape.partition_by, table)
    if not spec:
        return None, ""
    fields = {column.name: column.field for column in columns} | {
        field.name: field for field in METADATA_OF[shape.mode]
    }
    types = {name: (field.name, "" if field.repeated else field.type) for name, field in fields.items()}
    try:
        return fitted(spec, types, merges=shape.merges), ""
    except ValueError as error:
        named = is_named(shape.partition_by, table)
        return None, f"table {table} cannot be partitioned by {spec}: {error}" if named else ""


def table_faults(table: BigQueryTable, shape: Shape) -> Iterator[str]:
    """What keeps a table out of BigQuery, each in a sentence."""
    named: dict[str, list[str]] = {}
    for column in table.columns:
        named.setdefault(column.field.name.lower(), []).append(column.name)
    for field in table.metadata:
        named.setdefault(field.name.lower(), []).append(field.name)
    for name, columns in named.items():
        if len(columns) > 1:
            yield f"the columns {' and '.join(columns)} of table {table.source} would both be called {name} in BigQuery"
    if not shape.merges:
        return
    if not table.primary_key:
        yield f"table {table.source} has no primary key to merge by: take mode append-only, or leave the table out"
    if len(table.primary_key) > MOST_KEY_COLUMNS:
        yield (
            f"the key of table {table.source} has {len(table.primary_key)} columns, and BigQuery's at most"
            f" {MOST_KEY_COLUMNS}: take mode append-only, or leave the table out"
        )
    for column in table.columns:
        if column.is_key and (column.field.repeated or column.field.type not in _IN_KEYS):
            yield (
                f"the key column {column.name} of table {table.source} is {column.field.type} in BigQuery, which has no"
                " such keys: take mode append-only, or leave the table out"
            )


WAYS_APART = (
    "give each schema a dataset of its own ({schema} in sink.dataset), or leave one of them out (source.tables.exclude)"
)
"""What helps where two tables would be one."""


def collisions(tables: Iterable[BigQueryTable]) -> Iterator[str]:
    """For each name that several tables would have, what is wrong."""
    named: dict[tuple[str, str], list[str]] = {}
    for table in tables:
        named.setdefault((table.dataset, table.name), []).append(table.source)
    for (dataset, name), sources in named.items():
        if len(sources) > 1:
            both = f"the tables {' and '.join(sorted(sources))} would both be {dataset}.{name} in BigQuery"
            yield f"{both}: {WAYS_APART}"


WHOLE_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
"""The value capture types whose updates hold every column."""


def faults_of_stream(shape: Shape, stream: str, value_capture_type: str, schemas: Iterable[TableSchema]) -> list[str]:
    """What keeps a change stream's tables out of BigQuery, each fault in a sentence after its field."""
    faults = []
    if shape.mode == MERGE and value_capture_type not in WHOLE_ROWS:
        faults.append(f"sink.mode: {no_whole_rows(stream, value_capture_type)}")
    tables = [bigquery_table(schema, shape) for schema in schemas]
    for table in tables:
        faults += [f"sink: {fault}" for fault in table_faults(table, shape)]
        faults += [f"sink.partition_by: {table.unpartitioned}"] if table.unpartitioned else []
    faults += [f"sink: {fault}" for fault in collisions(tables)]
    return faults


def no_whole_rows(stream: str, value_capture_type: str) -> str:
    """Why changes that were captured so cannot be merged by CDC, and what helps."""
    return (
        f"merge needs whole rows, and change stream {stream} captures {value_capture_type}:"
        f" ALTER CHANGE STREAM {stream} SET OPTIONS (value_capture_type = 'NEW_ROW')"
        f" (PostgreSQL: ALTER CHANGE STREAM \"{stream}\" SET (value_capture_type = 'NEW_ROW')), or take mode merge-load"
    )


def _column(name: str, type_json: str, is_key: bool, shape: Shape) -> Column:  # noqa: FBT001
    node = orjson.loads(type_json)
    kind, repeated = kind_of(type_json), False
    if node.get("code") == "ARRAY":
        if shape.arrays == "json":
            return Column(name, Field(bigquery_name(name), "JSON"), kind, is_key)
        kind, repeated = kind_of(orjson.dumps(node["array_element_type"]).decode()), True
    type_name = _TYPES[kind]
    if kind is Kind.TIMESTAMP and shape.timestamps == "text":
        kind, type_name = Kind.STRING, "STRING"
    if kind is Kind.NUMBER and shape.numeric == "bignumeric":
        type_name = "BIGNUMERIC"
    return Column(name, Field(bigquery_name(name), type_name, repeated, is_key and shape.merges), kind, is_key)


def bigquery_name(name: str) -> str:
    """A column's or a table's name as BigQuery may have it."""
    name = _NOT_IN_NAMES.sub("_", name)
    if name[:1].isdigit():
        name = f"_{name}"
    return (f"c{name}" if name.lower().startswith(_RESERVED) else name)[:_LONGEST_NAME]


def _place(table: str, shape: Shape) -> tuple[str, str]:
    """The dataset and the name of a table."""
    schema, _, name = table.rpartition(".")
    suffix = "_changelog" if shape.mode == CHANGELOG else ""
    if SCHEMA_IN_DATASET in shape.dataset:
        dataset = shape.dataset.replace(SCHEMA_IN_DATASET, _NOT_IN_NAMES.sub("_", schema or shape.default_schema))
        return dataset, f"{shape.prefix}{bigquery_name(name)}{suffix}"
    name = f"{schema}_{name}" if schema else name
    return shape.dataset, f"{shape.prefix}{bigquery_name(name)}{suffix}"
