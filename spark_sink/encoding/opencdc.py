"""Files of OpenCDC records: JSON lines, and delimited protobuf messages ``opencdc.v1.Record``."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from connector.core.schemas import TableSchema
from connector.envelope.opencdc import OpenCdcRecord, OpenCdcWriter
from connector.extras import extras_named
from spark_sink.encoding.file_format import EncodedRows, Encoding, Series, unfit_payloads


class OpenCdc(Encoding):
    """A file of OpenCDC records.

    Args:
        schema_of: returns the schema with a schema key.
        gzip: whether files are compressed.
        ending: the extension of the file names, without ``gz``.
        encoded: encodes a record.
    """

    needs_before = True

    def __init__(
        self,
        schema_of: Callable[[str], TableSchema],
        *,
        gzip: bool,
        ending: str,
        encoded: Callable[[OpenCdcRecord], bytes],
    ) -> None:
        self._writer = OpenCdcWriter(schema_of)
        self._encoded = encoded
        self.gzipped = gzip
        self.ending = f"{ending}.gz" if gzip else ending

    @classmethod
    def lines(cls, schema_of: Callable[[str], TableSchema], *, gzip: bool) -> "OpenCdc":
        """Writes JSON lines, one record in each."""
        return cls(schema_of, gzip=gzip, ending="opencdc.jsonl", encoded=OpenCdcRecord.to_json)

    @classmethod
    def messages(cls, schema_of: Callable[[str], TableSchema], *, gzip: bool) -> "OpenCdc":
        """Writes protobuf messages, each after its length.

        Raises:
            ConfigurationError: the library of protobuf is not installed.
        """
        with extras_named("sink.format: opencdc-protobuf"):
            from connector.envelope.opencdc_protobuf import delimited
        return cls(schema_of, gzip=gzip, ending="opencdc.pb", encoded=delimited)

    def encode(self, series: Series, rows: pa.RecordBatch) -> EncodedRows:
        """The record of each row."""
        encoded = [self._encoded(record) for record in self._writer.records(rows)]
        return EncodedRows.of(pa.array(encoded, pa.binary()))

    def unfit(self, series: Series, rows: pa.RecordBatch) -> dict[int, str]:
        """The rows whose payload or old values cannot be encoded, by index, with the reason."""
        values = partial(self._writer.values, schema_key=series.schema_key)
        before = rows.column("before").fill_null("{}")
        return unfit_payloads(before, values) | unfit_payloads(rows.column("payload"), values)
