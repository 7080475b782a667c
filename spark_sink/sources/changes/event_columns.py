"""The columns of a micro-batch as Spark's schema and as DDL; a test compares the two."""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from connector.envelope.envelope import SCHEMA

DDL = """
stream_name STRING,
read_method STRING,
object STRING,
schema_key STRING,
uuid STRING,
read_timestamp TIMESTAMP,
source_timestamp TIMESTAMP,
sort_keys ARRAY<STRING>,
change_sequence_number STRING,
source_metadata STRUCT<
  commit_timestamp: STRING,
  snapshot: BOOLEAN,
  project_id: STRING,
  instance_id: STRING,
  database_id: STRING,
  change_stream_name: STRING,
  schema: STRING,
  database: STRING,
  table: STRING,
  server_transaction_id: STRING,
  record_sequence: STRING,
  mod_index: BIGINT,
  transaction_tag: STRING,
  system_transaction: BOOLEAN,
  number_of_records_in_transaction: BIGINT,
  number_of_partitions_in_transaction: BIGINT,
  is_last_record_in_transaction_in_partition: BOOLEAN,
  value_capture_type: STRING,
  mod_type: STRING,
  change_type: STRING,
  primary_keys: ARRAY<STRING>,
  is_deleted: BOOLEAN>,
payload STRING,
before STRING,
epoch BIGINT
"""
"""All columns may be null; payload and before are JSON with values in Spanner's own encoding."""

SPOOL = "spool"
"""In the metadata of the column ``payload``: the path of the spool that the rows come from."""


def of_spool(path: str) -> StructType:
    """The schema; its metadata names the spool of the rows, which :func:`spark_sink.typed` reads."""
    fields = from_arrow_schema(SCHEMA).fields  # parsing the DDL would need a Spark session
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {SPOOL: path}) if field.name == "payload" else field
            for field in fields
        ]
    )
