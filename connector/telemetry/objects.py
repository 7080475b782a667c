"""The state of each table, in the words of Datastream: its backfill, and its changes. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from connector.core.health.states import StreamState
from connector.spool.backfill.documents import TableProgress, TableState
from connector.spool.lifecycle import ErrorEvent

NOT_STARTED = "not_started"
STATES: Mapping[TableState, str] = {
    "planned": "pending",
    "reading": "active",
    "read": "active",
    "done": "completed",
    "failed": "failed",
    "stopped": "stopped",
}
"""The state of a table's backfill, by the state in the spool."""

STREAMING: Mapping[StreamState, str] = {
    StreamState.NOT_STARTED: NOT_STARTED,
    StreamState.PAUSED: "paused",
    StreamState.FAILED: "failed",
    StreamState.FAILED_PERMANENTLY: "failed",
}
"""The state of a table's changes where no sink has stopped it, by the stream's state; ``active`` in every other one."""

_SHOWN_ERRORS = 10
_LOST = "what is left can only be read at a new timestamp, by the next run"


def objects_of(
    tables: Iterable[str],
    backfills: Iterable[Mapping[str, Any]],
    stopped: Mapping[str, str],
    errors: Iterable[ErrorEvent],
    state: StreamState = StreamState.RUNNING,
    *,
    is_complete: bool = False,
) -> list[dict[str, Any]]:
    """The tables, by name, each with the newest backfill that has it, and how its changes are delivered.

    Args:
        tables: the names of the watched tables; those of the other arguments are added.
        backfills: the backfills, in order, as ``spanner-cdc spool --json`` lists them. Repairs are ignored.
        stopped: why a sink has stopped a table.
        errors: the recorded errors, the newest last.
        state: the stream's.
        is_complete: whether it has ended at its configured end.
    """
    streaming = {"state": "completed" if is_complete else STREAMING.get(state, "active")}
    filled = {}
    for one in backfills:
        if one.get("why") != "repair":
            filled.update({node["table"]: _backfill(one, TableProgress.model_validate(node)) for node in one["tables"]})
    of_table: dict[str, list[dict[str, Any]]] = {}
    for event in errors:
        if event.table:
            of_table.setdefault(event.table, []).append(error_node(event))
    names = {*tables, *filled, *stopped, *of_table}
    return [
        {
            "table": name,
            "backfill": filled.get(name, {"state": NOT_STARTED}),
            "streaming": {"state": "stopped", "error": stopped[name]} if name in stopped else streaming,
            "errors": of_table.get(name, [])[-_SHOWN_ERRORS:],
        }
        for name in sorted(names)
    ]


def _backfill(one: Mapping[str, Any], table: TableProgress) -> dict[str, Any]:
    """A table of a backfill. Rows and bytes of all partitions are estimated from those that are read."""
    state, why = STATES[table.state], table.why
    if one.get("lost") and state not in ("completed", "stopped"):
        state, why = STATES["failed"], why or _LOST
    found = {
        "state": state,
        "number": one["number"],
        "timestamp": one["timestamp"],
        "partitions": table.partitions,
        "rows": table.rows,
        "bytes": table.bytes,
    }
    if table.planned:
        found["partitions_expected"] = table.planned
    if table.partitions:
        found["rows_expected"] = table.rows * table.planned // table.partitions
        found["bytes_expected"] = table.bytes * table.planned // table.partitions
    return found | ({"error": why} if why else {})


def error_node(event: ErrorEvent) -> dict[str, Any]:
    """An event without what it does not have."""
    return {name: value for name, value in event.model_dump(mode="json").items() if value}


def line_of(one: Mapping[str, Any]) -> str:
    """A line for a table."""
    backfill, streaming = one["backfill"], one["streaming"]
    parts = [f"backfill {backfill['state']}"]
    if "number" in backfill:
        parts[0] += (
            f" (number {backfill['number']}, as of {backfill['timestamp']}): {backfill['rows']} rows of about"
            f" {backfill.get('rows_expected', '?')}, {backfill['bytes']} bytes of about"
            f" {backfill.get('bytes_expected', '?')}"
        )
    if "error" in backfill:
        parts[0] += f", {backfill['error']}"
    parts.append(f"changes {streaming['state']}{': ' + streaming['error'] if 'error' in streaming else ''}")
    if errors := one["errors"]:
        parts.append(f"{len(errors)} errors, the newest {errors[-1]['code']}: {errors[-1]['message']}")
    return f"  {one['table']}: {'; '.join(parts)}"
