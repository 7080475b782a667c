"""The last change of each row in the destination: ``sink.metadata`` writes it into columns of every table."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import orjson
import pyarrow as pa

from connector.config.address import DatabaseAddress
from connector.core.schemas import TableSchema
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys
from spark_sink.sinks.shared.completing.row_keys import Key, kinds_of
from spark_sink.sinks.shared.completing.whole_rows import decoded, key_of
from spark_sink.sinks.spanner.writing.destination_names import DestinationNames
from spark_sink.sinks.spanner.writing.planning import METADATA


class LastChange(NamedTuple):
    """The last change of a row; the texts are empty where it is not known."""

    sequence: str
    commit_timestamp: str


def last_changes(
    target: DatabaseAddress, names: DestinationNames, schema: TableSchema, keys: Iterable[str]
) -> Mapping[Key, LastChange]:
    """The last change of each row that the destination has.

    Args:
        target: the destination.
        names: those of tables and columns there.
        schema: the source's.
        keys: the texts of JSON objects with the key's columns, of the source's table.

    Raises:
        SpannerCdcError: the rows cannot be read.
    """
    name = names.table(schema.table)
    table = names.tables[name]
    of_source = {names.column(schema.table, column): column for column in schema.primary_keys}
    texts = [
        msgspec.json.encode({column: values[of] for column, of in of_source.items()}).decode()
        for values in map(decoded, keys)
    ]
    query = TableQuery(name, (*table.key, *METADATA))
    found: dict[Key, LastChange] = {}
    for block in read_keys(target, query, pa.array(texts, pa.string()), table.key, None):
        for key, row in zip(block.payloads(table.key).to_pylist(), block.payloads(METADATA).to_pylist(), strict=True):
            named = {of_source[column]: value for column, value in decoded(key).items()}
            timestamp, sequence = orjson.loads(row).values()
            last = LastChange(sequence or "", timestamp or "")
            found[key_of(named, schema.primary_keys, kinds_of(schema))] = last
    return found
