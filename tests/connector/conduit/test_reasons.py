"""The reasons why a pipeline does not run, as its users read them."""

import pytest

from connector.conduit.reasons import reason_of
from connector.core.position import Position
from connector.core.timestamps import parse
from connector.errors import (
    BeforeStreamError,
    ConfigurationError,
    DataLostError,
    StreamError,
    StreamGoneError,
    UnreachableError,
)

POSITION = Position("p/in/d/s", parse("2026-03-02T00:00:00.500000Z"), "t", "1", 0)
CREATED = parse("2026-03-03T00:00:00Z")
NOT_THERE = "source.start: 2026-03-02T00:00:00.500000Z is within the retention period; the first start is 2026-03-03"


def test_a_position_that_is_older_than_the_stream_needs_another_pipeline_and_not_another_start() -> None:
    reason = reason_of(BeforeStreamError([NOT_THERE], earliest=CREATED), POSITION)
    assert reason.startswith(
        "the pipeline's position, 2026-03-02T00:00:00.500000Z, is older than change stream p/in/d/s: "
    )
    assert "Nothing was skipped" in reason
    assert reason.endswith("delete the pipeline and create it again with start 2026-03-03T00:00:00.000000Z")
    assert reason_of(BeforeStreamError([NOT_THERE]), POSITION).endswith("create it again with a later start")


def test_without_a_position_it_is_the_start_that_is_too_old() -> None:
    assert reason_of(BeforeStreamError([NOT_THERE]), None) == NOT_THERE.removeprefix("source.")


def test_a_position_that_is_no_longer_retained_needs_another_pipeline() -> None:
    reason = reason_of(DataLostError("x", hint="Choose a later source.start."), POSITION)
    assert reason.startswith("x: what was committed after the pipeline's position is no longer retained")
    assert reason.endswith("delete the pipeline and create it again with a later start")


def test_where_spanner_says_what_it_retains_the_reason_says_it_too() -> None:
    reason = reason_of(DataLostError("x", earliest=CREATED), POSITION)
    assert reason.endswith("create it again with a start some minutes after 2026-03-03T00:00:00.000000Z")


def test_without_a_position_a_start_that_is_no_longer_retained_is_chosen_again() -> None:
    assert reason_of(DataLostError("x", hint="Choose a later source.start."), None) == "x. Choose a later start."


def test_a_stream_that_is_gone_needs_another_pipeline_and_not_another_spool() -> None:
    reason = reason_of(StreamGoneError("the change stream is gone: s", hint="It needs a new spool."), POSITION)
    assert reason.startswith("the change stream is gone: s. Once there is one again, delete the pipeline")
    assert "spool" not in reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            UnreachableError("no answer", hint="Check the network, source.endpoint, or the emulator's address."),
            "no answer. Check the network, endpoint, or the emulator's address.",
        ),
        (
            ConfigurationError(["d not found. Check source.project, source.instance and source.database", "b"]),
            "d not found. Check project, instance and database; b",
        ),
        (
            ConfigurationError(["source.tables.include: 'source.start' and source.Orders match no table"]),
            "tables.include: 'source.start' and source.Orders match no table",
        ),
        (
            StreamError("late", hint="Not read again. With source.late_records: dead-letter the daemon stores it."),
            "late. Not read again.",
        ),
        (StreamError("broken", hint="--verbose logs where."), "broken. log.level debug logs where."),
        (FileNotFoundError(2, "No such file", "x"), "No such file: x"),
        (KeyError("a row's value"), "internal error: KeyError; with log.level debug Conduit's log shows where"),
    ],
)
def test_a_reason_has_the_names_of_settings_and_no_advice_for_our_own_commands(error: Exception, reason: str) -> None:
    assert reason_of(error, None) == reason
