import pytest

from connector.spool import consumers
from connector.spool.reading import Spool
from connector.spool.sink_report import NOTHING, report_of, write_report


@pytest.fixture
def spool(spool_path: str) -> Spool:
    return Spool.at(spool_path)


def test_a_sink_without_a_report_has_rejected_nothing(spool: Spool) -> None:
    assert report_of(spool, "bigquery") == NOTHING


def test_a_sinks_report_is_read_and_is_not_a_consumer(spool: Spool) -> None:
    report = NOTHING.after(3, 2, {"Singers": "table Singers is stopped: why", "Albums": ""})
    write_report(spool, "bigquery", report)
    assert report_of(spool, "bigquery") == report
    assert (report.refused, report.stopped) == (2, {"Singers": "table Singers is stopped: why"})
    assert consumers.consumers(spool) == []


def test_a_micro_batch_that_is_done_again_is_counted_once() -> None:
    once = NOTHING.after(3, 2, {})
    assert once.after(3, 2, {}) == once
    assert once.after(9, 5, {}).refused == 7


def test_a_table_is_stopped_until_rows_of_it_are_taken() -> None:
    stopped = NOTHING.after(3, 1, {"Singers": "why"})
    assert stopped.after(4, 0, {"Albums": ""}).stopped == {"Singers": "why"}
    assert stopped.after(4, 0, {"Singers": ""}).stopped == {}


def test_a_table_lacks_changes_up_to_the_last_timestamp_that_was_reported() -> None:
    report = NOTHING.lacks(["A", "B"], 5).lacks(["A"], 4).lacks(["B"], 6)
    assert report.lacking == {"A": 5, "B": 6}
    assert report.found("A").lacking == {"B": 6}


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":2}'])
def test_a_damaged_report_is_replaced(spool: Spool, data: bytes) -> None:
    spool.storage.replace("consumers/bigquery.report", data)
    assert report_of(spool, "bigquery") == NOTHING
