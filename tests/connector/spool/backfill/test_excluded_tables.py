"""The tables that ``source.tables`` has excluded for a while."""

from connector.cli.spool_reports import spool_report, spool_text
from connector.core.timestamps import format_rfc3339
from connector.spool.backfill.excluded_tables import excluded_ranges, keep_patterns
from connector.spool.reading import Spool
from tests.connector.spool.backfill.builders import T, spool_with_start


def ranges_of(spool: Spool, table: str) -> list[tuple[int, int]]:
    return [(one.after - T, one.up_to - T) for one in excluded_ranges(spool) if one.lacks(table)]


def test_what_a_table_lacks_is_known_once_it_is_kept_again(spool_path: str) -> None:
    spool, _ = spool_with_start(spool_path)
    keep_patterns(spool, (), (), T)
    assert not spool.storage.exists("excluded.json"), "all tables are kept"
    keep_patterns(spool, (), ("A*",), T + 1)
    keep_patterns(spool, (), ("A*",), T + 2)
    assert ranges_of(spool, "A") == []
    keep_patterns(spool, (), (), T + 3)
    assert [ranges_of(spool, table) for table in ("A", "Albums", "B")] == [[(1, 3)], [(1, 3)], []]
    report = spool_report(spool)
    assert report["excluded"] == [{"table": "A", "after": format_rfc3339(T + 1), "up_to": format_rfc3339(T + 3)}]
    line = f"EXCLUDED, table A: ({format_rfc3339(T + 1)}, {format_rfc3339(T + 3)}] is missing"
    assert line in spool_text(report)
    keep_patterns(spool, ("B",), (), T + 5)
    keep_patterns(spool, ("A", "B"), (), T + 8)
    assert [ranges_of(spool, table) for table in ("A", "Albums", "B")] == [[(1, 3), (5, 8)], [(1, 3), (5, 8)], []]


def test_patterns_with_which_nothing_was_sealed_leave_nothing_out(spool_path: str) -> None:
    spool, _ = spool_with_start(spool_path)
    keep_patterns(spool, (), ("A",), T)
    keep_patterns(spool, (), (), T)
    assert ranges_of(spool, "A") == []
    keep_patterns(spool, (), ("A",), T + 1)
    keep_patterns(spool, (), ("B",), T + 4)
    keep_patterns(spool, (), ("A",), T + 4)
    keep_patterns(spool, (), (), T + 6)
    assert [ranges_of(spool, table) for table in "AB"] == [[(1, 6)], []]
