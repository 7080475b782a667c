"""The events of a micro-batch, which are read once where the session keeps rows."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.sinks.tables.formats.session import persisted

_METADATA = ("mod_type", "commit_timestamp", "is_deleted", "value_capture_type", "primary_keys")
"""The fields of ``source_metadata`` that are needed."""


@contextmanager
def kept_events(events: DataFrame) -> Iterator[tuple[DataFrame, bool]]:
    """The columns and the fields that are needed, and whether they are read once, as where the session keeps rows."""
    metadata = F.struct(*(F.col("source_metadata").getField(name).alias(name) for name in _METADATA))
    names = ("object", "uuid", "change_sequence_number", "payload", "epoch")
    needed = events.select(*names, metadata.alias("source_metadata"))
    if not persisted(needed):
        yield needed, False
        return
    try:
        yield needed, True
    finally:
        needed.unpersist()
