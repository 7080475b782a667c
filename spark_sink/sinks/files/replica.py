"""The files of the sink, read back for ``spanner-cdc verify``."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from connector.config.replicas import PARTIAL, Replica, Selection, ValuePrecision
from connector.core.schemas import TableSchema
from connector.envelope.avro_schema import avro_name
from connector.envelope.envelope import SCHEMA, WHOLE_ROWS
from connector.envelope.source_metadata import COMPLETED
from connector.errors import ConfigurationError
from connector.spool.reading import Spool
from connector.spool.storage.locations import absolute
from spark_sink.sinks.files.config import FilesConfig
from spark_sink.sinks.shared.feed import delivered_up_to
from spark_sink.sources.files.files import files_below, is_of_opencdc, read_file, read_opencdc
from spark_sink.sources.files.table_rows import FileEvent

AVRO = ".avro"
UPDATE = "UPDATE"

_EXPANSION = 10
"""About how many times as large as a gzipped file its contents are."""


class FilesReplica(Replica):
    """The files below ``sink.path``, of all formats that the sink has written there.

    Args:
        sink: the sink's options.
        spool: the spool's path.

    Raises:
        ConfigurationError: the files are in an emulator.
        SinkError: nothing was delivered yet.
        EventFileError: the files cannot be listed.
    """

    def __init__(self, sink: FilesConfig, spool: str) -> None:
        if sink.endpoint is not None:
            raise ConfigurationError(["sink.endpoint: files in an emulator of Cloud Storage cannot be verified"])
        stored = Spool.at(absolute(spool))
        self.delivered = delivered_up_to(stored, sink.name)
        self._has_schema_names = sink.object == "schema_table"
        header = stored.header()
        unnamed = [header.default_schema] if header.default_schema else [header.source.database, "public"]
        self._unnamed_schemas = pa.array(unnamed, pa.string())
        self._root = absolute(sink.path)
        self.name = f"files below {self._root}"
        self._files = files_below(self._root, opencdc=True)
        cuts = sink.timestamps == "micros" and any(file.path.endswith(AVRO) for file in self._files)
        self.precision = ValuePrecision(
            timestamp=1000 if cuts else 1, is_opencdc=any(is_of_opencdc(file.path) for file in self._files)
        )

    def size(self, tables: Mapping[str, TableSchema]) -> int:
        """The size of all files, of other tables too."""
        del tables
        return sum(file.bytes * (_EXPANSION if file.path.endswith(".gz") else 1) for file in self._files)

    def changes(self, tables: Mapping[str, TableSchema], wanted: Selection) -> Iterator[pa.RecordBatch]:
        """All events of the files that there were when this was created."""
        del wanted
        named = pa.array(sorted(tables), pa.string())
        names = {table: _names_of_avro(schema) for table, schema in tables.items()}
        for file in self._files:
            for batch in self._read(file.path, names):
                rows = batch.filter(pc.is_in(batch.column("object"), value_set=named))
                if rows.num_rows:
                    yield rows

    def _read(self, path: str, names: Mapping[str, Mapping[str, str]]) -> Iterator[pa.RecordBatch]:
        if is_of_opencdc(path):
            yield from read_opencdc(path)
            return
        known = partial(_of_avro, table_of=self._table_of, names=names) if path.endswith(AVRO) else None
        for batch in read_file(path, known):
            yield self._with_table_names(batch)

    def _table_of(self, event: FileEvent) -> str:
        """Spanner's name of the table of an event."""
        if not self._has_schema_names:
            return event.table
        schema, table = (str(event.source_metadata[name]) for name in ("schema", "table"))
        return table if schema in self._unnamed_schemas.to_pylist() else f"{schema}.{table}"

    def _with_table_names(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with Spanner's names of their tables as objects."""
        if not self._has_schema_names:
            return rows
        schemas, tables = (pc.struct_field(rows.column("source_metadata"), name) for name in ("schema", "table"))
        qualified = pc.binary_join_element_wise(schemas, tables, ".")
        names = pc.if_else(pc.is_in(schemas, value_set=self._unnamed_schemas), tables, qualified)
        at = SCHEMA.get_field_index("object")
        return rows.set_column(at, SCHEMA.field(at), names)


def _names_of_avro(schema: TableSchema) -> Mapping[str, str]:
    """The columns that have another name in Avro, by that name."""
    found = {avro_name(column.name): column.name for column in schema.columns}
    return {avro: name for avro, name in found.items() if avro != name}


def _of_avro(
    event: FileEvent, *, table_of: Callable[[FileEvent], str], names: Mapping[str, Mapping[str, str]]
) -> FileEvent:
    """An event of an Avro file with Spanner's names; a partial update is PARTIAL, because null is ambiguous."""
    renamed = names.get(table_of(event))
    if renamed:
        columns = msgspec.json.decode(event.payload, type=dict[str, msgspec.Raw])
        event.payload = msgspec.Raw(msgspec.json.encode({renamed.get(name, name): columns[name] for name in columns}))
    metadata = event.source_metadata
    is_whole = metadata["value_capture_type"] in WHOLE_ROWS or metadata.get(COMPLETED) is True
    if metadata["mod_type"] == UPDATE and not is_whole:
        event.source_metadata = {**metadata, "mod_type": PARTIAL}
    return event
