"""Each table's state, in the words of Datastream."""

from connector.spool.backfill.documents import TableProgress, TableState
from connector.spool.lifecycle import ErrorEvent
from connector.telemetry.objects import line_of, objects_of


def backfill(number: int, *tables: TableProgress, why: str = "start", lost: bool = False) -> dict[str, object]:
    nodes = [table.model_dump(mode="json") for table in tables]
    return {"number": number, "timestamp": "T", "why": why, "lost": lost, "tables": nodes}


def state_of(state: TableState, *, lost: bool = False) -> str:
    (found,) = objects_of((), [backfill(1, TableProgress(table="A", state=state), lost=lost)], {}, ())
    return str(found["backfill"]["state"])


def test_a_table_has_the_state_of_its_newest_backfill_in_datastreams_words() -> None:
    states: list[TableState] = ["planned", "reading", "read", "done", "failed", "stopped"]
    assert [state_of(state) for state in states] == ["pending", "active", "active", "completed", "failed", "stopped"]
    assert [state_of(state, lost=True) for state in states] == ["failed"] * 3 + ["completed", "failed", "stopped"]
    later = backfill(2, TableProgress(table="A", state="reading"))
    repair = backfill(3, TableProgress(table="A", state="done"), why="repair")
    found = objects_of(["B"], [backfill(1, TableProgress(table="A", state="done")), later, repair], {}, ())
    assert [(one["table"], one["backfill"].get("number"), one["backfill"]["state"]) for one in found] == [
        ("A", 2, "active"),
        ("B", None, "not_started"),
    ]


def test_rows_and_bytes_are_expected_once_a_partition_is_read() -> None:
    planned = TableProgress(table="A", state="planned", planned=4)
    (found,) = objects_of((), [backfill(1, planned)], {}, ())
    assert "rows_expected" not in found["backfill"]
    read = planned.model_copy(update={"state": "reading", "partitions": 3, "rows": 300, "bytes": 60})
    (found,) = objects_of((), [backfill(1, read)], {}, ())
    assert (found["backfill"]["rows_expected"], found["backfill"]["bytes_expected"]) == (400, 80)


def test_errors_of_a_table_and_of_its_stream_stand_beside_it() -> None:
    failed = TableProgress(table="A", state="failed", why="no such column")
    event = ErrorEvent(time=1, severity="ERROR", code="table_stopped", table="B", message="it has no key")
    other = ErrorEvent(time=2, severity="ERROR", code="other", message="of no table")
    a, b = objects_of((), [backfill(1, failed)], {"B": "it has no key"}, [event, other])
    assert (a["backfill"]["error"], a["streaming"], a["errors"]) == ("no such column", {"state": "active"}, [])
    assert b["streaming"] == {"state": "stopped", "error": "it has no key"}
    assert [one["code"] for one in b["errors"]] == ["table_stopped"]
    assert line_of(b) == (
        "  B: backfill not_started; changes stopped: it has no key; 1 errors, the newest table_stopped: it has no key"
    )
