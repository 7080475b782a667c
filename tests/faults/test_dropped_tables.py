"""A table that `source.tables` names is dropped: a started spool is continued with a warning, a new one rejected."""

import asyncio
from pathlib import Path

import pytest

from connector.check.findings import check_sink, findings_of
from connector.config import Config, validated
from connector.errors import ConfigurationError
from emulator import TABLES, Scenario
from tests.emulator.scripted.scripted_stream import at
from tests.peers.histories import split
from tests.peers.served import daemon_reads, served, settings, singers_of_spool, tailed

PATTERNS = [
    {"include": ["Singers", "Albums"]},
    {"exclude": ["Albums"]},
]
WARNING = "source.tables names tables that the change stream no longer watches; the other tables are read"


def dropped() -> Scenario:
    """Returns the change stream after `Albums` and the tables interleaved in it were dropped."""
    return split(tables=tuple(table for table in TABLES if table.name == "Singers"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [vars(one)["fields"]["patterns"] for one in caplog.records if one.getMessage() == WARNING]


@pytest.mark.parametrize("tables", PATTERNS, ids=lambda tables: next(iter(tables)))
def test_a_spool_with_epochs_is_continued_with_one_warning(
    tables: dict[str, list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = tmp_path / "spool"
    with served(split()) as server:
        daemon_reads(server, spool, end=at(10), tables=tables)
    assert warnings(caplog) == []
    with served(dropped()) as server:
        daemon_reads(server, spool, tables=tables)
    assert singers_of_spool(spool) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert warnings(caplog) == ["Albums"]


@pytest.mark.parametrize("tables", PATTERNS, ids=lambda tables: next(iter(tables)))
def test_a_spool_without_epochs_and_tail_are_rejected(tables: dict[str, list[str]], tmp_path: Path) -> None:
    with served(dropped()) as server:
        with pytest.raises(ConfigurationError, match="'Albums' matches no table"):
            daemon_reads(server, tmp_path / "spool", tables=tables)
        assert "'Albums' matches no table" in str(tailed(server, tables=tables).error)


def test_check_warns_and_reports_errors_where_read_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool, tables = tmp_path / "spool", PATTERNS[0]
    with served(split()) as server:
        daemon_reads(server, spool, end=at(10), tables=tables)
    with served(dropped()) as server:
        assert not any("Albums" in fault for fault in faults(validated(settings(server, spool, tables=tables))))
        assert warnings(caplog) == ["Albums"]
        other = validated(settings(server, tmp_path / "other", tables=tables))
        assert any("'Albums' matches no table" in fault for fault in faults(other))


def test_a_bigquery_sink_is_not_rejected_because_of_a_dropped_table(tmp_path: Path) -> None:
    spool, tables = tmp_path / "spool", PATTERNS[0]
    with served(split()) as server:
        daemon_reads(server, spool, end=at(10), tables=tables)
    with served(dropped()) as server:
        node = {**settings(server, spool, tables=tables), "sink": {"type": "bigquery", "dataset": "d"}}
        asyncio.run(check_sink(validated(node)))


def faults(config: Config) -> list[str]:
    return asyncio.run(findings_of(config)).errors
