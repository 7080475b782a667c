"""Reads the events of Avro files, with fastavro (the extra ``avro``).

A payload becomes the same JSON as in a file of JSON lines, within the limits of Avro. Values that were not captured are
null like those that were NULL, timestamps have six digits of a second, and columns have names that Avro allows.
"""

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

import msgspec
import orjson

from connector.core.timestamps import format_rfc3339, unix_nanoseconds
from connector.envelope.avro_schema import ARRAY_RECORDS_OF_JSON
from connector.extras import installation
from spark_sink.errors import EventFileError
from spark_sink.sources.files.table_rows import FileEvent

_DAMAGED = (
    *(ArithmeticError, AssertionError, EOFError, LookupError, MemoryError, TypeError, ValueError, struct.error),
    *(zlib.error, RecursionError),
)
"""The exceptions that fastavro raises for bytes that are not valid Avro."""


def avro_events(path: str, stream: BinaryIO) -> Iterator[FileEvent]:
    """The events of an Avro file.

    Raises:
        EventFileError: it is not an Avro file of events, or it is damaged, or fastavro is not installed.
    """
    try:
        import fastavro
    except ImportError as error:
        raise EventFileError("reading Avro files needs the package fastavro", hint=installation("avro")) from error
    try:
        reader = fastavro.reader(stream)
        nested = _nested(reader.writer_schema)
        for record in reader:
            assert isinstance(record, dict)
            yield _event(record, nested)
    except (*_DAMAGED, fastavro.schema.SchemaParseException):  # their text might hold a row's values
        raise EventFileError(f"cannot read {path}: it is damaged, or not an Avro file of events") from None


def _event(record: dict[str, Any], nested: frozenset[str]) -> FileEvent:
    payload = {name: _value(value, nested=name in nested) for name, value in record["payload"].items()}
    metadata = record["source_metadata"]
    return FileEvent(
        stream_name=record["stream_name"],
        read_method=record["read_method"],
        table=record["object"],
        schema_key=record["schema_key"],
        uuid=record["uuid"],
        read_timestamp=_timestamp(record["read_timestamp"]),
        source_timestamp=metadata["commit_timestamp"],  # which has all its digits
        sort_keys=tuple(record["sort_keys"]),
        source_metadata=metadata,
        payload=msgspec.Raw(orjson.dumps(payload)),
    )


def _nested(schema: object) -> frozenset[str]:
    """The payload's fields whose text is JSON."""
    assert isinstance(schema, Mapping)
    (payload,) = [field["type"] for field in schema["fields"] if field["name"] == "payload"]
    return frozenset(
        field["name"]
        for field in payload["fields"]
        for kind in field["type"]
        if (isinstance(kind, Mapping) and kind.get("logicalType") == "json") or _is_of_json(kind)
    )


def _is_of_json(kind: object) -> bool:
    """True if it is the record of an array of JSON texts, or its name."""
    name = kind.get("name") if isinstance(kind, Mapping) else kind
    return name in ARRAY_RECORDS_OF_JSON


def _value(value: object, *, nested: bool) -> object:
    match value:
        case str():
            return orjson.Fragment(value) if nested else value
        case {"nestedArray": elements, **_rest} if elements is not None:
            return [_value(element, nested=nested) for element in elements]
        case {"nestedArray": None, "elementValue": element}:
            return None if element is None else _value(element, nested=nested)
        case float():
            if math.isnan(value):
                return "NaN"
            return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return _digits(value)
        case datetime():
            return _timestamp(value)
        case date():
            return value.isoformat()
        case _:
            return value


def _digits(value: Decimal) -> str:
    """The text of a NUMERIC as Spanner writes it: without trailing zeros in the fraction."""
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _timestamp(value: datetime) -> str:
    return format_rfc3339(unix_nanoseconds(value))
