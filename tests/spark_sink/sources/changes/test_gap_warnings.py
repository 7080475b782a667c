"""A warning is printed for a gap in a micro-batch."""

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.core.timestamps import MINUTE
from spark_sink.sinks.files.plan import FileOptions, FilesRoot, Holding
from spark_sink.sinks.files.source import FileSinkReader
from spark_sink.sinks.shared.feed import Feed
from spark_sink.sources.changes.data_source import EventsBatchReader, EventsPartition, EventsStreamReader
from spark_sink.sources.changes.epoch_stream import EpochStreamReader
from spark_sink.sources.changes.offsets import Offset
from spark_sink.sources.changes.options import SourceOptions
from tests.spark_sink.spools import START, SpoolMaker, record

WARNING = (
    "WARNING spark_sink: epoch 2 is a gap: what was committed after 2026-03-01T10:00:00.000000Z up to"
    " 2026-03-01T10:08:59.999999999Z is not in the spool (restarted at a chosen timestamp)\n"
)


@pytest.fixture
def gapped(spool: SpoolMaker) -> SpoolMaker:
    spool.seal(record(START, [1]))
    spool.restart_at(START + 9 * MINUTE)
    spool.seal(record(START + 9 * MINUTE, [2]))
    return spool


def events(spool: SpoolMaker) -> EpochStreamReader:
    return EventsStreamReader(SourceOptions(spool.path), 1)


def files(spool: SpoolMaker) -> EpochStreamReader:
    shape = FileOptions(gzip=False, rotate_bytes=1000, by_minute=False)
    return FileSinkReader(
        Feed.at(spool.path), FilesRoot(str(Path(spool.path).parent / "out"), "", ""), shape, Holding(10**9, None), 1
    )


@pytest.mark.parametrize("make", [events, files])
def test_the_micro_batch_over_a_gap_reports_the_missing_range(
    make: Callable[[SpoolMaker], EpochStreamReader], gapped: SpoolMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = make(gapped)
    for start, end, expected in ((0, 1, ""), (1, 2, WARNING), (2, 3, "")):
        reader.partitions(Offset(start).to_json(), Offset(end, gapped.spool_id).to_json())
        assert capsys.readouterr().err.partition(" ")[2] == expected


def test_a_batch_over_a_gap_has_the_rows_on_both_sides_and_reports_it(
    gapped: SpoolMaker, capsys: pytest.CaptureFixture[str]
) -> None:
    (task,) = EventsBatchReader(SourceOptions(gapped.path), 1).partitions()
    assert isinstance(task, EventsPartition)
    assert len(task.files) == 2
    assert capsys.readouterr().err.partition(" ")[2] == WARNING
