"""A database role that may read a change stream, and none of its tables, which INFORMATION_SCHEMA hides from it."""

import logging
from pathlib import Path

import pytest

from emulator import Scenario
from emulator.scripted import information_schema
from tests.emulator.scripted.scripted_stream import ORIGIN
from tests.peers.served import daemon_reads, events_of_spool, served, tailed

WARNING = "patterns of source.tables cannot be checked"


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    whole = information_schema._content

    def hidden(scenario: Scenario) -> object:
        return {**whole(scenario), "tables": [], "columns": [], "index_columns": []}

    monkeypatch.setattr(information_schema, "_content", hidden)
    return Scenario.generate(5, origin=ORIGIN, seconds=20, dialect="googlesql", mode="IMMUTABLE_KEY_RANGE")


def test_a_table_that_the_role_does_not_see_is_read_by_its_name_with_one_warning(
    scenario: Scenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = scenario.history.in_commit_order()[0].table
    tables = {"include": [table]}
    with served(scenario) as server:
        printed = tailed(server, tables=tables, database_role="reader")
        daemon_reads(server, tmp_path / "spool", tables=tables, database_role="reader")
    assert printed.error is None
    assert {event["source_metadata"]["table"] for event in printed.events} == {table}
    assert len(events_of_spool(tmp_path / "spool")) == len(printed.events)
    assert sum(WARNING in record.getMessage() for record in caplog.records) == 2


def test_no_table_is_reported_as_gone(scenario: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), served(scenario) as server:
        assert tailed(server, database_role="reader").error is None
    reasons = [str(getattr(record, "fields", {}).get("reason", "")) for record in caplog.records]
    assert any("database role reader does not see the table" in reason for reason in reasons)
    assert "the table no longer exists" not in reasons


def test_without_a_role_a_pattern_that_matches_nothing_is_a_typing_error(scenario: Scenario) -> None:
    with served(scenario) as server:
        found = tailed(server, tables={"include": ["Singers"]})
    assert "'Singers' matches no table" in str(found.error)
