"""The files of the sink, read back for ``spanner-cdc verify``."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from connector.config.replicas import Replica, Selection
from connector.config.sections import EnvelopeConfig
from connector.core.schemas import TableSchema
from connector.envelope.envelope import SCHEMA
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from connector.storage.locations import absolute
from spark_sink.files.config import CONSUMER, FilesConfig
from spark_sink.read_back.files import files_below, read_file
from spark_sink.sink.delivered import delivered_up_to

_EXPANSION = 10
"""About how many times as large as a gzipped file its contents are."""


class FilesReplica(Replica):
    """JSON lines below ``sink.path``.

    Args:
        sink: the sink's options.
        spool: the spool's path.
        envelope: the envelope.

    Raises:
        ConfigurationError: the files have another format.
        SinkError: nothing was delivered yet.
        EventFileError: the files cannot be listed.
    """

    def __init__(self, sink: FilesConfig, spool: str, envelope: EnvelopeConfig) -> None:
        if sink.format != "jsonl" or envelope.format != "datastream":
            raise ConfigurationError(
                ["sink.format: only jsonl files in Datastream's envelope can be verified, for they keep every digit"]
            )
        if sink.endpoint is not None:
            raise ConfigurationError(["sink.endpoint: files in an emulator of Cloud Storage cannot be verified"])
        stored = Spool.at(absolute(spool))
        self.delivered = delivered_up_to(stored, CONSUMER)
        self._has_schema_names = sink.object == "schema_table"
        header = stored.header()
        unnamed = [header.default_schema] if header.default_schema else [header.source.database, "public"]
        self._unnamed_schemas = pa.array(unnamed, pa.string())
        self._root = absolute(sink.path)
        self.name = f"files below {self._root}"
        self._files = files_below(self._root)

    def size(self, tables: Mapping[str, TableSchema]) -> int:
        """The size of all files, of other tables too."""
        del tables
        return sum(file.bytes * (_EXPANSION if file.path.endswith(".gz") else 1) for file in self._files)

    def changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[pa.RecordBatch]:
        """All events of the files that there were when this was created."""
        del wanted
        named = pa.array(sorted(tables), pa.string())
        for file in self._files:
            for batch in read_file(file.path):
                events = self._with_table_names(batch)
                rows = events.filter(pc.is_in(events.column("object"), value_set=named))
                if rows.num_rows:
                    yield rows

    def _with_table_names(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with Spanner's names of their tables as objects."""
        if not self._has_schema_names:
            return rows
        schemas, tables = (pc.struct_field(rows.column("source_metadata"), name) for name in ("schema", "table"))
        qualified = pc.binary_join_element_wise(schemas, tables, ".")
        names = pc.if_else(pc.is_in(schemas, value_set=self._unnamed_schemas), tables, qualified)
        at = SCHEMA.get_field_index("object")
        return rows.set_column(at, SCHEMA.field(at), names)
