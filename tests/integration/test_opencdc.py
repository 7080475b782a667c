"""`tail` prints OpenCDC records of what was committed, and from each of their positions exactly the rest."""

import json
from base64 import b64encode
from dataclasses import replace
from typing import get_args

import pytest

from connector.core.position import Position
from connector.core.timestamps import format_rfc3339
from emulator import CommittedMod, Scenario, ScriptedServer, Table
from emulator.scenario.history import Change, History, Partition, PartitionMode
from emulator.workload.tables import Dialect
from tests.connector.envelope.conduit import ConduitRecord
from tests.emulator.scripted.scripted_stream import ORIGIN, at, change, scenario
from tests.emulator.subjects import sample_of
from tests.integration.commands import Done, run, tail
from tests.integration.conduit.scripted import drawn, records_after, records_of
from tests.peers.served import served

dialects = pytest.mark.parametrize("dialect", get_args(Dialect))
OPERATIONS = {"INSERT": "create", "UPDATE": "update", "DELETE": "delete"}


def values_of(row: dict[str, object], table: Table) -> dict[str, object]:
    """Returns Spanner's values as an OpenCDC reader gets them, with numbers as doubles."""
    columns = {column.name: column for column in table.columns}

    def one(kind: str, value: object) -> object:
        if kind == "INT64" and value is not None:
            number = int(str(value))
            return float(number) if abs(number) <= 2**53 else str(number)
        if kind == "JSON" and value is not None:
            return json.loads(str(value), parse_int=float)
        return float(value) if type(value) is int else value

    return {
        name: [one(columns[name].type, item) for item in value]
        if isinstance(value, list)
        else one(columns[name].type, value)
        for name, value in row.items()
    }


def expected(mod: CommittedMod, tables: dict[str, Table], capture: str) -> tuple[object, ...]:
    new = mod.row if "NEW_ROW" in capture else mod.new_values
    old = mod.old_row if "OLD" in capture and mod.mod_type == "DELETE" else {}
    table = tables[mod.table]
    return (
        mod.commit_timestamp_ns,
        mod.table,
        OPERATIONS[mod.mod_type],
        values_of(dict(mod.keys), table),
        None if mod.mod_type == "DELETE" else values_of({**mod.keys, **new}, table),
        values_of({**mod.keys, **old}, table) if old else None,
    )


def fields_of(record: ConduitRecord) -> tuple[object, ...]:
    return (
        int(record.metadata["opencdc.createdAt"]),
        record.metadata["opencdc.collection"],
        record.operation,
        record.key,
        record.after,
        record.before if record.operation == "delete" else None,
    )


@pytest.mark.long(but=2)
@dialects
@pytest.mark.parametrize("capture", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES", "NEW_VALUES"])
def test_tail_prints_what_was_committed_as_opencdc_records(dialect: Dialect, capture: str) -> None:
    with drawn(11, dialect=dialect, value_capture_type=capture) as server:
        found = records_after(server)
        tables = {table.name: table for table in server.engine.scenario.tables}
        committed = server.engine.scenario.committed
    assert [fields_of(record) for record in found] == [expected(mod, tables, capture) for mod in committed]
    assert {record.operation for record in found} == set(OPERATIONS.values())
    updates = [record for record in found if record.operation == "update"]
    assert all((record.before is not None) is ("OLD" in capture) for record in updates)
    assert all(record.before is None for record in found if record.operation == "create")


def assert_resumes_everywhere(server: ScriptedServer, mods: int) -> None:
    whole = records_after(server)
    assert len(whole) == mods
    positions = [Position.from_text(b64encode(record.position).decode()) for record in whole]
    assert positions == sorted(set(positions), key=lambda position: position.order)
    for index, position in enumerate(positions):
        assert records_after(server, position) == whole[index + 1 :], position


def crowded(dialect: Dialect, mode: PartitionMode) -> Scenario:
    """Two partitions whose transactions share commit timestamps: in a record, across records, across partitions."""

    def of(seconds: float, transaction: str, number: int) -> Change:
        return replace(change(seconds, number), server_transaction_id=transaction)

    left = [of(5, "b", 1), of(5, "b", 2), of(5, "a", 3), of(7, "c", 9), of(7, "c", 10)]
    right = [of(5, "a", 1), of(5, "b", 11), of(7, "c", 100)]
    partitions = [Partition("left", ORIGIN, events=[*left]), Partition("right", ORIGIN, events=[*right])]
    history = History(mode, ORIGIN, at(10), {partition.token: partition for partition in partitions})
    return replace(scenario(dialect, mode), history=history)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("mode", get_args(PartitionMode))
@dialects
def test_tail_continues_from_each_position_of_transactions_that_share_a_commit_timestamp(
    dialect: Dialect, mode: PartitionMode
) -> None:
    with served(crowded(dialect, mode)) as server:
        assert_resumes_everywhere(server, 16)


@pytest.mark.long(but=1)
@pytest.mark.parametrize("seed", [1, 2])
def test_tail_continues_from_each_position_of_a_stream_with_exactly_the_rest(seed: int) -> None:
    with drawn(seed, value_capture_type=None, transactions=8) as server:
        assert_resumes_everywhere(server, len(server.engine.scenario.committed))


def position_of(line: bytes) -> str:
    found = json.loads(line)["position"]
    assert isinstance(found, str)
    return found


@pytest.mark.long
def test_the_command_continues_from_a_position() -> None:
    with drawn(11, transactions=40) as server:
        history = server.engine.scenario.history

        def command(*more: str, end: int = history.horizon) -> Done:
            done = tail(sample_of(server), "--envelope", "opencdc", "--end", format_rfc3339(end), *more)
            assert done.code == 0, done.err
            return done

        lines = command("--start", format_rfc3339(history.origin)).out.splitlines()
        whole = records_of(b"\n".join(lines))
        rest = command("--start-position", position_of(lines[30]))
        assert records_of(rest.out) == whole[31:]
        last = int(whole[-1].metadata["opencdc.createdAt"])
        assert command("--start-position", position_of(lines[-1]), end=last).out == b""
        table = whole[30].metadata["opencdc.collection"]
        some = command("--start-position", position_of(lines[30]), "--table", table)
        assert records_of(some.out) == [each for each in whole[31:] if each.metadata["opencdc.collection"] == table]


NAMES = ("--project", "p", "--instance", "in", "--database", "d", "--emulator-host", "127.0.0.1:1")
POSITION = Position("p/in/d/s", ORIGIN, "t", "1", 0).to_text()


@pytest.mark.parametrize(
    ("stream", "given", "line"),
    [
        ("s", ("--start-position", POSITION[:-8]), "--start-position: it is not a valid position: copy the whole"),
        ("s", ("--start-position", ""), "--start-position: it is not a valid position"),
        ("s", ("--start-position", POSITION, "--start", "now"), "--start and --start-position exclude each other"),
        ("t", ("--start-position", POSITION), "--start-position: it belongs to change stream p/in/d/s, not p/in/d/t"),
        ("s", ("--start-position", POSITION, "--end", "2026-01-01T00:00:00Z"), "is before start"),
    ],
)
def test_an_invalid_position_is_rejected_in_one_line(stream: str, given: tuple[str, ...], line: str) -> None:
    done = run("tail", *NAMES, "--change-stream", stream, *given)
    assert done.code == 2
    assert line in done.complaint
