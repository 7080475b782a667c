"""Reads change stream rows without the connector's decoders, so that the connector can be checked against it.

It reads rows of the IMMUTABLE_KEY_RANGE mode in both dialects, as the official emulator sends them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from google.cloud.spanner_v1 import types
from google.protobuf.json_format import MessageToDict

from connector.core.timestamps import parse
from emulator.workload.journal import CommittedMod

PartialResultSet = types.PartialResultSet.pb()

Identity = tuple[int, str, str, str]
"""Commit timestamp in nanoseconds since 1970, table, mod type and keys of a mod, the keys as JSON."""


class PlainStreamError(Exception):
    """A row cannot be read; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class PlainMod:
    """A mod of a data change record, and the partition whose query returned it."""

    identity: Identity
    partition: str

    @property
    def commit_timestamp(self) -> int:
        """In nanoseconds since 1970."""
        return self.identity[0]


@dataclass(slots=True)
class PlainRecords:
    """The records that a query returned; timestamps are nanoseconds since 1970."""

    mods: list[PlainMod] = field(default_factory=list)
    heartbeats: list[int] = field(default_factory=list)
    children: list[tuple[str, int]] = field(default_factory=list)
    """Each child partition's token and start timestamp."""


def identity(timestamp: int, table: str, mod_type: str, keys: dict[str, Any]) -> Identity:
    """Builds what identifies a mod; INT64 keys may be numbers or text."""
    return (timestamp, table, mod_type, json.dumps({name: str(value) for name, value in keys.items()}, sort_keys=True))


def committed_identity(mod: CommittedMod) -> Identity:
    """Builds what identifies a committed mod."""
    return identity(mod.commit_timestamp_ns, mod.table, mod.mod_type, dict(mod.keys))


def plain_records(messages: Iterable[bytes], partition: str) -> PlainRecords:
    """Reads the serialized PartialResultSets of one query.

    Raises:
        PlainStreamError: they are not what the official emulator sends.
    """
    records = PlainRecords()
    for message in messages:
        result = PartialResultSet.FromString(message)
        if result.chunked_value:
            raise PlainStreamError("a row is split into several messages, which the official emulator never does")
        for value in result.values:
            try:
                _read(MessageToDict(value), partition, records)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise PlainStreamError(f"a row is not a change record ({type(error).__name__}: {error})") from error
    return records


def _read(row: Any, partition: str, records: PlainRecords) -> None:
    if isinstance(row, str):
        _read_postgresql(json.loads(row), partition, records)
        return
    for data, heartbeats, children in row:
        for at, _sequence, _transaction, _last, table, _types, mods, mod_type, *_ in data:
            _add(records, partition, at, table, mod_type, [mod[0] for mod in mods])
        records.heartbeats += [parse(heartbeat[0]) for heartbeat in heartbeats]
        records.children += [(child[0], parse(start)) for start, _sequence, found in children for child in found]


def _read_postgresql(row: dict[str, Any], partition: str, records: PlainRecords) -> None:
    if data := row.get("data_change_record"):
        keys = [mod["keys"] for mod in data["mods"]]
        _add(records, partition, data["commit_timestamp"], data["table_name"], data["mod_type"], keys)
    elif heartbeat := row.get("heartbeat_record"):
        records.heartbeats.append(parse(heartbeat["timestamp"]))
    else:
        found = row["child_partitions_record"]
        start = parse(found["start_timestamp"])
        records.children += [(child["token"], start) for child in found["child_partitions"]]


def _add(records: PlainRecords, partition: str, at: str, table: str, mod_type: str, keys: Iterable[Any]) -> None:
    for key in keys:
        node = json.loads(key) if isinstance(key, str) else dict(key)
        records.mods.append(PlainMod(identity(parse(at), table, mod_type, node), partition))
