"""Events as JSON lines, as Datastream writes them: one object a mod, values in Datastream's unified types.

The payload's values come in Spanner's own JSON encoding (https://cloud.google.com/spanner/docs/reference/rpc/
google.spanner.v1#typecode), where INT64 is a string and JSON a string that holds JSON. What each becomes is decided
by the type of its column in the schema that the event names, never guessed from the value.
"""

from collections.abc import Callable, Iterator, Mapping

import orjson
import pyarrow as pa

from connector.schemas import TableSchema
from connector.timestamps import format_rfc3339

Converter = Callable[[object], object]


def _integer(value: object) -> object:
    try:
        return int(value) if isinstance(value, str) else value
    except ValueError:  # its text holds the value
        raise ValueError("a value of an integer type is no integer") from None


def _nested_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    # A line break in JSON stands between its tokens, never within one.
    return orjson.Fragment(value.replace("\n", " ").replace("\r", " "))


_CONVERTERS: Mapping[str, Converter] = {"INT64": _integer, "ENUM": _integer, "JSON": _nested_json}
"""By type code; a type that is not here is written as Spanner gives it, unknown ones too."""


def converter(type_json: str) -> Converter | None:
    """What turns a value of a Spanner type into Datastream's, or None where it is written as it came."""
    node = orjson.loads(type_json)
    if node.get("code") != "ARRAY":
        return _CONVERTERS.get(node.get("code"))
    element = _CONVERTERS.get(node.get("array_element_type", {}).get("code"))
    if element is None:
        return None

    def array(value: object) -> object:
        if not isinstance(value, list):
            return value
        return [None if item is None else element(item) for item in value]

    return array


class EventWriter:
    """Writes events of the envelope's columns as JSON lines.

    Args:
        schema_of: the schema that a schema key names.
    """

    def __init__(self, schema_of: Callable[[str], TableSchema]) -> None:
        self._schema_of = schema_of
        self._converters: dict[str, dict[str, Converter]] = {}

    def payload(self, text: str, schema_key: str) -> bytes:
        """The payload's JSON object with its values as Datastream writes them; what is absent stays absent."""
        converters = self._of(schema_key)
        row = orjson.loads(text)
        for name, convert in converters.items():
            value = row.get(name)
            if value is not None:
                row[name] = convert(value)
        return orjson.dumps(row)

    def lines(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """One JSON object a row, with a line feed at its end."""
        read_at = batch.column("read_timestamp").cast(pa.int64())  # no datetime for each row
        rows = batch.drop_columns(["read_timestamp", "source_timestamp", "before"]).to_pylist()
        for row, read in zip(rows, read_at.to_pylist(), strict=True):
            metadata = row["source_metadata"]
            milliseconds, nanoseconds, sequence, index = row["sort_keys"]
            yield orjson.dumps(
                {
                    "stream_name": row["stream_name"],
                    "read_method": row["read_method"],
                    "object": row["object"],
                    "schema_key": row["schema_key"],
                    "uuid": row["uuid"],
                    "read_timestamp": format_rfc3339(read * 1000),
                    "source_timestamp": metadata["commit_timestamp"],
                    "sort_keys": [int(milliseconds), int(nanoseconds), sequence, int(index)],
                    "source_metadata": metadata,
                    "payload": orjson.Fragment(self.payload(row["payload"], row["schema_key"])),
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )

    def _of(self, schema_key: str) -> dict[str, Converter]:
        known = self._converters.get(schema_key)
        if known is None:
            schema = self._schema_of(schema_key)
            known = {c.name: convert for c in schema.columns if (convert := converter(c.type)) is not None}
            self._converters[schema_key] = known
        return known
