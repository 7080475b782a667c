"""``check`` says what a BigQuery sink takes of its quotas, by the tables that are watched and those that are there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from connector import check
from connector.config import Config, validated
from connector.filters import RecordFilter
from connector.schemas import TableSchema
from emulator.bigquery_double import BigQueryDouble
from tests.connector.builders import column

SOURCE = {"project": "project", "instance": "instance", "database": "d", "change_stream": "Everything"}
TABLES = [TableSchema.of(name, [column("Id", "INT64", 1, key=True)]) for name in ("Singers", "Albums", "Left out")]


@asynccontextmanager
async def opened(*_args: object, **_kwargs: object) -> AsyncIterator[SimpleNamespace]:
    keeps = RecordFilter((), ("Left*",))
    yield SimpleNamespace(
        stream=SimpleNamespace(tables=TABLES), source=SimpleNamespace(default_schema=""), filter=keeps
    )


def notes(monkeypatch: pytest.MonkeyPatch, config: Config) -> list[str]:
    monkeypatch.setattr(check, "opened", opened)
    return asyncio.run(check.notes_of(config, emulator_host=None))


@pytest.mark.parametrize("mode", ["merge", "merge-load"])
def test_check_tells_how_much_is_read_of_the_tables_that_are_there(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    with BigQueryDouble.started() as double:
        client = bigquery.Client(
            project=double.project, credentials=AnonymousCredentials(), client_options={"api_endpoint": double.endpoint}
        )
        client.create_dataset("d")
        client.create_table(bigquery.Table(f"{double.project}.d.Singers", [bigquery.SchemaField("Id", "INT64")]))
        double.set_size("d", "Singers", 10**13)
        sink = {"type": "bigquery", "dataset": "d", "mode": mode, "project": double.project}
        sink |= {"endpoint": double.endpoint, "grpc_endpoint": double.grpc_endpoint}
        first, second, third = notes(monkeypatch, validated({"source": SOURCE, "sink": sink}))
    assert first.startswith(f"2 tables in mode {mode}")
    assert second.startswith("1 tables of 10,000.0 GB are read up to 24 times a day")
    assert third.startswith("warning: that is 109 %")


def test_check_tells_of_streams_where_rows_are_appended_and_nothing_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = {"type": "bigquery", "dataset": "d", "mode": "append-only"}
    (note,) = notes(monkeypatch, validated({"source": SOURCE, "sink": sink}))
    assert note.startswith("2 tables in mode append-only: at most 5,000 new streams an hour, of 10,000")
    assert notes(monkeypatch, validated({"source": SOURCE})) == []
