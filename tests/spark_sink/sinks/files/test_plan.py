"""The time at which a minute's files are written."""

import asyncio
from dataclasses import replace

import pytest

from connector.core.timestamps import MINUTE, SECOND
from connector.daemon.spool_sink import SpoolSink
from connector.daemon.states.daemon import living
from connector.errors import SpoolError
from connector.reader.stopping import StopRequest
from connector.spool import consumers
from connector.telemetry.metrics import ReaderMetrics
from spark_sink.sinks.files import source
from spark_sink.sinks.files.plan import FileOptions, Holding, file_groups
from spark_sink.sinks.files.source import ready
from spark_sink.sources.changes.admission import EpochWeight
from tests.spark_sink.spools import START, SpoolMaker, record

BY_MINUTE = FileOptions(gzip=False, rotate_bytes=1000, by_minute=True)
ROOMY = Holding(max_bytes=10**9, end=None)


def written(spool: SpoolMaker, holding: Holding) -> list[int]:
    found = spool.spool
    weights = (EpochWeight.of(epoch, bool) for epoch in found.summaries(1, found.latest()))
    return [group.last for group in ready(found, weights, BY_MINUTE, holding)]


def test_a_spool_without_epochs_has_nothing_to_write(spool: SpoolMaker) -> None:
    assert written(spool, ROOMY) == []


def test_the_open_minute_is_held_back(spool: SpoolMaker) -> None:
    spool.seal(record(START, [1]))
    spool.seal(record(START + MINUTE, [2]))
    assert written(spool, ROOMY) == [1]


def test_a_gap_closes_the_minute_before_it_and_later_minutes_follow(spool: SpoolMaker) -> None:
    spool.seal(record(START, [1]))
    assert written(spool, ROOMY) == []
    assert spool.restart_at(START + 7 * MINUTE + SECOND) == 2
    assert written(spool, ROOMY) == [2]
    spool.seal(record(START + 7 * MINUTE + 2 * SECOND, [2]))
    assert written(spool, ROOMY) == [2]
    spool.seal(high=START + 8 * MINUTE - 1)
    assert written(spool, ROOMY) == [2, 4]


def test_a_gap_within_a_minute_leaves_it_one_minute(spool: SpoolMaker) -> None:
    spool.seal(record(START, [1]))
    spool.restart_at(START + 30 * SECOND)
    spool.seal(record(START + 40 * SECOND, [2]))
    assert written(spool, ROOMY) == []
    spool.seal(high=START + MINUTE - 1)
    assert written(spool, ROOMY) == [4]
    (group,) = file_groups(spool.spool.manifests(1, 4), by_minute=True)
    assert (group.first_epoch, len(group.segments)) == (1, 2)


def test_a_gap_at_the_spools_begin_or_end_is_passed_by_itself(spool: SpoolMaker) -> None:
    spool.seal(high=START + SECOND)
    spool.restart_at(START + 5 * MINUTE)
    assert written(spool, ROOMY) == [2]


@pytest.mark.parametrize(
    "holding",
    [Holding(max_bytes=1, end=None), Holding(max_bytes=10**9, end=START + MINUTE)],
    ids=["where the spool has no room for more", "where the end was reached by an earlier run"],
)
def test_the_open_minute_is_written(spool: SpoolMaker, holding: Holding) -> None:
    spool.seal(record(START, [1]))
    spool.seal(record(START + MINUTE, [2]))
    assert written(spool, holding) == [1, 2]


@pytest.mark.parametrize(("spare", "is_written"), [(0, True), (1, False)], ids=["it is full", "it has room"])
def test_the_open_minute_is_written_at_the_daemons_limit_if_that_is_smaller(
    spool: SpoolMaker, spare: int, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon and the sink of another configuration would wait for each other for ever."""
    monkeypatch.setattr(source, "_LOOKED_AT", 0)
    spool.fill(3)
    most = spool.writer.retention.bytes + spare

    async def daemon() -> bool:
        async with living(spool.spool, StopRequest(drain_timeout=SECOND), max_bytes=most):
            sink = SpoolSink(spool.writer, spool.spool, max_bytes=most, metrics=ReaderMetrics())
            stopping = asyncio.Event()
            stopping.set()
            return await sink.room(stopping)

    consumers.register(spool.spool, "files", now=START)
    assert asyncio.run(daemon()) is not is_written, "the daemon waits for the sink"
    assert written(spool, ROOMY) == ([3] if is_written else [])
    assert written(spool, Holding(max_bytes=1, end=None)) == [3]


def test_options_that_were_pinned_before_there_were_more_have_the_defaults() -> None:
    plain = FileOptions(gzip=True, rotate_bytes=7, by_minute=False)
    shape = replace(plain, sort_fields=False, exact_keys=False, removed_rows=False)  # as files were then
    assert FileOptions.from_text('{"by_minute":false,"gzip":true,"rotate_bytes":7}') == shape
    other = FileOptions(gzip=True, rotate_bytes=7, by_minute=True, format="avro", timestamps="text", schema_files=True)
    assert FileOptions.from_text(other.to_text()) == other


@pytest.mark.parametrize(
    "text", ['{"gzip":true,"rotate_bytes":7,"by_minute":false,"zstd":true}', '{"gzip":true}', "7", "{"]
)
def test_options_that_this_program_does_not_know_are_one_clear_line(text: str) -> None:
    with pytest.raises(SpoolError, match=r"^cannot read the file sink's pinned options: .* that wrote them\.$"):
        FileOptions.from_text(text)


def test_a_minute_whose_end_is_sealed_while_its_epochs_are_weighed_is_held_back(spool: SpoolMaker) -> None:
    spool.seal(record(START + 5, [1]))
    weights = [EpochWeight.of(epoch, bool) for epoch in spool.spool.summaries(1, 1)]
    spool.seal(record(START + MINUTE - 1, [2]))
    assert list(ready(spool.spool, weights, BY_MINUTE, ROOMY)) == []
