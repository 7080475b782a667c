"""Follows a change stream of the emulator, and serves its records as those of the mode MUTABLE_KEY_RANGE.

The emulator's stream is read by bounded queries up to a timestamp at which no commit was on its way. That timestamp is
the clock of the scripted engine which answers queries, so that it never proves what was not read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

import orjson
from google.cloud.spanner_v1 import types
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Value

from connector.core.dialects import BY_NAME, IMMUTABLE
from connector.core.timestamps import format_rfc3339, parse
from connector.spanner.decoding.chunks import ValueAssembler
from emulator.scenario.history import History, ReportedColumn, ReportedMod
from emulator.scenario.placements import Placement, Placements
from emulator.scenario.scenario import Scenario
from emulator.scripted.clock import ScriptedClock
from emulator.scripted.spanner import ScriptedSpanner
from emulator.workload.tables import Dialect
from tests.spark_sink.self_test.front.lineage import Lineage, SourceRecord

_ExecuteSqlRequest = types.ExecuteSqlRequest.pb()
_Type = types.Type.pb()
_INT64, _TIMESTAMP, _STRING = types.TypeCode.INT64, types.TypeCode.TIMESTAMP, types.TypeCode.STRING
_FAR = 1 << 62
_PAUSE = 0.2
"""Seconds after which the clock advances if there are no commits."""

_transaction = attrgetter("commit_timestamp", "server_transaction_id")

Call = Callable[[bytes], AsyncIterator[bytes]]
"""Calls the emulator's ExecuteStreamingSql."""


class RecordedClock(ScriptedClock):
    """A clock that shows how far a stream was read. A sleep also ends when records were added."""

    def __init__(self, origin: int) -> None:
        super().__init__(origin)
        self._now = origin
        self._advanced = asyncio.Condition()
        self._additions = 0

    def start(self) -> None:
        """Does nothing: time passes by `advance`."""

    def now(self) -> int:
        """The timestamp up to which everything is recorded."""
        return self._now

    async def advance(self, now: int, *, has_added: bool) -> None:
        """Shows a later time."""
        async with self._advanced:
            self._now = now
            self._additions += has_added
            self._advanced.notify_all()

    async def sleep_until(self, timestamp: int) -> None:
        """Sleeps until that time, or until records were added."""
        async with self._advanced:
            before = self._additions
            await self._advanced.wait_for(lambda: self._now >= timestamp or self._additions != before)

    async def reach(self, timestamp: int) -> None:
        """Sleeps until that time."""
        async with self._advanced:
            await self._advanced.wait_for(lambda: self._now >= timestamp)


@dataclass(slots=True)
class EmulatedStream:
    """A change stream of the emulator.

    Attributes:
        call: the emulator.
        session: a session of the database.
        dialect: the database's.
        name: the stream's.
    """

    call: Call
    session: str
    dialect: Dialect
    name: str

    async def query(self, token: str | None, start: int, end: int) -> AsyncIterator[tuple[str, Any]]:
        """The data change records and child partitions records of a bounded query, each with its kind."""
        form = BY_NAME[self.dialect]
        request = _ExecuteSqlRequest(session=self.session, sql=form.query(self.name, IMMUTABLE))
        request.transaction.single_use.read_only.strong = True
        given = (
            (format_rfc3339(start), _TIMESTAMP),
            (format_rfc3339(end), _TIMESTAMP),
            (token, _STRING),
            ("300000", _INT64),
        )
        for name, (value, code) in zip(form.parameters, given, strict=True):
            request.param_types[name].CopyFrom(_Type(code=code))
            if value is None:
                request.params.fields[name].null_value = 0
            else:
                request.params.fields[name].string_value = value
        assembler = ValueAssembler()
        async for message in self.call(request.SerializeToString()):
            for cell in assembler.values([message]):
                for found in self._records(Value.FromString(cell)):
                    yield found

    def _records(self, value: Value) -> list[tuple[str, Any]]:
        if self.dialect == "postgresql":
            node = orjson.loads(value.string_value)
            return [(kind, found) for kind, found in node.items() if kind != "heartbeat_record"]
        found = []
        for data, _, children in MessageToDict(value):
            found += [("data_change_record", _named(one)) for one in data]
            found += [
                (
                    "child_partitions_record",
                    {"start_timestamp": at, "child_partitions": [{"token": token} for token, _ in each]},
                )
                for at, _, each in children
            ]
        return found


def _named(fields: list[Any]) -> dict[str, Any]:
    """A GoogleSQL record in the form of the PostgreSQL dialect."""
    at, sequence, identity, _, table, columns, mods, mod_type, capture, _, _, tag, _ = fields
    return {
        "commit_timestamp": at,
        "record_sequence": sequence,
        "server_transaction_id": identity,
        "table_name": table,
        "column_types": [
            {"name": name, "type": orjson.loads(kind), "is_primary_key": is_key, "ordinal_position": position}
            for name, kind, is_key, position in columns
        ],
        "mods": [
            {"keys": orjson.loads(keys), "new_values": orjson.loads(new), "old_values": orjson.loads(old)}
            for keys, new, old in mods
        ],
        "mod_type": mod_type,
        "value_capture_type": capture,
        "transaction_tag": tag,
    }


def _record_of(node: Mapping[str, Any]) -> SourceRecord:
    return SourceRecord(
        parse(node["commit_timestamp"].replace("+00:00", "Z")),
        node["server_transaction_id"],
        int(node["record_sequence"]),
        node["table_name"],
        tuple(_column_of(one) for one in node["column_types"]),
        tuple(ReportedMod(one["keys"], one["new_values"], one["old_values"]) for one in node["mods"]),
        node["mod_type"],
        node["value_capture_type"],
        node["transaction_tag"],
    )


def _column_of(node: Mapping[str, Any]) -> ReportedColumn:
    kind = node["type"]
    is_array = kind["code"] == "ARRAY"
    scalar = kind["array_element_type"] if is_array else kind
    return ReportedColumn(
        node["name"],
        scalar["code"],
        is_array,
        node["is_primary_key"],
        int(node["ordinal_position"]),
        scalar.get("type_annotation", ""),
    )


@dataclass(slots=True)
class Recording:
    """The records of a change stream so far, and the engine that serves them.

    Attributes:
        stream: the underlying stream.
        until: returns the emulator's clock at a time when no commit is on its way.
        lineage: the partitions.
        has_plain: whether a stream with placements also has the function without a placement.
    """

    stream: EmulatedStream
    until: Callable[[], Awaitable[int]]
    lineage: Lineage
    has_plain: bool = False
    clock: RecordedClock = field(init=False)
    engine: ScriptedSpanner = field(init=False)
    """Set by a commit before its lock is released, and by a split: only then is there anything to read."""
    written: asyncio.Event = field(default_factory=asyncio.Event)
    _read_upto: int = 0
    _tokens: dict[str | None, int] = field(default_factory=dict)
    _splits: list[tuple[int, str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        origin, names = self.lineage.origin, self.lineage.placements
        self.clock = RecordedClock(origin)
        places = Placements(tuple(Placement(name, origin - 1) for name in names), has_plain=self.has_plain)
        scenario = Scenario(
            0,
            self.stream.dialect,
            "MUTABLE_KEY_RANGE",
            "NEW_ROW",
            History("MUTABLE_KEY_RANGE", origin, _FAR, self.lineage.partitions),
            (),
            change_stream=self.stream.name,
            placements=places if names else None,
        )
        self.engine = ScriptedSpanner(scenario, clock=self.clock)
        self._tokens[None] = origin

    def split(self, at: int, key: str, ends: bool) -> None:
        """Splits a partition at a timestamp, once everything up to it is recorded."""
        self._splits.append((at, key, ends))
        self.written.set()

    async def follow(self) -> None:
        """Records until it is cancelled."""
        try:
            while True:
                until = await self.until()
                is_written = self.written.is_set()  # no other task has run since the lock for that clock was released
                self.written.clear()
                has_added = await self._record(until) if is_written else False
                await self.clock.advance(until, has_added=has_added)
                try:
                    async with asyncio.timeout(_PAUSE):
                        await self.written.wait()
                except TimeoutError:
                    pass
        finally:
            self.engine.close()

    async def _record(self, until: int) -> bool:
        """Adds what was committed since the last call, up to ``until``."""
        found = [record async for record in self._read(until) if record.commit_timestamp > self._read_upto]
        self._read_upto = until
        found.sort(key=attrgetter("commit_timestamp", "server_transaction_id", "record_sequence"))
        splits = [split for split in self._splits if split[0] <= until]
        self._splits = self._splits[len(splits) :]
        for _, group in groupby(found, key=_transaction):
            records = list(group)
            while splits and splits[0][0] < records[0].commit_timestamp:
                self.lineage.split(*splits.pop(0))
            self.lineage.add(records)
        for split in splits:
            self.lineage.split(*split)
        return bool(found or splits)

    async def _read(self, until: int) -> AsyncIterator[SourceRecord]:
        """The records of every partition of the emulator, each from where it was read last."""
        waiting, self._tokens = self._tokens, {}
        while waiting:
            token, start = waiting.popitem()
            if start > until:
                self._tokens[token] = start
                continue
            has_ended = token is None
            async for kind, node in self.stream.query(token, start, until):
                if kind == "data_change_record":
                    yield _record_of(node)
                    continue
                has_ended = True
                since = parse(node["start_timestamp"].replace("+00:00", "Z"))
                waiting |= {
                    child["token"]: since for child in node["child_partitions"] if child["token"] not in self._tokens
                }
            if not has_ended:
                self._tokens[token] = until
