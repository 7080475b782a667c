"""The rows of tables of Spanner and of BigQuery, as values that can be compared.

A timestamp is a datetime in UTC, a number with decimals a Decimal; a JSON document is parsed and stands in a list of
its own, because its null is not NULL. A NULL array is empty, because BigQuery has none.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.spanner_v1.keyset import KeySet

from emulator import Column, SampleDatabase, Table
from emulator.bigquery.double import BigQueryDouble
from tests.local_bigquery import LocalBigQuery

Server = LocalBigQuery | BigQueryDouble
Row = dict[str, Any]
Rows = dict[tuple[object, ...], Row]
"""Rows by key."""

METADATA = "datastream_metadata"


def spanner_tables(sample: SampleDatabase, tables: Iterable[Table]) -> dict[str, Rows]:
    """All rows of tables, by one strong read."""
    found = {}
    with sample.database.snapshot(multi_use=True) as snapshot:
        for table in tables:
            names = [column.name for column in table.columns]
            read = snapshot.read(table.name, names, KeySet(all_=True), lazy_decode=True)
            rows = ([_plain(value) for value in row] for row in read)
            found[table.name] = by_key(table, (_converted(table, row, _OF_SPANNER) for row in rows))
    return found


def bigquery_rows(server: Server, dataset: str, name: str, table: Table) -> list[Row]:
    """The rows of a table, with its metadata; those of a history in the order of their sequence numbers, as texts."""
    read = server.rows(dataset, name) if isinstance(server, BigQueryDouble) else _selected(server, dataset, name, table)
    return [
        {**_converted(table, [row[column.name] for column in table.columns], _OF_BIGQUERY), METADATA: row[METADATA]}
        for row in read
    ]


def bigquery_names(server: Server, dataset: str) -> set[str]:
    """The tables of a dataset."""
    if isinstance(server, BigQueryDouble):
        return set(server.tables(dataset))
    with closing(_client(server)) as client:
        return {table.table_id for table in client.list_tables(dataset)}


def by_key(table: Table, rows: Iterable[Row]) -> Rows:
    """Rows by their keys, of which none may come twice; without metadata."""
    found: Rows = {}
    for row in rows:
        key = key_of(table, row)
        assert key not in found, f"a key of {table.name} is there twice: {key}"
        found[key] = {column.name: row[column.name] for column in table.columns}
    return found


def key_of(table: Table, row: Row) -> tuple[object, ...]:
    """A row's key."""
    return tuple(row[column.name] for column in table.key)


def assert_equal(expected: Mapping[str, Rows], found: Mapping[str, Rows]) -> int:
    """Fails unless tables have the same rows, column by column; returns how many rows that are."""
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        missing, extra = rows.keys() - found[name].keys(), found[name].keys() - rows.keys()
        assert not missing, f"{name}: {len(missing)} of {len(rows)} rows are missing: {list(missing)[:3]}"
        assert not extra, f"{name}: {len(extra)} rows are too many: {list(extra)[:3]}"
        others = [
            (key, column, value, found[name][key][column])
            for key, row in rows.items()
            for column, value in row.items()
            if found[name][key][column] != value
        ]
        assert not others, f"{name}: {len(others)} values differ; key, column, expected, found: {others[:3]}"
    return sum(len(rows) for rows in expected.values())


_Convert = Callable[[Any], object]


def _converted(table: Table, values: Iterable[Any], converters: Mapping[str, _Convert]) -> Row:
    return {
        column.name: _of_column(column, value, converters.get(column.type, lambda value: value))
        for column, value in zip(table.columns, values, strict=True)
    }


def _of_column(column: Column, value: Any, convert: _Convert) -> object:
    if column.array:
        return [convert(element) for element in value or ()]
    return None if value is None else convert(value)


_OF_SPANNER: Mapping[str, _Convert] = {
    "INT64": int,
    "NUMERIC": Decimal,
    "BYTES": b64decode,
    "DATE": date.fromisoformat,
    "TIMESTAMP": datetime.fromisoformat,
    "JSON": lambda text: [json.loads(text)],
}
"""By type, from what Spanner's API sends."""

_OF_BIGQUERY: Mapping[str, _Convert] = {
    "NUMERIC": Decimal,  # PostgreSQL's is a text
    "JSON": lambda found: [json.loads(found)] if isinstance(found, str) else found,
}
"""By type, from what a client of BigQuery's gives; JSON is a text, or parsed and in a list."""


def _plain(value: Any) -> object:
    """The Python value of a protobuf value."""
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_plain(element) for element in value.list_value.values]
    return None if kind == "null_value" else getattr(value, kind)


def _selected(server: LocalBigQuery, dataset: str, name: str, table: Table) -> Iterator[Row]:
    """Rows as a query returns them. Google's client returns None for NULL and JSON's null; extra columns tell which."""
    documents = [column for column in table.columns if column.type == "JSON"]
    asked = ", ".join(["*", *(f"`{column.name}` IS NULL AS `null_{column.name}`" for column in documents)])
    sql = f"SELECT {asked} FROM `{server.project}.{dataset}.{name}` ORDER BY {METADATA}.change_sequence_number"
    with closing(_client(server)) as client:
        for found in client.query(sql).result():
            row = dict(found)
            for column in documents:
                if column.array:
                    row[column.name] = [[element] for element in row[column.name]]
                else:
                    row[column.name] = None if row[f"null_{column.name}"] else [row[column.name]]
            if "change_type" in row[METADATA]:
                _mend(table, row)
            yield row


def _mend(table: Table, row: Row) -> None:
    """Decodes what local-bigquery leaves encoded in arrays of appended rows: base64 and the text of JSON."""
    for column in table.columns:
        if column.array and column.type == "BYTES":
            row[column.name] = [b64decode(element) for element in row[column.name]]
        if column.array and column.type == "JSON":
            row[column.name] = [[json.loads(text)] for (text,) in row[column.name]]


def _client(server: LocalBigQuery) -> bigquery.Client:
    return bigquery.Client(
        project=server.project,
        credentials=AnonymousCredentials(),
        client_options={"api_endpoint": server.endpoint},
    )
