"""Texts of a Hive metastore's errors."""

HIVE = "[_LEGACY_ERROR_TEMP_3065] org.apache.hadoop.hive.ql.metadata.HiveException: "
SILENT = (
    f"{HIVE}java.lang.RuntimeException: Unable to instantiate"
    " org.apache.hadoop.hive.ql.metadata.SessionHiveMetaStoreClient"
)
"""Of one that does not answer."""
