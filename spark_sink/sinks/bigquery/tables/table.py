"""Converts a table of Spanner into one of BigQuery: its name, columns, key and partitioning. Pure.

Names and types are Datastream's (https://cloud.google.com/datastream/docs/destination-bigquery): the source's
columns, and ``datastream_metadata``; or, in the changelog layout, the columns of the Dataflow template "Spanner change
streams to BigQuery". Every column is nullable except the keys of a table that is merged into, because a change may
omit it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from connector.core.column_kinds import ColumnKind, Layout, SpannerType
from connector.core.schemas import TableSchema
from connector.envelope.envelope import WHOLE_ROWS
from spark_sink.sinks.bigquery.tables.layout import CLUSTERED_TYPES, MOST_CLUSTERING_COLUMNS, TableLayouts
from spark_sink.sinks.bigquery.tables.partition import TablePartition, fitted, of_table

Mode = Literal["merge", "merge-load", "append-only", "changelog"]
MERGE, MERGE_LOAD, CHANGELOG = "merge", "merge-load", "changelog"

METADATA = "datastream_metadata"
IS_DELETED = "is_deleted"
"""Datastream's field of the metadata of tables without a key, whose row is kept when it is deleted."""

SCHEMA_IN_DATASET = "{schema}"
"""Placeholder for the schema's name in the configured dataset, to give each schema a dataset of its own."""

MOST_KEY_COLUMNS = 16

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
_LONGEST_NAME = 300
_RESERVED = ("_table_", "_file_", "_partition", "_row_timestamp", "__root__", "_colidentifier", "_change_")
"""The prefixes of BigQuery's own columns, in small letters."""

COLUMN_TYPES: Mapping[ColumnKind, str] = {
    ColumnKind.BOOL: "BOOL",
    ColumnKind.INT64: "INT64",
    ColumnKind.FLOAT32: "FLOAT64",
    ColumnKind.FLOAT64: "FLOAT64",
    ColumnKind.NUMERIC: "NUMERIC",
    ColumnKind.PG_NUMERIC: "STRING",
    ColumnKind.STRING: "STRING",
    ColumnKind.BYTES: "BYTES",
    ColumnKind.DATE: "DATE",
    ColumnKind.TIMESTAMP: "TIMESTAMP",
    ColumnKind.JSON: "JSON",
    ColumnKind.UUID: "STRING",
    ColumnKind.INTERVAL: "STRING",
    ColumnKind.ENUM: "INT64",
    ColumnKind.PROTO: "BYTES",
    ColumnKind.UNKNOWN: "STRING",
}


@dataclass(frozen=True, slots=True)
class BigQueryTarget:
    """A project, and the addresses of an emulator or of private endpoints; empty for Google's.

    ``billing_project`` runs jobs; if empty, the project does. ``kms_key`` encrypts what is created; if empty, the
    dataset's default does. ``labels`` are those of what is created, and of jobs.
    """

    project: str
    endpoint: str = ""
    grpc_endpoint: str = ""
    billing_project: str = ""
    kms_key: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def to_text(self) -> str:
        """The text of an option of a source."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> "BigQueryTarget":
        """Reads what :meth:`to_text` wrote."""
        return msgspec.json.decode(text, type=cls)

    @property
    def is_emulated(self) -> bool:
        """True if it is an emulator, without credentials and encryption."""
        return self.endpoint.startswith("http://")


@dataclass(frozen=True, slots=True)
class Field:
    """A column of BigQuery, or a field of one; ``type`` is a name of GoogleSQL, ``fields`` those of a STRUCT.

    ``parameters`` are those of the type, as in NUMERIC(12, 2): precision and scale, or the longest length. The sink
    creates no column with any.
    """

    name: str
    type: str
    repeated: bool = False
    required: bool = False
    fields: tuple["Field", ...] = ()
    parameters: tuple[int, ...] = ()

    @property
    def type_text(self) -> str:
        """Its type in SQL."""
        inner = ", ".join(f"{field.name} {field.type_text}" for field in self.fields)
        text = f"{self.type}<{inner}>" if inner else self.type
        if self.parameters:
            text = f"{text}({', '.join(map(str, self.parameters))})"
        return f"ARRAY<{text}>" if self.repeated else text


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the source: its name there, its field in BigQuery, and how its values are read.

    ``kind`` is the value's; of an array, the element's.
    """

    name: str
    field: Field
    kind: ColumnKind
    is_key: bool
    layout: Layout = Layout.VALUE


@dataclass(frozen=True, slots=True)
class BigQueryTableOptions:
    """The options that decide the columns and the place of tables.

    ``dataset`` may hold ``{schema}``; ``timestamps`` is ``micros`` or ``text``, ``numeric`` (PostgreSQL's) ``string``
    or ``bignumeric``, ``arrays`` ``repeated`` or ``json``; ``default_schema`` is the name of the schema that tables
    without one are in; ``partition_by`` is that option as text
    (:func:`spark_sink.sinks.bigquery.tables.partition.to_text`), and ``layout`` are the others that decide a table's
    layout (:class:`spark_sink.sinks.bigquery.tables.layout.TableLayouts`). With ``update_pairs`` an update is appended
    as two rows (:mod:`spark_sink.sinks.bigquery.rows.update_pairs`).
    """

    dataset: str
    mode: Mode = "merge"
    prefix: str = ""
    timestamps: str = "micros"
    numeric: str = "string"
    arrays: str = "repeated"
    default_schema: str = ""
    partition_by: str = ""
    layout: str = ""
    update_pairs: bool = False

    @property
    def layouts(self) -> TableLayouts:
        """The options that decide a table's layout."""
        return TableLayouts.from_texts(self.partition_by, self.layout)

    @property
    def merges(self) -> bool:
        """True if a table has a row for each row of the source, rather than one for each change."""
        return self.mode in (MERGE, MERGE_LOAD)


@dataclass(frozen=True, slots=True)
class BigQueryTable:
    """A table in BigQuery; ``source`` is its name in Spanner, ``primary_key`` is empty where it is not merged into.

    ``unfit`` are the reasons why it cannot be laid out as configured; they matter only before it is created.
    """

    source: str
    dataset: str
    name: str
    columns: tuple[TableColumn, ...]
    metadata: tuple[Field, ...]
    primary_key: tuple[str, ...]
    clustering: tuple[str, ...]
    partition: TablePartition | None = None
    unfit: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """All columns, the source's first."""
        return (*(column.field for column in self.columns), *self.metadata)

    @property
    def is_loaded(self) -> bool:
        """True if load jobs and MERGE statements write it, rather than requests with rows."""
        return self.keeps_deleted or self.metadata == METADATA_OF["merge-load"]

    @property
    def keeps_deleted(self) -> bool:
        """True if changes are merged into its only row, which is marked when it is deleted: it has no key."""
        return any(field.name == IS_DELETED for each in self.metadata for field in each.fields)


_OF_EVENT = (Field("uuid", "STRING"), Field("source_timestamp", "INT64"))
_NUMBER = Field("change_sequence_number", "STRING")
_OF_CHANGE = (Field("change_type", "STRING"), Field("sort_keys", "STRING", repeated=True))
_TEMPLATE = "_metadata_spanner_"
METADATA_OF: Mapping[Mode, tuple[Field, ...]] = {
    "merge": (Field(METADATA, "STRUCT", fields=_OF_EVENT),),
    "merge-load": (Field(METADATA, "STRUCT", fields=(*_OF_EVENT, _NUMBER)),),
    "append-only": (Field(METADATA, "STRUCT", fields=(*_OF_EVENT, _NUMBER, *_OF_CHANGE)),),
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
"""The columns beside the source's, by mode. ``source_timestamp`` is in milliseconds, as in Datastream."""


def bigquery_table(schema: TableSchema, table_options: BigQueryTableOptions) -> BigQueryTable:
    """The BigQuery table of a table's schema."""
    keys = set(schema.primary_keys)
    columns = tuple(_column(column.name, column.type, column.name in keys, table_options) for column in schema.columns)
    targets = {column.name: column.field for column in columns}
    key_fields = [targets[name] for name in schema.primary_keys if name in targets]
    clustered = [field.name for field in key_fields if field.type in CLUSTERED_TYPES and not field.repeated]
    dataset, name = _dataset_and_name(schema.table, table_options)
    types = _types(columns, table_options.mode)
    layouts = table_options.layouts
    partition, unpartitioned = _partition(schema.table, types, layouts, merges=table_options.merges)
    clustering, unclustered = _clustering(schema.table, types, layouts)
    return BigQueryTable(
        schema.table,
        dataset,
        name,
        columns,
        _metadata(table_options.mode, schema),
        tuple(field.name for field in key_fields) if table_options.merges else (),
        tuple(clustered[:MOST_CLUSTERING_COLUMNS]) if clustering is None else clustering,
        partition,
        tuple(reason for reason in (unpartitioned, unclustered) if reason),
    )


def _metadata(mode: Mode, schema: TableSchema) -> tuple[Field, ...]:
    """The columns beside the source's. A table without a key has its only row merged by load jobs, also when deleted.

    BigQuery merges by keys alone (:data:`MERGE`).
    """
    made = METADATA_OF[mode]
    if mode != MERGE_LOAD or schema.primary_keys:
        return made
    return tuple(replace(each, fields=(*each.fields, Field(IS_DELETED, "BOOL"))) for each in made)


def _types(columns: Iterable[TableColumn], mode: Mode) -> Mapping[str, tuple[str, str]]:
    """All columns by their names in the source: name and type in BigQuery, the type empty if it is repeated."""
    fields = {column.name: column.field for column in columns} | {field.name: field for field in METADATA_OF[mode]}
    return {name: (field.name, "" if field.repeated else field.type) for name, field in fields.items()}


def _partition(
    table: str, types: Mapping[str, tuple[str, str]], layouts: TableLayouts, *, merges: bool
) -> tuple[TablePartition | None, str]:
    """The partitioning of a table, or the reason why it cannot have the one that the option asks for."""
    spec = of_table(layouts.partition_by, table)
    if not spec:
        return None, ""
    try:
        return layouts.governed(table, fitted(spec, types, merges=merges)), ""
    except ValueError as error:
        why = f"sink.partition_by: table {table} cannot be partitioned by {spec}: {error}"
        return None, why if layouts.names(table) else ""


def _clustering(
    table: str, types: Mapping[str, tuple[str, str]], layouts: TableLayouts
) -> tuple[tuple[str, ...] | None, str]:
    """The clustering of a table that an option asks for, or the reason why it cannot have it."""
    try:
        return layouts.clustering(table, types), ""
    except ValueError as error:
        return None, f"sink.cluster_by: {error}"


def table_errors(table: BigQueryTable, table_options: BigQueryTableOptions) -> Iterator[str]:
    """The reasons why a table cannot be in BigQuery, each in a sentence."""
    named: dict[str, list[str]] = {}
    for column in table.columns:
        named.setdefault(column.field.name.lower(), []).append(column.name)
    for field in table.metadata:
        named.setdefault(field.name.lower(), []).append(field.name)
    for name, columns in named.items():
        if len(columns) > 1:
            yield f"the columns {' and '.join(columns)} of table {table.source} would both be called {name} in BigQuery"
    if not table_options.merges:
        return
    if not table.primary_key and not table.keeps_deleted:
        yield (
            f"table {table.source} has no primary key to merge by: take mode merge-load or append-only, or exclude the"
            " table"
        )
    if len(table.primary_key) > MOST_KEY_COLUMNS:
        yield (
            f"the key of table {table.source} has {len(table.primary_key)} columns, and BigQuery's at most"
            f" {MOST_KEY_COLUMNS}: take mode append-only, or exclude the table"
        )
    for column in table.columns:
        if column.is_key and (column.field.repeated or column.field.type not in CLUSTERED_TYPES):
            yield (
                f"the key column {column.name} of table {table.source} is {column.field.type} in BigQuery, which has no"
                " such keys: take mode append-only, or exclude the table"
            )


SEPARATE_NAMES = (
    "give each schema a dataset of its own ({schema} in sink.dataset), or exclude one of them (source.tables.exclude)"
)
"""The repair where two tables would have one name."""


def collisions(tables: Iterable[BigQueryTable]) -> Iterator[str]:
    """An error for each name that several tables would have."""
    named: dict[tuple[str, str], list[str]] = {}
    for table in tables:
        named.setdefault((table.dataset, table.name), []).append(table.source)
    for (dataset, name), sources in named.items():
        if len(sources) > 1:
            both = f"the tables {' and '.join(sorted(sources))} would both be {dataset}.{name} in BigQuery"
            yield f"{both}: {SEPARATE_NAMES}"


def errors_of_stream(
    table_options: BigQueryTableOptions, stream: str, value_capture_type: str, schemas: Iterable[TableSchema]
) -> list[str]:
    """The reasons why a change stream's tables cannot be in BigQuery, each in a sentence after its option."""
    errors = []
    if table_options.mode == MERGE and value_capture_type not in WHOLE_ROWS:
        errors.append(f"sink.mode: {no_whole_rows(stream, value_capture_type)}")
    expires = table_options.layouts.partition_expiry
    if table_options.mode == MERGE_LOAD and value_capture_type not in WHOLE_ROWS and expires:
        errors.append(f"sink.partition_expiry: {no_whole_rows(stream, value_capture_type, needed_by=EXPIRY_NEEDS)}")
    tables = [bigquery_table(schema, table_options) for schema in schemas]
    for table in tables:
        errors += [f"sink: {error}" for error in table_errors(table, table_options)]
        errors += table.unfit
    errors += [f"sink: {error}" for error in collisions(tables)]
    return errors


EXPIRY_NEEDS = "merging into partitions that expire, whose rows an update would insert again as NULLs, needs"


def no_whole_rows(stream: str, value_capture_type: str, *, needed_by: str = "merge needs") -> str:
    """The reason why changes that were captured in this way are not enough, and the repair.

    Args:
        stream: the change stream.
        value_capture_type: its value capture type.
        needed_by: the first words of the reason, to which "whole rows" are added.
    """
    instead = ", or take mode merge-load" if needed_by == "merge needs" else ""
    return (
        f"{needed_by} whole rows, and change stream {stream} captures {value_capture_type}:"
        f" ALTER CHANGE STREAM {stream} SET OPTIONS (value_capture_type = 'NEW_ROW')"
        f" (PostgreSQL: ALTER CHANGE STREAM \"{stream}\" SET (value_capture_type = 'NEW_ROW')){instead},"
        " or set source.complete_rows"
    )


def _column(name: str, type_json: str, is_key: bool, table_options: BigQueryTableOptions) -> TableColumn:  # noqa: FBT001
    column_type = SpannerType.parse(type_json)
    kind = column_type.kind
    if column_type.is_array and table_options.arrays == "json":
        return TableColumn(name, Field(bigquery_name(name), "JSON"), kind, is_key, Layout.JSON_ARRAY)
    layout = Layout.LIST if column_type.is_array else Layout.VALUE
    type_name = COLUMN_TYPES[kind]
    if kind is ColumnKind.TIMESTAMP and table_options.timestamps == "text":
        kind, type_name = ColumnKind.STRING, "STRING"
    if kind is ColumnKind.PG_NUMERIC and table_options.numeric == "bignumeric":
        type_name = "BIGNUMERIC"
    field = Field(bigquery_name(name), type_name, column_type.is_array, is_key and table_options.merges)
    return TableColumn(name, field, kind, is_key, layout)


def bigquery_name(name: str) -> str:
    """A column's or a table's name with only the characters that BigQuery allows."""
    name = _NOT_IN_NAMES.sub("_", name)
    if name[:1].isdigit():
        name = f"_{name}"
    return (f"c{name}" if name.lower().startswith(_RESERVED) else name)[:_LONGEST_NAME]


def view_name(name: str) -> str:
    """The name of the view of a table as of a cut, by the table's name in BigQuery."""
    return f"{name}_at_cut"


def dataset_of(schema: str, table_options: BigQueryTableOptions) -> str:
    """The dataset of the tables of a schema; without a schema, of those in the default one."""
    name = _NOT_IN_NAMES.sub("_", schema or table_options.default_schema)
    return table_options.dataset.replace(SCHEMA_IN_DATASET, name)


def _dataset_and_name(table: str, table_options: BigQueryTableOptions) -> tuple[str, str]:
    """A table's dataset and its name there."""
    schema, _, name = table.rpartition(".")
    suffix = "_changelog" if table_options.mode == CHANGELOG else ""
    if SCHEMA_IN_DATASET in table_options.dataset:
        return dataset_of(schema, table_options), f"{table_options.prefix}{bigquery_name(name)}{suffix}"
    name = f"{schema}_{name}" if schema else name
    return table_options.dataset, f"{table_options.prefix}{bigquery_name(name)}{suffix}"
