"""The tables of a sink that lack what was committed before it started."""

import pytest

from connector.errors import SpoolError, SpoolInUseError
from connector.spool import consumers
from connector.spool.backfill.completeness import complete_as_of, incomplete_tables
from connector.spool.backfill.documents import BackfillProgress, TableProgress, TableState
from connector.spool.backfill.equal_tables import keep_equal
from connector.spool.backfill.forgetting import forget_everywhere
from connector.spool.backfill.records import backfills, mark_lost, spool_of, unfinished_tables, write_progress
from connector.spool.destinations import Destination, keep_destination
from connector.spool.reading import Spool
from connector.spool.sink_start import SinkStart, write_start
from tests.connector.spool.backfill.builders import T, recorded, spool_with_start


def delivered(spool: Spool, number: int, states: dict[str, TableState], *sinks: str) -> None:
    own = spool_of(spool, number)
    tables = tuple(TableProgress(table=table, state=state) for table, state in states.items())
    write_progress(own, BackfillProgress(updated=T, tables=tables))
    for name in sinks:
        consumers.record(own, name, 1, now=T)


def test_a_table_is_incomplete_until_a_backfill_has_delivered_it_to_this_very_sink(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B")
    for name in ("files", "second"):
        write_start(spool, name, SinkStart(requested="oldest", epoch=0, after=T, tables=("A", "B")))
    assert incomplete_tables(spool, "files") == {"A": T, "B": T}
    delivered(spool, 1, {"A": "done", "B": "read"}, "files")
    assert incomplete_tables(spool, "files") == {"B": T}
    assert incomplete_tables(spool, "second") == {"A": T, "B": T}


def test_a_backfill_as_of_a_timestamp_before_the_start_leaves_a_table_incomplete(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A")
    write_start(spool, "files", SinkStart(requested="now", epoch=9, after=T + 1, tables=("A",)))
    delivered(spool, 1, {"A": "done"}, "files")
    assert incomplete_tables(spool, "files") == {"A": T + 1}


def test_of_a_sink_that_an_older_program_has_started_nothing_is_known(spool_path: str) -> None:
    spool, _ = spool_with_start(spool_path)
    assert incomplete_tables(spool, "files") == {}


def test_a_condition_leaves_a_table_incomplete(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B", where={"A": "Id < 9"})
    write_start(spool, "files", SinkStart(requested="oldest", epoch=0, after=T, tables=("A", "B")))
    delivered(spool, 1, {"A": "done", "B": "done"}, "files")
    assert incomplete_tables(spool, "files") == {"A": T}


def test_the_condition_true_leaves_a_table_complete(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B", where={"A": " true ", "B": "TRUE AND Id < 9"})
    write_start(spool, "files", SinkStart(requested="oldest", epoch=0, after=T, tables=("A", "B")))
    delivered(spool, 1, {"A": "done", "B": "done"}, "files")
    assert incomplete_tables(spool, "files") == {"B": T}


@pytest.mark.parametrize(
    ("placements", "incomplete"), [(("europe",), frozenset[str]()), ((), {"A"}), (None, {"A"})], ids=str
)
def test_a_condition_bounds_a_table_where_the_stream_is_of_some_placements(
    spool_path: str, placements: tuple[str, ...] | None, incomplete: frozenset[str]
) -> None:
    spool, header = spool_with_start(spool_path, placements=placements)
    recorded(spool, header, "A", "B", where={"A": "Placement = 'europe'"})
    write_start(spool, "files", SinkStart(requested="oldest", epoch=0, after=T, tables=("A", "B")))
    delivered(spool, 1, {"A": "done", "B": "done"}, "files")
    assert incomplete_tables(spool, "files").keys() == incomplete


def test_a_table_that_a_repair_has_left_equal_is_complete_as_of_the_comparison(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    write_start(spool, "files", SinkStart(requested="now", epoch=9, after=T, tables=("A", "B")))
    keep_equal(spool, "files", ["A"], T - 1)
    assert incomplete_tables(spool, "files") == {"A": T, "B": T}
    keep_equal(spool, "files", ["A"], T)
    keep_equal(spool, "second", ["B"], T)
    keep_equal(spool, "files", [], T + 9)
    assert incomplete_tables(spool, "files") == {"B": T}
    recorded(spool, header, "A", "B", at=T + 1000)
    delivered(spool, 1, {"A": "done", "B": "done"}, "files")
    assert complete_as_of(spool, "files", backfills(spool)) == {"A": T + 1000, "B": T + 1000}
    consumers.forget(spool, "files")
    assert complete_as_of(spool, "files", []) == {}


def test_a_sink_that_is_forgotten_lacks_what_a_backfill_delivered_before(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B")
    for name in ("tables", "second"):
        write_start(spool, name, SinkStart(requested="oldest", epoch=0, after=T, tables=("A", "B")))
    delivered(spool, 1, {"A": "done", "B": "done"}, "tables", "second")
    forget_everywhere(spool, "tables", now=T)
    write_start(spool, "tables", SinkStart(requested="oldest", epoch=0, after=T, tables=("A", "B")))
    assert incomplete_tables(spool, "tables") == {"A": T, "B": T}
    assert incomplete_tables(spool, "second") == {}
    assert not backfills(spool)[0].progress.lost, "it is done"


def test_what_is_left_of_a_backfill_is_read_again_once_its_sink_is_forgotten(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B")
    delivered(spool, 1, {"A": "done", "B": "read"}, "query", "files")
    consumers.record(spool, "query", 5, now=T)
    keep_destination(spool, "files", Destination(type="files", options={"sink.path": "/out"}))
    forget_everywhere(spool, "query", now=T)
    assert backfills(spool)[0].is_open, "a query of a user's own is no sink"
    forget_everywhere(spool, "files", now=T)
    (one,) = backfills(spool)
    assert (one.progress.lost, one.progress.unfinished) == (True, ("B",))
    assert consumers.consumers(one.spool) == []
    with pytest.raises(SpoolError, match="has no consumer 'files'"):
        forget_everywhere(spool, "files", now=T)


def test_what_is_left_of_a_backfill_before_the_first_run_is_read_again_once_its_sink_is_forgotten(
    spool_path: str,
) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B")
    delivered(spool, 1, {"A": "done", "B": "read"}, "files")
    keep_destination(spool_of(spool, 1), "files", Destination(type="files", options={"sink.path": "/out"}))
    forget_everywhere(spool, "files", now=T)
    assert backfills(spool)[0].progress.lost


def test_other_sinks_do_not_wait_for_a_backfill_of_which_a_sink_has_got_rows_also_once_that_is_forgotten(
    spool_path: str,
) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A", "B")
    own = spool_of(spool, 1)
    consumers.register(own, "query", now=T)
    consumers.record(own, "query", 7, now=T)
    keep_destination(own, "tables", Destination(type="tables", options={"sink.path": "/lake"}))
    consumers.register(own, "tables", now=T)
    assert unfinished_tables(spool, "spanner") == {"A", "B"}, "once tables is forgotten, spanner may get all rows"
    delivered(spool, 1, {"A": "done", "B": "reading"}, "tables")
    assert [unfinished_tables(spool, name) for name in ("spanner", "tables", "")] == [set(), {"B"}, {"B"}]
    forget_everywhere(spool, "tables", now=T)
    assert [unfinished_tables(spool, name) for name in ("spanner", "tables", "")] == [set(), {"B"}, {"B"}]
    recorded(spool, header, "B", at=T + 1000, continues=1)
    assert unfinished_tables(spool, "spanner") == {"B"}, "any sink may get these rows"


def test_the_sink_of_a_backfill_is_known_that_was_lost_before_it_was_forgotten(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A")
    own = spool_of(spool, 1)
    keep_destination(own, "tables", Destination(type="tables", options={"sink.path": "/lake"}))
    consumers.record(own, "tables", 3, now=T)
    mark_lost(own, "no longer retained", now=T)
    forget_everywhere(spool, "tables", now=T)
    assert [unfinished_tables(spool, name) for name in ("spanner", "tables")] == [set(), {"A"}]
    assert backfills(spool)[0].progress.why_lost == "no longer retained"


def test_a_backfill_of_which_a_forgotten_sink_has_nothing_continues(spool_path: str) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A")
    keep_destination(spool, "files", Destination(type="files", options={"sink.path": "/out"}))
    consumers.register(spool_of(spool, 1), "files", now=T)
    forget_everywhere(spool, "files", now=T)
    assert backfills(spool)[0].is_open


def test_no_record_of_a_sink_that_is_forgotten_stays(spool_path: str) -> None:
    spool, _ = spool_with_start(spool_path)
    for ending in ("json", "pace", "released", "loaded", "maintenance", "equal", "start"):
        spool.storage.replace(f"consumers/tables.{ending}", b"{}")
    consumers.record(spool, "tables", 5, now=T)
    forget_everywhere(spool, "tables", now=T)
    assert [name for name in spool.storage.list("consumers") if not name.endswith(".lock")] == []


@pytest.mark.parametrize("lock", ["consumers/tables.sink.lock", "consumers/tables.lock"])
@pytest.mark.parametrize("is_backfilling", [False, True])
def test_a_sink_or_a_query_that_runs_is_not_forgotten(spool_path: str, lock: str, is_backfilling: bool) -> None:
    spool, header = spool_with_start(spool_path)
    recorded(spool, header, "A")
    own = spool_of(spool, 1)
    for one in (spool, own):
        consumers.record(one, "tables", 5, now=T)
        keep_destination(one, "tables", Destination(type="tables", options={"sink.path": "/lake"}))
    write_start(spool, "tables", SinkStart(requested="oldest", epoch=0, after=T, tables=("A",)))
    running = own if is_backfilling else spool
    with running.storage.locked(lock, "taken"), pytest.raises(SpoolInUseError, match=r"is in use.*Stop it first"):
        forget_everywhere(spool, "tables", now=T)
    assert incomplete_tables(spool, "tables") == {"A": T}
    assert backfills(spool)[0].is_open
    forget_everywhere(spool, "tables", now=T)
    assert consumers.consumers(spool) == consumers.consumers(own) == []
