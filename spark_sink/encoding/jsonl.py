"""Files of JSON lines, as Datastream writes them."""

from collections.abc import Callable

import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.envelope.events import EventWriter
from spark_sink.encoding.file_format import EncodedRows, Encoding, Series, unfit_payloads, with_object


class JsonLines(Encoding):
    """JSON lines: one JSON object in each line.

    Args:
        schema_of: returns the schema with a schema key.
        gzip: whether files are compressed.
        sort_fields: whether the source metadata ends with the fields that the Dataflow templates sort by.
        completes: whether it ends with the field that says whether a row is complete.
        object_names: ``table``, or ``schema_table``, the name of the folder.
    """

    needs_before = False

    def __init__(
        self,
        schema_of: Callable[[str], TableSchema],
        *,
        gzip: bool,
        sort_fields: bool = True,
        completes: bool = False,
        object_names: str = "table",
    ) -> None:
        self._events = EventWriter(schema_of, sort_fields=sort_fields, completes=completes)
        self._object_names = object_names
        self.gzipped = gzip
        self.ending = "jsonl.gz" if gzip else "jsonl"

    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """The line of each row."""
        return EncodedRows.of(self._events.encoded(with_object(rows, series, self._object_names)))

    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """The rows whose payload cannot be encoded, by index, with the reason."""
        return unfit_payloads(rows.column("payload"), lambda text: self._events.payload(text, series.schema_key))
