"""The resources of BigQuery's REST API that the sink creates: tables, datasets, and the defaults of its jobs."""

from google.cloud import bigquery
from google.cloud.bigquery.table import (
    PartitionRange,
    PrimaryKey,
    RangePartitioning,
    TableConstraints,
    TimePartitioning,
)

from spark_sink.sinks.bigquery.tables.partition import TablePartition
from spark_sink.sinks.bigquery.tables.table import BigQueryTable, BigQueryTarget, Field


def table_resource(target: BigQueryTarget, table: BigQueryTable) -> bigquery.Table:
    """A table with its columns, key, clustering and partitioning, and with the target's key and labels."""
    path = f"{target.project}.{table.dataset}.{table.name}"
    keys = {column.field.name for column in table.columns if column.is_key}
    schema = [_exact(field) if field.name in keys else schema_field(field) for field in table.fields]
    made = bigquery.Table(path, schema=schema)
    if table.source:
        made.description = f"Spanner table {table.source}"
    if table.clustering:
        made.clustering_fields = list(table.clustering)
    if table.partition is not None:
        _partition(made, table.partition)
    if table.primary_key:
        made.table_constraints = TableConstraints(PrimaryKey(columns=list(table.primary_key)), None)
    if target.kms_key:
        made.encryption_configuration = _encryption(target)
    if target.labels:
        made.labels = dict(target.labels)
    return made


def dataset_resource(target: BigQueryTarget, dataset: str, location: str) -> bigquery.Dataset:
    """A dataset, with the target's key and labels."""
    made = bigquery.Dataset(f"{target.project}.{dataset}")
    made.location = location
    if target.kms_key:
        made.default_encryption_configuration = _encryption(target)
    if target.labels:
        made.labels = dict(target.labels)
    return made


def query_defaults(target: BigQueryTarget) -> bigquery.QueryJobConfig:
    """The options of every statement."""
    return bigquery.QueryJobConfig(labels=dict(target.labels))


def load_defaults(target: BigQueryTarget) -> bigquery.LoadJobConfig:
    """The options of every load job, which creates a table of its own."""
    config = bigquery.LoadJobConfig(labels=dict(target.labels))
    if target.kms_key:
        config.destination_encryption_configuration = _encryption(target)
    return config


def schema_field(field: Field) -> bigquery.SchemaField:
    """A column as the REST API has it."""
    mode = "REPEATED" if field.repeated else "REQUIRED" if field.required else "NULLABLE"
    return bigquery.SchemaField(field.name, field.type, mode=mode, fields=[schema_field(one) for one in field.fields])


def staged_field(field: Field) -> bigquery.SchemaField:
    """A column of a staging table, whose keys are compared as they are."""
    return schema_field(field) if field.fields or field.repeated else _exact(field)


def _exact(field: Field) -> bigquery.SchemaField:
    """A column without the dataset's collation, by which two keys that differ in case would be the same."""
    made = schema_field(field)
    if field.type != "STRING":
        return made
    return bigquery.SchemaField.from_api_repr({**made.to_api_repr(), "collation": ""})


def _partition(made: bigquery.Table, partition: TablePartition) -> None:
    if partition.interval:
        span = PartitionRange(start=partition.start, end=partition.end, interval=partition.interval)
        made.range_partitioning = RangePartitioning(span, field=partition.column)
    else:
        kept = partition.expiry * 1000 or None
        unit = partition.unit.upper()
        made.time_partitioning = TimePartitioning(type_=unit, field=partition.column or None, expiration_ms=kept)
    if partition.requires_filter:
        made.require_partition_filter = True


def _encryption(target: BigQueryTarget) -> bigquery.EncryptionConfiguration:
    return bigquery.EncryptionConfiguration(kms_key_name=target.kms_key)
