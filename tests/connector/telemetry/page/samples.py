"""Answers of /api/status for tests of the page, in every state."""

from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime(2026, 3, 1, 10, 0, 0, tzinfo=UTC)
STATES = ("Not started", "Starting", "Running", "Draining", "Paused", "Failed", "Failed permanently")
ALARMS = {
    "stream_failed": ("ERROR", "permission denied on projects/p/instances/i/databases/d"),
    "retention_running_out": ("ERROR", "85% of Spanner's retention is used up"),
    "reader_behind": ("WARNING", "the reader is 15 min behind"),
    "partition_behind": (
        "WARNING",
        "the reader is 15 min behind: partition 5f0c holds the watermark at 2026-03-01T08:00:00Z",
    ),
    "stream_was_stalled": ("WARNING", "the watermark was stalled 2 times, last at 2026-03-01T08:00:00Z"),
    "records_were_late": (
        "WARNING",
        "late records have stopped the reader 2 times, last at 2026-03-01T08:00:00Z",
    ),
    "sink_restarted": ("WARNING", "the sink was restarted 3 times, last at 2026-03-01T08:00:00Z"),
    "consumer_behind": ("WARNING", "consumer files is 40 epochs, 1200 s, behind the spool"),
    "spool_nearly_full": ("WARNING", "the spool holds 95% of spool.max_bytes"),
    "spool_keeps_less": ("WARNING", "the spool keeps 2.1d of the 7d that spool.keep says"),
    "tables_stopped": ("ERROR", "the sink has stopped tables: Albums (column Title is INT64 now)"),
    "dead_letters": ("WARNING", "3 rows are dead letters"),
    "paused_for_long": ("WARNING", "the stream is paused since 2026-03-01T08:00:00Z"),
}


def at(seconds: float) -> str:
    """A timestamp so many seconds after now."""
    return (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def young() -> dict[str, Any]:
    """A reader that has only started: almost everything is unknown."""
    return {
        "version": 1,
        "time": at(0),
        "build": {"version": "0.1.0", "python": "3.11.7"},
        "source": {
            "project": "my-project",
            "instance": "my-instance",
            "database": "my-database",
            "change_stream": "Everything",
        },
        "state": {"name": "Starting"},
        "health": {"healthy": True, "ready": False, "summary": "nothing is sealed yet", "alarms": []},
        "watermark": {},
        "partitions": {"alive": 0, "churn": {}, "splits": 0, "merges": 0, "moves": 0, "graph": []},
        "history": [],
        "tables": [],
        "mods": {},
        "epochs": {"sealed": 0, "mods": 0},
        "buffer": {"bytes": 0},
        "spool": {"path": "./spool", "max_bytes": 10_000_000_000},
        "consumers": [],
        "sink": {"type": "files", "dead_letters": 0, "restarts": 0, "stopped_tables": {}},
        "queries": {"sent": 1, "retries": {}},
        "errors": [],
        "backfills": [],
        "objects": [],
        "figures": {},
    }


def running(state: str = "Running", *alarms: str) -> dict[str, Any]:
    """A reader at work for half an hour, whose partitions have split, merged and moved."""
    partitions = _partitions()
    is_well = state in ("Running", "Starting", "Draining") and not alarms
    return young() | {
        "state": {"name": state, "since": at(-1800)}
        | ({"reason": "`spanner-cdc pause` was run"} if state == "Paused" else {}),
        "health": {
            "healthy": is_well,
            "ready": is_well,
            "summary": ALARMS[alarms[0]][1] if alarms else _summary(state),
            "alarms": [
                {
                    "name": name,
                    "severity": severity,
                    "message": message,
                    "hint": f"What to do about {name}.",
                    "since": at(-300),
                }
                for name, (severity, message) in ((one, ALARMS[one]) for one in alarms)
            ],
        },
        "watermark": {"watermark": at(-1.2), "lag_seconds": 1.2, "sealed": at(-1.9), "sealed_lag_seconds": 1.9},
        "partitions": {
            "alive": sum(one["state"] != "finished" for one in partitions),
            "waiting": 1, "reading": 4, "splits": 3, "merges": 1, "moves": 1, "churn": {}, "graph": partitions,
        },
        "history": [
            {
                "time": at(-1800 + 10 * point),
                "lag_seconds": 1 + (point % 17) / 10 + (12 if 90 < point < 96 else 0),
                "mods_per_second": 400 + 40 * (point % 13),
                "bytes_per_second": 90_000 + 5_000 * (point % 13),
            }
            for point in range(180)
        ],
        "tables": [
            {"table": "Singers", "records": 90_210, "mods": 181_234, "bytes": 61_234_567, "mods_per_second": 310.4},
            {"table": "Albums", "records": 45_000, "mods": 90_000, "bytes": 20_000_000, "mods_per_second": 150.0},
            {"table": "sales.Invoices", "records": 12, "mods": 12, "bytes": 4_000},
        ],
        "epochs": {"newest": 1812, "sealed": 1812, "mods": 271_246},
        "spool": {"path": "./spool", "bytes": 1_234_000_000, "max_bytes": 10_000_000_000},
        "consumers": [
            {
                "name": "files", "epoch": 1811, "epochs_behind": 1, "lag_seconds": 2.9, "batches": 1200,
                "events": 270_031, "destination": "files in gs://acme-lake/changes (jsonl)",
                "complete_up_to": at(-62.4), "incomplete_tables": {"Albums": "it has dead letters"},
            },
            {"name": "fraud", "epoch": 1700, "epochs_behind": 112, "lag_seconds": 140.0},
        ],
        "retention": {"seconds": 86400.0, "runway_seconds": 86398.1, "used": 0.00002},
        "errors": [
            {
                "time": at(-600),
                "severity": "ERROR",
                "code": "daemon_failed",
                "message": "the network was away",
                "hint": "Check it.",
            },
            {
                "time": at(-60),
                "severity": "WARNING",
                "code": "consumer_behind",
                "table": "Albums",
                "message": "fraud is behind",
            },
        ],
        "sink": _sink(alarms),
        "backfills": [
            {
                "number": 1,
                "timestamp": at(-1700),
                "done": True,
                "tables": [{"table": "Singers", "state": "done"}],
            }
        ],
    }  # fmt: skip


def _sink(alarms: tuple[str, ...]) -> dict[str, Any]:
    """The section of the sink beside those alarms."""
    stopped = {"Albums": "column Title is INT64 now, and STRING in the destination"}
    return {
        "type": "files",
        "dead_letters": 3 if "dead_letters" in alarms else 0,
        "restarts": 3 if "sink_restarted" in alarms else 0,
        "stopped_tables": stopped if "tables_stopped" in alarms else {},
    }


def catching_up() -> dict[str, Any]:
    """A reader that is three days behind: its partitions are long over by the clock."""
    status = running()
    return status | {"time": at(3 * 86400), "watermark": status["watermark"] | {"sealed_lag_seconds": 259200.0}}


def _partitions() -> list[dict[str, Any]]:
    graph: list[tuple[str, int, int | None, list[str]]] = [
        ("a1", -1800, -1300, []),
        ("a2", -1800, -700, []),
        ("b1", -1300, -700, ["a1"]),
        ("b2", -1300, None, ["a1"]),
        ("c1", -700, -200, ["a2", "b1"]),
        ("d1", -200, None, ["c1"]),
        ("d2", -200, None, ["c1"]),
        ("e1", -20, None, ["d1"]),
    ]
    return [
        {
            "id": f"partition {token}f00d",
            "start": at(start),
            "parents": [f"partition {parent}f00d" for parent in parents],
            "state": "finished" if end is not None else "waiting" if token == "e1" else "reading",
            "watermark": at(-1.2),
        }
        | ({"end": at(end)} if end is not None else {})
        for token, start, end, parents in graph
    ]


def _summary(state: str) -> str:
    return "replication is healthy, 1.2 s behind" if state == "Running" else f"the stream is {state}"
