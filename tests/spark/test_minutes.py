"""When a minute's files are written."""

import pytest

from connector.timestamps import MINUTE
from spark_sink.admission import EpochWeight
from spark_sink.file_source import ready
from spark_sink.minutes import FileShape, Holding
from tests.spark.spools import START, SpoolMaker, record

BY_MINUTE = FileShape(gzip=False, rotate_bytes=1000, by_minute=True)
ROOMY = Holding(max_bytes=10**9, end=None)


def written(spool: SpoolMaker, holding: Holding) -> list[int]:
    found = spool.spool
    weights = (EpochWeight.of(manifest, bool) for manifest in found.manifests(1, found.latest()))
    return [group.last for group in ready(found, weights, BY_MINUTE, holding)]


def test_a_spool_without_epochs_has_nothing_to_write(spool: SpoolMaker) -> None:
    assert written(spool, ROOMY) == []


def test_the_open_minute_is_held_back(spool: SpoolMaker) -> None:
    spool.seal(record(START, [1]))
    spool.seal(record(START + MINUTE, [2]))
    assert written(spool, ROOMY) == [1]


@pytest.mark.parametrize(
    "holding",
    [Holding(max_bytes=1, end=None), Holding(max_bytes=10**9, end=START + MINUTE)],
    ids=["where the spool has no room for more", "where the end was reached by an earlier run"],
)
def test_the_open_minute_is_written(spool: SpoolMaker, holding: Holding) -> None:
    spool.seal(record(START, [1]))
    spool.seal(record(START + MINUTE, [2]))
    assert written(spool, holding) == [1, 2]
