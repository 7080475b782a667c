"""The sink of a backfill's process."""

import time
from pathlib import Path

import pytest

from connector.config.loading import validated
from connector.errors import SpoolError
from connector.spool import consumers
from connector.spool.backfill.records import find, spool_of
from spark_sink.errors import PermanentError
from spark_sink.reading.backfill.process import check_all_is_kept, check_sink, config_of
from tests.connector.spool.backfill.builders import T, recorded, spool_with_start

SOURCE = {"project": "p", "instance": "in", "database": "d", "change_stream": "Everything"}


def test_a_backfill_that_another_sink_has_started_is_refused(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    own = spool_of(spool, 1)
    consumers.register(own, "files", now=time.time_ns())
    check_sink(own, "files")
    with pytest.raises(SpoolError, match=r"started for sink files, not bigquery.*configuration of files"):
        check_sink(own, "bigquery")


def test_a_query_of_ones_own_that_reads_a_backfills_spool_does_not_keep_its_sink_out(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    own = spool_of(spool, 1)
    consumers.register(own, consumers.DEFAULT, now=time.time_ns())
    check_sink(own, "files")


def test_a_sink_without_a_record_is_refused_once_segments_were_deleted(tmp_path: Path) -> None:
    spool, header = spool_with_start(tmp_path)
    recorded(spool, header, "A")
    own = spool_of(spool, 1)
    check_all_is_kept(own, "files", now=T)
    own.storage.create("floor.json", b'{"version":1,"first":3,"writer":"1"}')
    with pytest.raises(PermanentError, match=r"cannot be delivered: epochs before 3 are deleted, .* sink files"):
        check_all_is_kept(own, "files", now=T)
    found = find(spool, 1)
    assert found is not None
    assert found.progress.lost, "the next run reads it at another timestamp"
    consumers.register(own, "files", now=T)
    check_all_is_kept(own, "files", now=T)


def test_backfills_of_the_same_number_have_different_checkpoints(tmp_path: Path) -> None:
    config = validated({"source": SOURCE, "spark": {"checkpoint": str(tmp_path / "checkpoint")}})
    checkpoints = set()
    for folder in ("a", "b"):
        spool, header = spool_with_start(tmp_path / folder)
        recorded(spool, header, "A")
        found = find(spool, 1)
        assert found is not None
        checkpoints.add(config_of(config, found).spark.checkpoint)
    assert len(checkpoints) == 2
