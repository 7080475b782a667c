"""A small hand-written change stream in both dialects and modes, and functions that read it without gRPC.

Times are in seconds after ORIGIN. In the IMMUTABLE_KEY_RANGE mode `left` splits into `west` and `east` at 20, in the
MUTABLE_KEY_RANGE mode it starts them at 20 and ends at 25; `right` does not end.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

import grpc
from google.cloud.spanner_v1 import types

from connector.core.changes import Changes
from connector.core.dialects import DIALECTS
from connector.core.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    Record,
)
from connector.core.timestamps import SECOND, format_rfc3339
from connector.spanner.decoding.decoder import Item, decoder
from emulator import TABLES, FaultPlan, Framing, Scenario, ScriptedClock, ScriptedError, ScriptedSpanner
from emulator.scenario.history import (
    Change,
    Child,
    Children,
    Event,
    History,
    Partition,
    PartitionEnd,
    PartitionEvent,
    PartitionMode,
    PartitionStart,
    ReportedColumn,
    ReportedMod,
)
from emulator.scripted.row_types import read_function
from emulator.workload.tables import Dialect

ORIGIN = 1_790_000_000 * SECOND + 123_456_789
FORMS: tuple[tuple[Dialect, PartitionMode], ...] = (
    ("googlesql", "IMMUTABLE_KEY_RANGE"),
    ("postgresql", "IMMUTABLE_KEY_RANGE"),
    ("googlesql", "MUTABLE_KEY_RANGE"),
    ("postgresql", "MUTABLE_KEY_RANGE"),
)
COLUMNS = (
    ReportedColumn("SingerId", "INT64", array=False, is_primary_key=True, ordinal_position=1),
    ReportedColumn("FirstName", "STRING", array=False, is_primary_key=False, ordinal_position=2),
    ReportedColumn("Scores", "FLOAT64", array=True, is_primary_key=False, ordinal_position=3),
    ReportedColumn("Price", "NUMERIC", array=False, is_primary_key=False, ordinal_position=4, annotation="PG_NUMERIC"),
)
MODS = (
    ReportedMod({"SingerId": "1"}, {"FirstName": 'é"\\\n\U0001f600', "Scores": [1.5, -0.0], "Price": None}, {}),
    ReportedMod({"SingerId": "2"}, {"FirstName": "", "Scores": [], "Price": "1.10"}, {"FirstName": None}),
)

_PartialResultSet = types.PartialResultSet.pb()
_DIALECT_NAMES = {"googlesql": "GOOGLE_STANDARD_SQL", "postgresql": "POSTGRESQL"}


def at(seconds: float) -> int:
    """The timestamp so many seconds after the origin."""
    return ORIGIN + round(seconds * SECOND)


def change(seconds: float, number: int = 1) -> Change:
    """A data change record of two rows."""
    return Change(
        commit_timestamp=at(seconds),
        record_sequence=f"{number:08d}",
        server_transaction_id=f"transaction {seconds:g}",
        is_last_record_in_transaction_in_partition=True,
        table="Singers",
        columns=COLUMNS,
        mods=MODS,
        mod_type="UPDATE",
        value_capture_type="NEW_ROW_AND_OLD_VALUES",
        number_of_records_in_transaction=1,
        number_of_partitions_in_transaction=1,
        transaction_tag="a=b",
        is_system_transaction=number % 2 == 0,
    )


def scenario(dialect: Dialect = "googlesql", mode: PartitionMode = "IMMUTABLE_KEY_RANGE") -> Scenario:
    """The stream described above; `left` has changes at 5, 10 and 10.5, the others one each 2 seconds in."""
    left: list[Event] = [change(5), change(10), change(10.5)]
    if mode == "IMMUTABLE_KEY_RANGE":
        left += [Children(at(20), f"{n:08d}", (Child(token, ("left",)),)) for n, token in enumerate(("west", "east"))]
        end = at(20)
    else:
        left += [
            PartitionEvent(at(18), "00000001", "left", sources=("right",), destinations=("right", "west")),
            PartitionStart(at(20), "00000001", ("west",)),
            PartitionStart(at(20), "00000002", ("east",)),
            PartitionEnd(at(25), "00000001", "left"),
        ]
        end = at(25) + 1
    partitions = (
        Partition("left", ORIGIN, end=end, events=left),
        Partition("right", ORIGIN, events=[change(2)]),
        Partition("west", at(20), ("left",), events=[change(22)]),
        Partition("east", at(20), ("left",), events=[change(22, 2)]),
    )
    history = History(mode, ORIGIN, at(30), {partition.token: partition for partition in partitions})
    return Scenario(0, dialect, mode, "NEW_ROW_AND_OLD_VALUES", history, TABLES)


def engine(
    script: Scenario, *, now: float = 0.0, faults: FaultPlan | None = None, framing: Framing | None = None
) -> ScriptedSpanner:
    """Serves it, with a clock that starts `now` seconds after the origin."""
    return ScriptedSpanner(script, clock=ScriptedClock(at(now)), faults=faults, framing=framing)


@dataclass
class Asked:
    """Returns a change stream query as a client sends it: its statement, and its parameters by name."""

    script: Scenario
    token: str | None = None
    start: float | None = 0.0
    end: float | None = None
    heartbeat: int | None = 1000
    placement: str | None = None

    @property
    def sql(self) -> str:
        dialect = DIALECTS[_DIALECT_NAMES[self.script.dialect]]
        sql = dialect.query(self.script.change_stream, self.script.mode)
        names = (self.script.dialect, self.script.mode, self.script.change_stream)
        return sql.replace(read_function(*names), read_function(*names, self.placement))

    @property
    def parameters(self) -> dict[str, str | None]:
        values = (
            None if self.start is None else format_rfc3339(at(self.start)),
            None if self.end is None else format_rfc3339(at(self.end)),
            self.token,
            None if self.heartbeat is None else str(self.heartbeat),
        )
        return dict(zip(DIALECTS[_DIALECT_NAMES[self.script.dialect]].parameters, values, strict=True))


@dataclass
class Answer:
    """The result of a query: each record with the server's time at its arrival, and how the query ended."""

    records: list[Record] = field(default_factory=list)
    came: list[float] = field(default_factory=list)
    messages: int = 0
    error: ScriptedError | None = None
    ended: float = 0.0

    @property
    def shown(self) -> list[str]:
        """Each record as a word, with its timestamp in seconds after the origin."""
        return [shown(record) for record in self.records]

    @property
    def ok(self) -> bool:
        return self.error is None


def shown(record: Record) -> str:
    match record:
        case DataChangeRecord(commit_timestamp=instant):
            word = "change"
        case HeartbeatRecord(timestamp=instant):
            word = "heartbeat"
        case ChildPartitionsRecord(start_timestamp=instant, children=children):
            word = "children " + ",".join(child.token for child in children)
        case PartitionStartRecord(start_timestamp=instant, tokens=tokens):
            word = "start " + ",".join(tokens)
        case PartitionEndRecord(end_timestamp=instant):
            word = "end"
        case PartitionEventRecord(commit_timestamp=instant):
            word = "event"
    return f"{word} {round((instant - ORIGIN) / SECOND, 3):g}"


async def records_of(messages: AsyncIterator[bytes], script: Scenario) -> AsyncIterator[list[Record]]:
    """Decodes the records that each message completes with the connector's decoder."""
    decode = decoder(DIALECTS[_DIALECT_NAMES[script.dialect]], script.mode)()
    async for message in messages:
        yield loose(decode([message], 0))


def loose(items: Iterable[Item]) -> list[Record]:
    """Returns the decoded records as objects."""
    return [record for item in items for record in (item.records() if isinstance(item, Changes) else [item])]


async def ask(
    served: ScriptedSpanner,
    token: str | None = None,
    start: float | None = 0.0,
    end: float | None = None,
    *,
    heartbeat: int | None = 1000,
    until: float | None = None,
    placement: str | None = None,
) -> Answer:
    """Reads a query to its end, or until a record arrives at `until` seconds of the server's time or later."""
    asked, answer = Asked(served.scenario, token, start, end, heartbeat, placement), Answer()
    try:
        async with aclosing(served.execute(asked.sql, asked.parameters)) as messages:
            async for records in records_of(messages, served.scenario):
                now = (served.clock.now() - ORIGIN) / SECOND
                answer.messages += 1
                answer.records += records
                answer.came += [round(now, 3)] * len(records)
                if until is not None and now >= until:
                    break
    except ScriptedError as error:
        answer.error = error
    answer.ended = round((served.clock.now() - ORIGIN) / SECOND, 3)
    return answer


def refusal(answer: Answer) -> tuple[grpc.StatusCode, str]:
    """Returns the error of a rejected query."""
    assert answer.error is not None
    return answer.error.code, answer.error.message
