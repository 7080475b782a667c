"""Estimates of ``check`` for the BigQuery sink: the use of its quotas, and the bytes that BigQuery reads."""

import pytest

from connector.core.timestamps import MINUTE, SECOND
from spark_sink.sinks.bigquery.pacing.costs import SinkLoad, notes
from spark_sink.sinks.bigquery.pacing.quotas import LOADS, STREAMS

HOUR = 60 * MINUTE


def test_fifty_appended_tables_make_half_of_the_streams_that_are_allowed_and_rows_gather_for_36_seconds() -> None:
    load = SinkLoad("append-only", 50, SECOND, HOUR)
    assert load.calls_a_day == STREAMS.limit // 2 * 24
    (note,) = notes(load)
    assert note.startswith("50 tables in mode append-only: at most 5,000 new streams an hour, of 10,000 that a project")
    assert note.endswith("Rows gather for up to 36 s where all tables have some")


def test_merged_loads_take_a_job_for_each_table_once_in_max_staleness_and_read_it_as_often() -> None:
    load = SinkLoad("merge-load", 50, SECOND, HOUR, [10**10] * 50)
    assert load.calls_a_day == 1200
    assert load.reads_a_day == 24
    first, second, third = notes(load)
    assert first.endswith(f"of {LOADS.limit:,} load jobs that a project may run; changes gather for up to 1 h")
    assert second == "50 tables of 500.0 GB are read up to 24 times a day to merge what changed: 10.91 TiB"
    assert third.startswith("warning: that is paid by the TiB")


def test_load_jobs_keep_within_their_share_where_nothing_may_be_stale() -> None:
    assert SinkLoad("merge-load", 50, SECOND, 0).calls_a_day <= LOADS.limit // 2


def test_what_bigquery_merges_by_itself_takes_no_calls_and_reads_each_table_once_in_max_staleness() -> None:
    load = SinkLoad("merge", 50, SECOND, 15 * MINUTE)
    assert load.calls_a_day == 0
    assert load.reads_a_day == 96
    assert list(notes(load))[1] == "each table is read up to 96 times a day to merge what changed"


@pytest.mark.parametrize("mode", ["merge", "merge-load"])
def test_more_than_half_of_what_a_project_may_read_in_a_day_is_warned_of(mode: str) -> None:
    load = SinkLoad(mode, 1, SECOND, HOUR, [10**13])  # type: ignore[arg-type]
    assert list(notes(load))[2].startswith("warning: that is 109 % of the 200 TiB that a project may read on demand")


def test_a_small_replica_is_not_warned_of_and_a_table_counts_at_least_ten_megabytes() -> None:
    load = SinkLoad("merge", 3, SECOND, HOUR, [10, 10, 10])
    assert load.scanned_a_day == 24 * 3 * 10 * 2**20
    assert not [note for note in notes(load) if note.startswith("warning")]


def test_that_every_query_merges_is_warned_of() -> None:
    assert "every query applies the changes" in list(notes(SinkLoad("merge", 3, SECOND, 0)))[1]
