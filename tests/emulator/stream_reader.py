"""Reads a change stream simply, one partition after the other, to compare it with the workload's record."""

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.cloud.spanner_v1 import param_types

from connector.core.timestamps import parse
from emulator import SampleDatabase

Moment = dt.datetime | str
"""A timestamp in RFC 3339."""

_GOOGLE = (
    "SELECT ChangeRecord FROM READ_{stream}(start_timestamp=>@p1, end_timestamp=>@p2, partition_token=>@p3,"
    " heartbeat_milliseconds=>@p4)"
)
_POSTGRES = 'SELECT * FROM "spanner"."read_json_{stream}"($1, $2, $3, $4, null)'


@dataclass(frozen=True)
class SeenMod:
    commit_timestamp_ns: int
    table: str
    mod_type: str
    keys: dict[str, Any]
    new_values: dict[str, Any]
    old_values: dict[str, Any]


def now(sample: SampleDatabase) -> dt.datetime:
    """Returns the emulator's time."""
    with sample.database.snapshot() as snapshot:
        instant = next(iter(snapshot.execute_sql("SELECT CURRENT_TIMESTAMP")))[0]
    assert isinstance(instant, dt.datetime)
    return instant


def read_all(
    sample: SampleDatabase, start: Moment, end: Moment, seen: set[str | None] | None = None
) -> Iterator[SeenMod]:
    """Yields every mod committed from start to end, both inclusive; adds the partitions' tokens to `seen`."""
    waiting: list[tuple[str | None, Moment]] = [(None, start)]
    seen = set() if seen is None else seen
    while waiting:
        token, since = waiting.pop(0)
        if token in seen:
            continue
        seen.add(token)
        for record in _records(sample, token, since, end):
            if "data_change_record" in record:
                yield from _mods(record["data_change_record"])
            elif "child_partitions_record" in record:
                children = record["child_partitions_record"]
                since = children["start_timestamp"].replace("+00:00", "Z")  # a datetime would lose its nanoseconds
                waiting += [(child["token"], since) for child in children["child_partitions"]]


def _records(sample: SampleDatabase, token: str | None, start: Moment, end: Moment) -> Iterator[dict[str, Any]]:
    sql = (_GOOGLE if sample.dialect == "googlesql" else _POSTGRES).format(stream=sample.change_stream)
    values = {"p1": start, "p2": end, "p3": token, "p4": 10_000}
    types = {
        "p1": param_types.TIMESTAMP,
        "p2": param_types.TIMESTAMP,
        "p3": param_types.STRING,
        "p4": param_types.INT64,
    }
    with sample.database.snapshot() as snapshot:
        for (value,) in snapshot.execute_sql(sql, params=values, param_types=types):
            if sample.dialect == "postgresql":
                yield dict(value)
            else:
                for data, _heartbeats, children in value:
                    yield from ({"data_change_record": _data(record)} for record in data)
                    yield from ({"child_partitions_record": _children(record)} for record in children)


def _data(record: list[Any]) -> dict[str, Any]:
    commit_timestamp, _, _, _, table, _, mods, mod_type = record[:8]
    return {
        "commit_timestamp": commit_timestamp.rfc3339(),
        "table_name": table,
        "mod_type": mod_type,
        "mods": [dict(zip(("keys", "new_values", "old_values"), mod, strict=True)) for mod in mods],
    }


def _children(record: list[Any]) -> dict[str, Any]:
    return {
        "start_timestamp": record[0].rfc3339(),
        "child_partitions": [{"token": child[0]} for child in record[2]],
    }


def _mods(record: dict[str, Any]) -> Iterator[SeenMod]:
    nanoseconds = parse(record["commit_timestamp"])
    for mod in record["mods"]:
        keys, new, old = (_json(mod[name]) for name in ("keys", "new_values", "old_values"))
        yield SeenMod(nanoseconds, record["table_name"], record["mod_type"], keys, new, old)


def _json(value: Any) -> dict[str, Any]:
    return dict(json.loads(value)) if isinstance(value, str) else dict(value or {})
