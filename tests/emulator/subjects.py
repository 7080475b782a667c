"""A database with a change stream whose history is known, on the official emulator and on a scripted server.

On the official one a workload committed for some seconds while partitions split, merged and moved. The scripted one
serves a scenario of the same tables whose end has passed. On both, time and heartbeats continue.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from connector.core.records import ChildPartition, ChildPartitionsRecord, DataChangeRecord, Record
from connector.core.timestamps import SECOND
from emulator import CommittedMod, Emulator, SampleDatabase, Scenario, ScriptedServer, Workload, connect
from emulator.workload.tables import Dialect
from tests.emulator.caller import Caller

Server = Literal["official", "scripted"]
WORKLOAD_SECONDS = 4.0
CHURN_SECONDS = 120.0
SCRIPTED_SECONDS = 20


@dataclass(frozen=True)
class ReadPartition:
    """A partition as it was read: its start, its parents, and its records up to the subject's end."""

    token: str
    start: int
    parents: frozenset[str]
    records: tuple[Record, ...]

    @property
    def changes(self) -> list[DataChangeRecord]:
        return [record for record in self.records if isinstance(record, DataChangeRecord)]

    @property
    def announced(self) -> list[ChildPartitionsRecord]:
        return [record for record in self.records if isinstance(record, ChildPartitionsRecord)]


@dataclass(frozen=True)
class Subject:
    """A database on a server.

    `sample` names it. All of `committed`, which is in commit order, lies after `start` and not after `end`; both have
    passed, and partitions are retained from `start` on.
    """

    server: Server
    sample: SampleDatabase
    committed: tuple[CommittedMod, ...]
    start: int
    end: int
    caller: Caller

    def read_partitions(self) -> dict[str, ReadPartition]:
        """Reads every partition from start to end simply, parents first; returns them by token."""
        found: dict[str, ReadPartition] = {}
        waiting = children_of(self.caller.query(None, self.start, self.end).records)
        while waiting:
            child, start = waiting.pop(0)
            if child.token not in found:
                records = self.caller.query(child.token, start, self.end).records
                found[child.token] = ReadPartition(child.token, start, child.parents, tuple(records))
                waiting += children_of(records)
        return found


def children_of(records: list[Record]) -> list[tuple[ChildPartition, int]]:
    """Yields each child that the records announce, with its start."""
    return [
        (child, record.start_timestamp)
        for record in records
        if isinstance(record, ChildPartitionsRecord)
        for child in record.children
    ]


Subjects = Mapping[Dialect, Subject]


@contextmanager
def officials(emulator: Emulator) -> Iterator[Subjects]:
    """Creates a subject of each dialect on the official emulator, and drops them at the end."""
    samples = [SampleDatabase.create(emulator.host, dialect=dialect) for dialect in get_args(Dialect)]
    with ExitStack() as stack:
        callers = []
        for sample in samples:
            stack.callback(sample.drop)
            callers.append(Caller(sample))
            stack.callback(callers[-1].close)
        starts = [caller.now() for caller in callers]
        workloads = [Workload(sample, seed=41, average_size=4.0) for sample in samples]
        for workload in workloads:
            workload.run(seconds=WORKLOAD_SECONDS, rate=80)
        deadline = time.monotonic() + CHURN_SECONDS
        while True:
            subjects = {
                sample.dialect: Subject("official", sample, tuple(workload.committed), start, caller.now(), caller)
                for sample, workload, start, caller in zip(samples, workloads, starts, callers, strict=True)
            }
            if all(_churned(subject) for subject in subjects.values()):
                break
            assert time.monotonic() < deadline, "no partitions have split and merged"
        yield subjects


def _churned(subject: Subject) -> bool:
    """True if a partition of it has split, and partitions of it have merged."""
    partitions = subject.read_partitions().values()
    merged = any(len(partition.parents) > 1 for partition in partitions)
    return merged and any(len(children_of(list(partition.announced))) > 1 for partition in partitions)


@contextmanager
def scripteds() -> Iterator[Subjects]:
    """Creates a subject of each dialect, each on its own scripted server."""
    with ExitStack() as stack:
        yield {dialect: stack.enter_context(_scripted(dialect)) for dialect in get_args(Dialect)}


@contextmanager
def _scripted(dialect: Dialect) -> Iterator[Subject]:
    started_at = time.time_ns()
    origin = started_at - (SCRIPTED_SECONDS + 10) * SECOND
    script = Scenario.generate(
        41,
        origin=origin,
        seconds=SCRIPTED_SECONDS,
        dialect=dialect,
        mode="IMMUTABLE_KEY_RANGE",
        transactions=100,
        schema_change=False,  # the tables must be those of the official emulator
    )
    with ScriptedServer.started(script, begins=started_at) as server:
        caller = Caller(sample_of(server))
        yield Subject("scripted", sample_of(server), tuple(script.committed), origin, caller.now(), caller)
        caller.close()


def sample_of(server: ScriptedServer) -> SampleDatabase:
    """Describes a scripted server's database as a sample database."""
    script = server.engine.scenario
    client = connect(server.host, script.project)
    return SampleDatabase(
        host=server.host,
        project=script.project,
        instance=script.instance,
        database_id=script.database,
        dialect=script.dialect,
        change_stream=script.change_stream,
        value_capture_type=script.value_capture_type,
        client=client,
        database=client.instance(script.instance).database(script.database),
        tables=script.tables,
    )
