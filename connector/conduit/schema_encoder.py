"""Encodes records by schemas of Conduit's registry, as the middleware of Conduit's own connectors does.

A record's metadata then name the schemas of its key and its payload, and both are Avro. Destinations, and processors,
decode them by these. A payload has one schema: old values with other columns than the new ones stay structured data,
which is taken as it is. So does a row that a decoder would change or refuse (:meth:`AvroLayout.encode`).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from connector.conduit.avro_data import AvroLayout, structured
from connector.conduit.schema_service import Registered, SchemaService
from connector.conduit.settings import Schemas
from connector.core.schemas import SchemaRegistry
from connector.envelope.failing_rows import of_row
from connector.envelope.opencdc import OpenCdcRecord, OpenCdcWriter
from connector.envelope.opencdc_protobuf import Data, EncodedRecord
from connector.errors import EventError

_MOST_COLUMNS = 200_000
"""Of the layouts that are remembered, some 350 bytes each: a column more or less is another layout."""

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Part:
    """A key or a payload with its columns, of a version of a table's schema."""

    name: str
    schema_key: str
    columns: tuple[str, ...]


class SchemaEncoder:
    """Encodes the records of rows.

    Args:
        registry: the tables' schemas.
        service: registers theirs in Avro.
        schemas: the parts that are encoded.
    """

    def __init__(self, registry: SchemaRegistry, service: SchemaService, schemas: Schemas) -> None:
        self._registry = registry
        self._service = service
        self._schemas = schemas
        self._writer = OpenCdcWriter(registry.by_key, structured if schemas.payloads else None)
        self._known: dict[_Part, tuple[AvroLayout, Registered]] = {}
        self._columns = 0

    async def records(self, rows: pa.RecordBatch) -> list[EncodedRecord]:
        """The records of rows, once their schemas are registered.

        Raises:
            EventError: as those of :class:`OpenCdcWriter`.
            SpannerCdcError: a schema is not registered.
        """
        if self._columns > _MOST_COLUMNS:
            self._known.clear()
            self._columns = 0
        captured, missing = await asyncio.to_thread(self._captured, rows)
        for part, layout in missing.items():
            table = self._registry.by_key(part.schema_key).table
            self._known[part] = layout, await self._service.register(f"{table}.{part.name}", layout.schema)
            self._columns += len(part.columns)
        return await asyncio.to_thread(self._encoded, rows, captured)

    def _captured(self, rows: pa.RecordBatch) -> tuple[list[OpenCdcRecord], dict[_Part, AvroLayout]]:
        """The records as they were captured, and the layouts among theirs that are not registered yet."""
        captured = list(self._writer.captured(rows))
        missing: dict[_Part, AvroLayout] = {}
        for index, record in enumerate(captured):
            for part in self._parts(record):
                if part not in self._known and part not in missing:
                    try:
                        missing[part] = AvroLayout.of(self._registry.by_key(part.schema_key), part.columns)
                    except EventError as error:
                        raise of_row(error, rows, index) from None
        return captured, missing

    def _parts(self, record: OpenCdcRecord) -> Iterator[_Part]:
        schema_key = _schema_key(record)
        if self._schemas.keys and record.key:
            yield _Part("key", schema_key, tuple(record.key))
        if self._schemas.payloads and (payload := _payload(record)):
            yield _Part("payload", schema_key, tuple(payload))

    def _encoded(self, rows: pa.RecordBatch, captured: list[OpenCdcRecord]) -> list[EncodedRecord]:
        out = []
        for index, record in enumerate(captured):
            try:
                out.append(self._of(record))
            except EventError as error:
                raise of_row(error, rows, index) from None
        return out

    def _of(self, record: OpenCdcRecord) -> EncodedRecord:
        metadata, layouts = dict(record.metadata), dict[str, AvroLayout]()
        for part in self._parts(record):
            layouts[part.name], registered = self._known[part]
            metadata[f"opencdc.{part.name}.schema.subject"] = registered.subject
            metadata[f"opencdc.{part.name}.schema.version"] = str(registered.version)
        schema_key = _schema_key(record)

        def data(row: Row | None, layout: AvroLayout | None) -> Data | None:
            if row is None:
                return None
            encoded = None if layout is None else layout.encode(row)
            return self._writer.converted(row, schema_key) if encoded is None else encoded

        key = data(record.key, layouts.get("key"))
        before, after = (data(row, layouts.get("payload")) for row in (record.before, record.after))
        assert key is not None
        return EncodedRecord(record.position, record.operation, metadata, key, before, after)


def _schema_key(record: OpenCdcRecord) -> str:
    return record.metadata["spanner.schema_key"]


def _payload(record: OpenCdcRecord) -> Row | None:
    """The row whose columns the schema of the payload has."""
    return record.before if record.after is None else record.after
