"""The key of a table that is created while the stream is read has its declared order everywhere."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from connector.core.dialects import Dialect
from connector.errors import StreamError
from connector.reader import change_stream
from connector.spanner.client import SpannerClient
from connector.spanner.discovery import ChangeStream, find_change_stream
from connector.spool.reading import Spool
from emulator import Scenario
from emulator.scenario.history import ReportedMod
from tests.emulator.scripted.scripted_stream import at
from tests.integration.commands import manifests
from tests.peers.histories import KEY, change, column, partition, stream
from tests.peers.served import daemon_reads, served, tailed

ALBUMS = (KEY, column("AlbumId", "INT64", 2, key=True), column("Title", "STRING", 3))


def albums() -> Scenario:
    mods = (ReportedMod({"SingerId": "7", "AlbumId": "1"}, {"Title": "private title"}, {}),)
    return stream(partition("one", 0, [change(at(n), 7, table="Albums", columns=ALBUMS, mods=mods) for n in (5, 9)]))


@pytest.fixture(autouse=True)
def no_table_is_known_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def without_tables(client: SpannerClient, dialect: Dialect, name: str) -> ChangeStream:
        return replace(await find_change_stream(client, dialect, name), tables=())

    monkeypatch.setattr(change_stream, "find_change_stream", without_tables)


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keys(_client: SpannerClient, _dialect: Dialect) -> dict[str, tuple[str, ...]]:
        return {"Albums": ("AlbumId", "SingerId")}

    monkeypatch.setattr(change_stream, "primary_keys", keys)


@pytest.mark.usefixtures("declared")
def test_tail_prints_the_declared_order_of_a_new_tables_key() -> None:
    with served(albums()) as server:
        events = tailed(server).events
    assert [event["source_metadata"]["primary_keys"] for event in events] == [["AlbumId", "SingerId"]] * 2


@pytest.mark.usefixtures("declared")
def test_read_seals_the_declared_order_of_a_new_tables_key(tmp_path: Path) -> None:
    with served(albums()) as server:
        daemon_reads(server, tmp_path / "spool")
    spool, (*_, last) = Spool.at(tmp_path / "spool"), manifests(tmp_path / "spool")
    assert spool.schema(last.schema_keys["Albums"]).primary_keys == ("AlbumId", "SingerId")


def test_without_access_to_the_declared_order_reading_continues_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def keys(_client: SpannerClient, _dialect: Dialect) -> dict[str, tuple[str, ...]]:
        raise StreamError("permission denied")

    monkeypatch.setattr(change_stream, "primary_keys", keys)
    with served(albums()) as server:
        daemon_reads(server, tmp_path / "spool")
    spool, (*_, last) = Spool.at(tmp_path / "spool"), manifests(tmp_path / "spool")
    assert spool.schema(last.schema_keys["Albums"]).primary_keys == ("SingerId", "AlbumId")
    assert [one.levelno for one in caplog.records if "primary key" in one.getMessage()] == [logging.WARNING]
    assert "private title" not in caplog.text
