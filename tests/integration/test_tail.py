"""`spanner-cdc tail` prints everything that was committed, once, in commit order, as the contract says."""

import json
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest

from connector.core.timestamps import format_rfc3339
from emulator import CommittedMod, SampleDatabase, Workload
from tests.integration.commands import PATIENCE, Background, Done, options, tail, until
from tests.integration.contract import assert_in_commit_order, assert_valid
from tests.integration.delivered import differences, in_unified_types, of_events, returned
from tests.integration.servers import MakeDatabase

pytestmark = pytest.mark.emulator

STREAMS = {"NewValues": "NEW_VALUES", "OldToo": "NEW_ROW_AND_OLD_VALUES"}


def span(mods: Sequence[CommittedMod]) -> tuple[str, str]:
    """Returns the timestamps of the first and the last commit."""
    return format_rfc3339(mods[0].commit_timestamp_ns), format_rfc3339(mods[-1].commit_timestamp_ns)


def assert_prints(
    done: Done,
    sample: SampleDatabase,
    mods: Sequence[CommittedMod],
    *,
    stream: str | None = None,
    value_capture_type: str = "NEW_ROW",
) -> None:
    """Fails unless a command has printed exactly these mods, in order, and nothing else."""
    assert done.code == 0, done.err
    events = done.events
    for event in events:
        assert_valid(event, sample, stream=stream)
        assert event["source_metadata"]["value_capture_type"] == value_capture_type  # type: ignore[index]
    assert_in_commit_order(events)
    committed, delivered = in_unified_types(mods, sample, value_capture_type), of_events(events)
    assert delivered == committed, differences(committed, delivered)


def without_read_timestamp(done: Done) -> list[bytes]:
    lines = []
    for line in done.out.splitlines(keepends=True):
        before, _, rest = line.partition(b'"read_timestamp":"')
        lines.append(before + rest.partition(b'"')[2])
    return lines


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_tail_prints_exactly_the_mods_committed_while_partitions_split_and_merge_and_the_same_again(
    dialect: str, database: MakeDatabase
) -> None:
    sample = database(dialect=dialect)
    workload = Workload(sample, seed=11)
    workload.run(seconds=7, rate=250)
    mods = workload.committed
    start, end = span(mods)
    first = tail(sample, "--start", start, "--end", end)
    assert_prints(first, sample, mods)
    churned = first.err.rpartition("INFO progress")[2]
    assert "moves=" in churned
    assert "splits=" in churned
    again = tail(sample, "--start", start, "--end", end)
    assert without_read_timestamp(again) == without_read_timestamp(first)


@pytest.mark.long
@pytest.mark.parametrize("dialect", ["googlesql", "postgresql"])
def test_tail_prints_what_each_value_capture_type_captures(dialect: str, database: MakeDatabase) -> None:
    sample = database(dialect=dialect, value_capture_type="OLD_AND_NEW_VALUES")
    mark, word = ("`", "OPTIONS") if dialect == "googlesql" else ('"', "WITH")
    sample.run_ddl(
        *(
            f"CREATE CHANGE STREAM {mark}{name}{mark} FOR ALL {word} (value_capture_type = '{capture}')"
            for name, capture in STREAMS.items()
        )
    )
    workload = Workload(sample, seed=5, rows_per_table=10)
    workload.run(mods=150)
    mods = workload.committed
    assert {mod.mod_type for mod in mods} == {"INSERT", "UPDATE", "DELETE"}
    start, end = span(mods)
    for stream, capture in {sample.change_stream: sample.value_capture_type, **STREAMS}.items():
        done = tail(sample, "--start", start, "--end", end, stream=stream)
        assert_prints(done, sample, mods, stream=stream, value_capture_type=capture)


def tail_into_the_future(sample: SampleDatabase, workload: Workload, began: int, seconds: int, log: Path) -> bytes:
    """The output of tail for two tables up to an end in so many seconds; empty if it prints nothing before that."""
    offset = (time.time_ns() - began) // 1_000_000  # it counts from when the command has started, some time later
    end = time.time_ns() + seconds * 10**9
    with Background(
        "tail",
        *options(sample),
        *("--change-stream", sample.change_stream, "--table", "Singers", "--table", "sales.*"),
        *("--start", f"-{offset}ms", "--end", format_rfc3339(end)),
        log=log,
        stdout=subprocess.PIPE,
    ) as running:
        assert running.process.stdout is not None
        first = running.process.stdout.readline()
        workload.run(mods=20)
        if workload.committed[-1].commit_timestamp_ns >= end:
            return b""
        out = first + running.process.stdout.read()
        ended = running.wait()
    assert time.time_ns() >= end
    assert ended.code == 0
    return out


@pytest.mark.long
def test_tail_from_an_offset_to_an_end_in_the_future_prints_only_the_wanted_tables(
    database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    began = time.time_ns()
    workload = Workload(sample, seed=3)
    workload.run(seconds=4, rate=40)
    for seconds in (15, 45, 135):  # a busy machine takes long to start a command
        earlier = workload.transactions
        if out := tail_into_the_future(sample, workload, began, seconds, tmp_path / f"tail-{seconds}.log"):
            break
    assert out
    first, mods = out.splitlines()[0], workload.committed
    kept = [
        mod
        for mod in mods
        if (mod.table == "Singers" or mod.table.startswith("sales."))
        # the offset counts from Spanner's clock when tail started, somewhat later than the test's
        and mod.commit_timestamp_ns >= json.loads(first)["sort_keys"][1]
    ]
    events = [json.loads(line) for line in out.splitlines()]
    kept = returned(sample, kept, (event["sort_keys"][1] for event in events))
    committed, delivered = in_unified_types(kept, sample, "NEW_ROW"), of_events(events)
    assert delivered == committed, differences(committed, delivered)
    assert {mod.transaction for mod in kept} & set(range(earlier, workload.transactions))


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(SIGINT, 130), (SIGTERM, 0)])
def test_a_second_signal_ends_tail_at_once_though_nobody_reads_its_output(
    number: Signals, code: int, database: MakeDatabase, tmp_path: Path
) -> None:
    sample = database()
    began = format_rfc3339(time.time_ns())
    Workload(sample, seed=6).run(mods=400)  # more than a pipe holds
    with Background(
        *("tail", *options(sample), "--change-stream", sample.change_stream, "--start", began),
        log=tmp_path / "tail.log",
        stdout=subprocess.PIPE,
    ) as running:
        assert running.process.stdout is not None
        select.select([running.process.stdout], [], [], PATIENCE)
        running.signal(number)
        running.until(lambda: "stopping" in running.said, "the drain")
        assert running.stop(number, timeout=20).code == code


@pytest.mark.long
def test_tail_ends_quietly_when_its_reader_has_gone(database: MakeDatabase, tmp_path: Path) -> None:
    sample = database()
    began = format_rfc3339(time.time_ns())
    workload = Workload(sample, seed=4)
    workload.run(mods=20)
    with Background(
        *("tail", *options(sample), "--change-stream", sample.change_stream, "--start", began),
        log=tmp_path / "tail.log",
        stdout=subprocess.PIPE,
    ) as running:
        assert running.process.stdout is not None
        running.process.stdout.readline()
        running.process.stdout.close()

        def ended_after_more() -> bool:
            workload.run(mods=2)
            return running.process.poll() is not None

        until(ended_after_more, "the end")
        assert running.process.returncode == 0
        assert "Traceback" not in running.said
        assert "Exception" not in running.said
