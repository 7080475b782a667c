"""Every row of a partition is read once, whatever breaks; what cannot be read again is one clear line."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import orjson
import pyarrow as pa
import pytest

from connector.core.timestamps import SECOND
from connector.errors import (
    EventError,
    SnapshotLostError,
    StreamError,
    UnreachableError,
    VersionRetentionError,
)
from connector.spanner.blocking import STREAM_TIMEOUT
from connector.spanner.errors import classify
from connector.spanner.snapshot import reading, result_rows
from connector.spanner.snapshot.partitions import Snapshot, SnapshotPartition
from connector.spanner.snapshot.queries import TableQuery
from connector.spanner.snapshot.reading import read_keys, read_partition
from connector.spanner.snapshot.row_block import RowBlock
from emulator import Fault, FaultKind, FaultPlan
from emulator.scripted.framing import Framing
from tests.connector.spanner.snapshot.scripted import (
    TABLE,
    contents,
    middle,
    partitions,
    read,
    rows_of,
    serving,
    source_of,
)
from tests.peers.served import calls_to
from tests.retried import noted_causes, still_retried

TRANSIENT = [
    FaultKind.UNAVAILABLE,
    FaultKind.ABORTED,
    FaultKind.RESOURCE_EXHAUSTED,
    FaultKind.DEADLINE_EXCEEDED,
    FaultKind.INTERNAL,
    FaultKind.CANCELLED,
    FaultKind.CONNECTION_RESET,
]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LONGEST_PAUSE", 0.01)


@pytest.mark.long(but=4)
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_rows_of_every_table_are_read_once_however_they_are_framed(seed: int, dialect: str) -> None:
    with serving(seed=seed, dialect=dialect, framing=Framing.drawn(seed)) as server:
        at = middle(server)
        for table in server.engine.scenario.tables:
            found = partitions(server, TableQuery(table.name), at)
            assert len(found) == server.tables.partitions
            assert read(server, found) == contents(server, table.name, at)


@pytest.mark.long(but=3)
@pytest.mark.parametrize("seed", range(8))
def test_no_row_is_lost_or_comes_twice_whatever_is_drawn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", 1 if seed % 2 else 4_000)
    faults = FaultPlan(seed, share=0.9, most=4, latest=3, kinds=TRANSIENT)
    dialect = "googlesql" if seed % 3 else "postgresql"
    with serving(seed=seed, dialect=dialect, faults=faults, framing=Framing.drawn(seed + 100)) as server:
        at = middle(server)
        for table in server.engine.scenario.tables:
            found = partitions(server, TableQuery(table.name), at)
            assert read(server, found) == contents(server, table.name, at)
    assert faults.struck.total() > 5


def test_columns_are_read_in_the_wanted_order() -> None:
    with serving() as server:
        at = middle(server)
        (first, *_) = partitions(server, TableQuery(TABLE, ("Required", "Id", "JsonArray")), at)
        assert [column.name for column in first.columns] == ["Required", "Id", "JsonArray"]
        assert [list(row) for row in read(server, [first])] == [["Required", "Id", "JsonArray"]] * len(
            read(server, [first])
        )


@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_reading_that_breaks_off_is_resumed_and_no_row_comes_twice(
    kind: FaultKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", 1)
    faults = FaultPlan()
    for number in range(4):
        for after in (0, 1, 3):
            faults.rule(Fault(kind, after=after), token=f"{TABLE}/{number}/4")
    with serving(faults=faults, framing=Framing(seed=5, rows=3, chunked=0.4)) as server:
        found = partitions(server, TableQuery(TABLE), at := middle(server))
        assert read(server, found) == contents(server, TABLE, at)
        assert faults.struck[kind.value] >= 8
        assert server.tables.reads[f"{TABLE}/0/4"] > 2


def test_no_call_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_to(monkeypatch)
    with serving() as server:
        read(server, partitions(server, TableQuery(TABLE), middle(server)))
    deadlines = [call.deadline for call in calls]
    assert deadlines
    longest = STREAM_TIMEOUT * 1.01  # gRPC sends a long deadline rounded up
    assert all(seconds is not None and seconds <= longest for seconds in deadlines), deadlines


def breaking_off(*, times: int) -> FaultPlan:
    """Breaks off the reading of every partition that has so many rows; one of them has, whatever was drawn."""
    faults = FaultPlan()
    for number in range(4):
        faults.rule(Fault(FaultKind.UNAVAILABLE, after=2), token=f"{TABLE}/{number}/4", times=times)
    return faults


def test_rows_after_the_last_resume_token_are_held_until_they_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = breaking_off(times=1)
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", 1)
    with serving(faults=faults, framing=Framing(tokens=0.0)) as server:
        found = partitions(server, TableQuery(TABLE), at := middle(server))
        assert read(server, found) == contents(server, TABLE, at)
        assert faults.struck.total() > 0


def test_beyond_the_bound_rows_are_passed_on_and_a_broken_reading_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # gRPC may drop messages that came before an error: then nothing was passed on, and the reading is sent again.
    faults = breaking_off(times=1_000)
    monkeypatch.setattr(reading, "MOST_HELD", 10)
    with serving(faults=faults, framing=Framing(tokens=0.0)) as server:
        found = partitions(server, TableQuery(TABLE), at := middle(server))
        with pytest.raises(UnreachableError, match=r"cannot be resumed .*Read it again"):
            read(server, found)
        server.engine.faults = FaultPlan()
        assert read(server, found) == contents(server, TABLE, at)


def test_transient_errors_without_progress_end_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = FaultPlan().rule(Fault(FaultKind.UNAVAILABLE), times=1_000)
    with serving() as server:
        found = partitions(server, TableQuery(TABLE), middle(server))
        server.engine.faults = faults
        monkeypatch.setattr(reading, "PATIENCE", 0.1)
        with pytest.raises(UnreachableError, match="does not return the rows of a partition"):
            read(server, found)


def test_what_is_requested_again_is_noted_until_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        found = partitions(server, TableQuery(TABLE), at := middle(server))
        server.engine.faults = FaultPlan().rule(Fault(FaultKind.UNAVAILABLE), times=1)
        causes = noted_causes(monkeypatch)
        assert read(server, found) == contents(server, TABLE, at)
        assert len(causes) == 1
        assert causes[0].startswith(f"Spanner does not answer at {server.host} (UNAVAILABLE: ")
        assert still_retried() == []


def test_a_lost_session_transaction_or_token_is_a_lost_snapshot() -> None:
    faults = FaultPlan()
    with serving(faults=faults) as server:
        first, *_ = partitions(server, TableQuery(TABLE), middle(server))
        for lost in (replace(first, session=f"{first.session}0"), replace(first, transaction=b"another")):
            with pytest.raises(SnapshotLostError, match="Divide the table into partitions again"):
                read(server, [lost])
        faults.rule(Fault(FaultKind.SESSION_EXPIRED, after=1))
        with pytest.raises(SnapshotLostError, match="Session not found"):
            read(server, [first])


def test_versions_that_are_no_longer_kept_are_one_clear_line() -> None:
    with serving() as server:
        first, *_ = partitions(server, TableQuery(TABLE), middle(server))
        server.engine.clock.origin += server.engine.scenario.version_retention
        with pytest.raises(VersionRetentionError, match="no longer keeps the rows") as caught:
            read(server, [first])
        assert caught.value.exit_code == 3
        with pytest.raises(VersionRetentionError, match=f"table {TABLE} as of"):
            partitions(server, TableQuery(TABLE), middle(server))
        with pytest.raises(VersionRetentionError):
            list(by_key(server, ['{"Id":"x"}'], middle(server)))


def test_a_missing_table_is_one_clear_line() -> None:
    with serving() as server, pytest.raises(StreamError, match="cannot read table Missing as of"):
        partitions(server, TableQuery("Missing"), middle(server))


def test_a_partition_is_the_same_after_its_way_through_json() -> None:
    with serving() as server:
        for partition in partitions(server, TableQuery(TABLE), middle(server)):
            assert SnapshotPartition.from_json(partition.to_json()) == partition


def test_partitions_are_read_after_the_snapshot_was_closed_and_blocks_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result_rows, "BLOCK_BYTES", 1_000)
    with serving(framing=Framing.plain(rows=40)) as server:
        found = partitions(server, TableQuery(TABLE), at := middle(server))
        blocks = [block for one in found for block in read_partition(source_of(server).address, one)]
        assert sum(block.rows for block in blocks) == len(contents(server, TABLE, at))
        assert len(blocks) > 4
        assert all(block.rows == 1 or block.bytes < 10_000 for block in blocks)


def by_key(server: object, keys: list[str], at: int, *columns: str) -> list[dict[str, object]]:
    query = TableQuery(TABLE, columns or ("Id", "Required"))
    found = read_keys(source_of(server).address, query, pa.array(keys, pa.string()), ["Id"], at)  # type: ignore[arg-type]
    return [row for block in found for row in rows_of(block)]


def test_rows_are_read_by_key_as_of_a_timestamp_and_missing_ones_are_omitted() -> None:
    with serving() as server:
        at = middle(server)
        rows = contents(server, TABLE, at)
        keys = [orjson.dumps({"Id": row["Id"]}).decode() for row in rows]
        found = by_key(server, [*keys, '{"Id":"missing"}', *keys[:3]], at)
        assert found == [{"Id": row["Id"], "Required": row["Required"]} for row in rows]
        assert by_key(server, [], at) == []
        early = by_key(server, keys, server.engine.scenario.history.origin)
        assert len(early) < len(rows)


def test_a_lost_session_is_replaced_where_rows_are_read_by_key() -> None:
    faults = FaultPlan().rule(Fault(FaultKind.SESSION_EXPIRED)).rule(Fault(FaultKind.UNAVAILABLE, after=1))
    with serving(faults=faults) as server:
        at = middle(server)
        rows = contents(server, TABLE, at)
        keys = [orjson.dumps({"Id": row["Id"]}).decode() for row in rows]
        assert [row["Id"] for row in by_key(server, keys, at)] == [row["Id"] for row in rows]
        assert faults.struck.total() == 2


def test_a_query_of_rows_by_key_has_no_condition() -> None:
    with serving() as server, pytest.raises(ValueError, match="without a condition"):
        list(read_keys(source_of(server).address, TableQuery(TABLE, (), "TRUE"), pa.array(["{}"]), [], 1 * SECOND))


def test_an_address_without_a_server_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connector.spanner.snapshot.partitions.PATIENCE", 0.5)
    with serving() as server:
        source = source_of(server).model_copy(update={"emulator_host": "127.0.0.1:1"})
    with pytest.raises(UnreachableError, match="Check the network"):
        Snapshot.open(source.address, 1 * SECOND)


def test_a_value_that_is_not_valid_stops_the_reading_without_naming_it() -> None:
    with serving() as server:
        first, *_ = partitions(server, TableQuery(TABLE, ("Id",)), middle(server))
        (block,) = read_partition(source_of(server).address, first)
        block._raw = [b"\x1a\x7f"] * block.rows
        with pytest.raises(EventError, match="cannot be converted to JSON: "):
            block.payloads(["Id"])


def test_a_lost_session_is_not_replaced_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = FaultPlan().rule(Fault(FaultKind.SESSION_EXPIRED), times=1_000)
    with serving(faults=faults) as server:
        at = middle(server)
        keys = [orjson.dumps({"Id": row["Id"]}).decode() for row in contents(server, TABLE, at)]
        monkeypatch.setattr(reading, "PATIENCE", 0.1)
        with pytest.raises(UnreachableError, match="Spanner loses every session in which table"):
            by_key(server, keys, at)


class _UnavailableError(grpc.RpcError):  # type: ignore[misc]  # its base has no types
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "broken"


def test_the_time_of_an_attempt_that_breaks_off_does_not_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[float] = []

    def received(_: reading._Reading) -> Iterator[RowBlock]:
        """Takes a thousand seconds, and breaks off."""
        ended.append(1000.0 * (len(ended) + 1))
        raise _UnavailableError

    monkeypatch.setattr(reading._Reading, "_received", received)
    nothing: Any = SimpleNamespace(resume_token=b"", host="h:1", failed=classify)
    broken = reading._Reading(
        nothing, "", nothing, "a partition", clock=lambda: ended[-1] if ended else 0.0, sleep=lambda _: None
    )
    with pytest.raises(UnreachableError):
        list(broken.blocks())
    assert ended == [1000.0, 2000.0], "the second error comes 1000 s after the first"
